"""
What runs with each store, and what runs once.

A test that may use the database (``django_db``) runs with each store. One that may not
runs with the first store only: pytest-django lets no statement of it through. So does a
test with the mark ``once``, to which the database is only a prop. A run of all tests
fails if the library sends some statement to its tables in such tests only: that
statement would be tried on one store. What fixtures and Django's test cases send does
not count, nor what other processes send that a test starts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from types import FrameType

import pytest
from django.db.backends.utils import CursorWrapper
from django.test import SimpleTestCase

OPTION = "--without-once"
ONLY_OF_STORE = {
    "sqlite": {"sqlite_only"},
    "postgres": {"servers_only", "postgres_only"},
    "mariadb": {"servers_only", "mariadb_only"},
}
ONLY = set().union(*ONLY_OF_STORE.values())
"""The marks of tests that are about some stores, and do not run with the others."""
ONE_STORE = ONLY - {"servers_only"}

FIXTURES = {"db", "transactional_db", "live_server", "django_db_setup"}
TABLES = re.compile(r"\bshedlock(_[a-z]+)?\b")
"""The library has four: one for each of its models."""
PROPERTY = "statement"
VARIES = {
    r"\((%s(, )?)+\)": "(%s)",
    r"\(%s\)(, \(%s\))+": "(%s)",  # rows of VALUES
    r"\bIN \([\d, ]+\)": "IN (%s)",
    r"\b\d+\b": "0",
    # The admin's list ranks the names that need somebody; `list` takes any names.
    r"WHEN \S+ IN \(%s\) THEN %s ": "",
    r"(\(\S+ = %s OR \S+ LIKE [^()]*?)( OR \S+ = %s OR \S+ LIKE [^()]*?)+\)": r"\1)",
}
"""What differs between two statements of one form, and stands for it."""


def runs_once(item: pytest.Item) -> bool:
    """Return whether what the test shows does not depend on the store."""
    if any(map(item.get_closest_marker, ONLY)):
        return False
    return item.get_closest_marker("once") is not None or not _uses_database(item)


def _uses_database(item: pytest.Item) -> bool:
    case = getattr(item, "cls", None)
    return (
        item.get_closest_marker("django_db") is not None
        or not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        or (isinstance(case, type) and issubclass(case, SimpleTestCase))
    )


class Recorder:
    """Notes, test by test, which statements go to the lock's tables."""

    def __init__(self) -> None:
        self.forms: set[str] = set()

    def install(self) -> None:
        """Look at each statement of this process from now on."""
        execute, execute_many = CursorWrapper.execute, CursorWrapper.executemany

        def noting(cursor: CursorWrapper, sql: str, params: object = None) -> object:
            self.note(sql)
            return execute(cursor, sql, params)

        def noting_many(cursor: CursorWrapper, sql: str, params: object) -> object:
            self.note(sql)
            return execute_many(cursor, sql, params)

        CursorWrapper.execute, CursorWrapper.executemany = noting, noting_many

    def note(self, sql: object) -> None:
        """Remember the statement's form, unless the test itself sends it."""
        if TABLES.search(str(sql)) and not _is_of_the_test(sys._getframe(2)):
            self.forms.add(form(str(sql)))

    def take(self) -> set[str]:
        """Return the forms since the last call."""
        forms, self.forms = self.forms, set()
        return forms


def _is_of_the_test(frame: FrameType | None) -> bool:
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(("django_shedlock", "django.core.handlers")):
            return False
        if module.startswith("tests.") and module != __name__:
            return True
        if module == "django.test.testcases":  # which empties the tables
            return True
        frame = frame.f_back
    return False


def form(sql: str) -> str:
    """Return the statement without what differs from call to call."""
    for pattern, name in VARIES.items():
        sql = re.sub(pattern, name, sql)
    return sql


class Comparison:
    """The statements of the tests that run once, beside those of all others."""

    def __init__(self) -> None:
        self.once: dict[str, str] = {}
        self.always: set[str] = set()

    def add(self, report: pytest.TestReport) -> None:
        """Take what a test has noted, in whatever process it ran."""
        forms = [str(value) for key, value in report.user_properties if key == PROPERTY]
        if "once" in report.keywords:
            self.once.update(dict.fromkeys(forms, report.nodeid))
        elif ONE_STORE.isdisjoint(report.keywords):
            self.always.update(forms)

    def faults(self) -> Iterator[str]:
        """Return the statements that no other store will see."""
        for statement in sorted(self.once.keys() - self.always):
            yield f"{self.once[statement]}: {statement}"


def is_whole(config: pytest.Config) -> bool:
    """Return whether this is a run of all tests, and not of some."""
    chosen = ("keyword", "markexpr", "maxfail", "deselect", "ignore", "lf")
    if any(config.getoption(name, None) for name in chosen):
        return False
    return config.args == config.getini("testpaths")


def left_out(items: Iterable[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """Return the tests that the first store's run includes, in the run of another."""
    return [item for item in items if config.getoption(OPTION) and runs_once(item)]
