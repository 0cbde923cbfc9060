"""
Which tests run where.

The README's run, ``python -m tests``, needs the dependency group ``test`` and takes
little processor time. ``--all`` adds the slow tests and those beside other libraries,
which need the group ``test-all``, and runs all tests of the database with each store.

Three marks say more. ``each_store``: databases may differ in what the test shows, so it
runs with each store. ``once``: the database is only a prop, so it runs with the first
store only, also with ``--all``. ``slow``: it runs only with ``--all``, or if somebody
names its file. Tests have this mark by ``tests/slow.txt``, which
``python -m tests.support.costs`` writes from measurements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from django.test import SimpleTestCase

TESTS = Path(__file__).parents[1]
SLOW_TESTS = TESTS / "slow.txt"
OTHER_STORES = "--without-once"
ALL = "--all"
ALL_VARIABLE = "SHEDLOCK_TEST_ALL"
"""Stands for the option, also where a command can't be given one."""

EACH_STORE, ONCE, SLOW = "each_store", "once", "slow"
MARKS = {
    EACH_STORE: "runs with each store: databases differ in what it shows",
    ONCE: "shows the same on each store",
    SLOW: "takes long: runs with --all, or if its file is named",
}
ONLY_OF_STORE = {
    "sqlite": {"sqlite_only"},
    "postgres": {"servers_only", "postgres_only"},
    "mariadb": {"servers_only", "mariadb_only"},
}
ONLY = set().union(*ONLY_OF_STORE.values())
"""The marks of tests that are about some stores, and do not run with the others."""

PLACES_OF_EACH_STORE = (
    *("concurrency/", "history/", "locks/", "providers/"),
    *("test_cost.py", "sql/", "test_models.py", "test_weaknesses.py"),
    # What reads the history for people, and what operators did.
    *("console/admin/test_runs.py", "console/cli/test_history.py"),
    *("console/admin/test_audit_log.py", "console/operators/test_audit.py"),
    "console/monitoring/",
)
"""Whose tests of the database run with each store, unless they have another mark."""
PLACES_OF_LIBRARIES = (
    *("browser/", "contrib/", "core_alone/", "protocol/", "stores/"),
    *("providers/dynamodb/", "providers/etcd/", "providers/mongodb/"),
    *("providers/redis/", "providers/zookeeper/"),
    *("providers/test_named_servers.py", "providers/test_record_format.py"),
    *("concurrency/test_element_sets.py", "concurrency/test_soak.py"),
    "concurrency/test_soak_verdict.py",
    *("console/cli/test_exit_statuses.py", "console/cli/test_notify.py"),
    *("providers/test_servers.py", "test_example_project.py", "test_stores.py"),
    *("test_benchmarks.py", "test_ci.py", "test_docs.py", "test_examples.py"),
    *("test_floors.py", "test_interleavings.py", "test_mutants.py"),
    *("test_test_times.py", "test_tutorial.py"),
)
"""Which need the group ``test-all``, so that only ``--all`` collects them."""

FIXTURES = {"db", "transactional_db", "live_server", "django_db_setup"}


def add_options(parser: pytest.Parser, *, has_all: bool) -> None:
    """Let pytest know the options of this module."""
    parser.addoption(
        OTHER_STORES,
        action="store_true",
        help="leave out what does not depend on the store: another store's run has it",
    )
    parser.addoption(
        ALL,
        action="store_true",
        default=has_all,
        help="run slow tests, too, and all that use the database with each store",
    )


def is_all(config: pytest.Config) -> bool:
    """Return whether each test runs that the command line names."""
    return bool(config.getoption(ALL)) or config.args != config.getini("testpaths")


def needs_libraries(path: Path) -> bool:
    """Return whether this folder or file needs the group ``test-all``."""
    return f"{_place(path)}/".startswith(PLACES_OF_LIBRARIES)


def is_left_to_all(path: Path) -> bool:
    """Return whether the README's run does not even collect this folder or file."""
    return needs_libraries(path) or _place(path) in slow_tests()


def _place(path: Path) -> str:
    """Return the path in the folder of the tests; the whole path if it is not there."""
    return (path.relative_to(TESTS) if path.is_relative_to(TESTS) else path).as_posix()


@cache
def slow_tests() -> set[str]:
    """Return what ``slow.txt`` lists: files, and functions as ``file.py::name``."""
    return set(SLOW_TESTS.read_text(encoding="utf-8").split())


def mark(item: pytest.Item) -> None:
    """Add the marks that the test has by its place and by ``slow.txt``."""
    if not item.path.is_relative_to(TESTS):
        return
    place = _place(item.path)
    if not slow_tests().isdisjoint((place, f"{place}::{function_name(item.nodeid)}")):
        item.add_marker(SLOW)
    has_own = any(map(item.get_closest_marker, {EACH_STORE, ONCE, *ONLY}))
    if place.startswith(PLACES_OF_EACH_STORE) and not has_own and uses_database(item):
        item.add_marker(EACH_STORE)


def function_name(nodeid: str) -> str:
    """Return the test's name behind its file, without its parameters."""
    return nodeid.partition("::")[2].partition("[")[0]


def runs_once(item: pytest.Item, *, everything: bool = False) -> bool:
    """Return whether the first store's run is enough, of all tests or of most."""
    if any(map(item.get_closest_marker, ONLY)):
        return False
    if item.get_closest_marker(ONCE) is not None or not uses_database(item):
        return True
    return not everything and item.get_closest_marker(EACH_STORE) is None


def uses_database(item: pytest.Item) -> bool:
    """Return whether the test may use the database; pytest-django refuses it else."""
    case = getattr(item, "cls", None)
    return (
        item.get_closest_marker("django_db") is not None
        or not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        or (isinstance(case, type) and issubclass(case, SimpleTestCase))
    )


def left_out(
    items: Iterable[pytest.Item], config: pytest.Config, store: str
) -> list[pytest.Item]:
    """Return the tests of other stores, of another store's run, and the slow ones."""
    are_slow_wanted = is_all(config) or SLOW in (
        config.getoption("markexpr", None) or ""
    )
    others = ONLY - ONLY_OF_STORE[store]
    is_other_run = config.getoption(OTHER_STORES)
    everything = bool(config.getoption(ALL))
    return [
        item
        for item in items
        if any(map(item.get_closest_marker, others))
        or (is_other_run and runs_once(item, everything=everything))
        or (item.get_closest_marker(SLOW) is not None and not are_slow_wanted)
    ]


def files_of_each_store() -> list[str]:
    """Return the files with tests that the README's run has with each store."""
    words = re.compile(rf"\b({'|'.join([EACH_STORE, *sorted(ONLY)])})\b")
    return [
        str(path)
        for path in sorted(TESTS.rglob("test_*.py"))
        if not is_left_to_all(path) and not is_left_to_all(path.parent)
        if _place(path).startswith(PLACES_OF_EACH_STORE)
        or words.search(path.read_text(encoding="utf-8"))
    ]
