"""
What runs with each store, what runs once, and what only CI runs.

Three marks say so. ``each_store``: databases may differ in what the test shows, so it
runs with each store. ``once``: the database is only a prop, so it runs with the first
store only. ``slow``: it runs only in CI, with ``--all``, or if somebody names its file.
A test without a mark runs with the first store only, but with ``--all`` with each, if
it may use the database (``django_db``). If it may not, pytest-django lets no statement
of it through.

A run of all tests fails if the library sends some statement to its tables in no test
with the mark ``each_store``: other stores would see it in CI only, or never. What
fixtures and Django's test cases send does not count, nor what other processes send that
a test starts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from django.db.backends.utils import CursorWrapper
from django.test import SimpleTestCase

TESTS = Path(__file__).parents[1]
OPTION = "--without-once"
ALL = "--all"
ALL_VARIABLE = "SHEDLOCK_TEST_ALL"
"""Stands for the option, also where a command can't be given one."""

EACH_STORE, ONCE, SLOW = "each_store", "once", "slow"
TIERS = {
    EACH_STORE: "runs with each store: databases differ in what it shows",
    ONCE: "shows the same on each store",
    SLOW: "takes long: only CI runs it, or who names it or gives --all",
}
"""The marks that say where and when a test runs."""
FOLDERS = {
    EACH_STORE: (
        *("concurrency/", "history/", "locks/", "providers/"),
        *("test_cost.py", "sql/", "test_models.py", "test_weaknesses.py"),
        # What reads the history for people, and what operators did.
        *("console/admin/test_runs.py", "console/cli/test_history.py"),
        *("console/admin/test_audit_log.py", "console/operators/test_audit.py"),
        "console/monitoring/",
    ),
    SLOW: (
        *("browser/", "protocol/", "concurrency/test_soak.py"),
        *("test_benchmarks.py", "test_example_project.py"),
        *("providers/etcd/test_cluster.py", "providers/redis/test_replicas.py"),
        "providers/zookeeper/test_cluster.py",
        *(
            f"contrib/test_{queue}.py"
            for queue in (
                *("apscheduler", "celery", "celery_ticks", "django_q", "dramatiq"),
                *("huey", "rq", "tasks"),
            )
        ),
    ),
}
"""Where tests have a mark by themselves, unless they have others."""
RACES = "RaceContract."
"""Tests that start, stop and kill processes of whatever provider."""
ONLY_OF_STORE = {
    "sqlite": {"sqlite_only"},
    "postgres": {"servers_only", "postgres_only"},
    "mariadb": {"servers_only", "mariadb_only"},
}
ONLY = set().union(*ONLY_OF_STORE.values())
"""The marks of tests that are about some stores, and do not run with the others."""
ONE_STORE = ONLY - {"servers_only"}
ALWAYS = {EACH_STORE, "servers_only"}

FIXTURES = {"db", "transactional_db", "live_server", "django_db_setup"}
TABLES = re.compile(r"\bshedlock(_[a-z]+)?\b")
"""The library has four: one for each of its models."""
PROPERTY = "statement"
VARIES = {
    r"'[a-z :]*'": "%s",  # see PLAIN
    r"\((%s(, )?)+\)": "(%s)",
    r"\(%s\)(, \(%s\))+": "(%s)",  # rows of VALUES
    r"\bIN \([\d, ]+\)": "IN (%s)",
    r"\b\d+\b": "0",
    # The admin's list ranks the names that need somebody; `list` takes any names.
    r"WHEN \S+ IN \(%s\) THEN %s ": "",
    r"(\(\S+ = %s OR \S+ LIKE [^()]*?)( OR \S+ = %s OR \S+ LIKE [^()]*?)+\)": r"\1)",
}
"""What differs between two statements of one form, and stands for it."""


def mark(item: pytest.Item) -> None:
    """Add the mark that the test has by its place, unless it has another one."""
    marks = {name for name in {*TIERS, *ONLY} if item.get_closest_marker(name)}
    if marks & {EACH_STORE, SLOW} or not item.path.is_relative_to(TESTS):
        return
    path = item.path.relative_to(TESTS).as_posix()
    if path.startswith(FOLDERS[SLOW]) or _is_race(item):
        item.add_marker(SLOW)
    elif path.startswith(FOLDERS[EACH_STORE]) and not marks and _uses_database(item):
        item.add_marker(EACH_STORE)


def _is_race(item: pytest.Item) -> bool:
    name = getattr(getattr(item, "function", None), "__qualname__", "")
    return str(name).startswith(RACES) and not _uses_database(item)


def runs_once(item: pytest.Item, *, everything: bool = False) -> bool:
    """Return whether the first store's run is enough, of all tests or of most."""
    if any(map(item.get_closest_marker, ONLY)):
        return False
    if item.get_closest_marker(ONCE) is not None or not _uses_database(item):
        return True
    return not everything and item.get_closest_marker(EACH_STORE) is None


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
    """The statements of the tests that each store runs, beside those of all others."""

    def __init__(self) -> None:
        self.others: dict[str, str] = {}
        self.each_store: set[str] = set()

    def add(self, report: pytest.TestReport) -> None:
        """Take what a test has noted, in whatever process it ran."""
        forms = [str(value) for key, value in report.user_properties if key == PROPERTY]
        if not ONE_STORE.isdisjoint(report.keywords):
            return
        if SLOW in report.keywords or ALWAYS.isdisjoint(report.keywords):
            self.others.update(dict.fromkeys(forms, report.nodeid))
        else:
            self.each_store.update(forms)

    def faults(self) -> Iterator[str]:
        """Return the statements that no other store will see."""
        for statement in sorted(self.others.keys() - self.each_store):
            yield f"{self.others[statement]}: {statement}"


def is_whole(config: pytest.Config) -> bool:
    """Return whether this is a run of all tests, and not of some."""
    chosen = ("keyword", "markexpr", "maxfail", "deselect", "ignore", "lf")
    if any(config.getoption(name, None) for name in chosen):
        return False
    return config.args == config.getini("testpaths")


def left_out(items: Iterable[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """Return the tests that another store's run includes, or that nobody asked for."""
    everything = bool(config.getoption(ALL))
    are_slow_asked_for = (
        everything
        or config.args != config.getini("testpaths")
        or SLOW in (config.getoption("markexpr", None) or "")
    )
    return [
        item
        for item in items
        if (config.getoption(OPTION) and runs_once(item, everything=everything))
        or (item.get_closest_marker(SLOW) is not None and not are_slow_asked_for)
    ]
