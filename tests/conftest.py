"""Fixtures that all tests share, and the rules on which tests run where."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import django.core.management.commands.check  # noqa: F401  # so checks find all jobs
import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from tests.support import flushing, profiles, settling, tiers
from tests.support.stores import REQUIRED, chosen_store, is_failure, missing_reason
from tests.support.waiting import wait_for, wait_for_servers

# Else each of hundreds of processes compiles all of the package and the tests anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

profiles.register()

pytest_plugins = ["django_shedlock.testing.fixtures"]
collect_ignore_glob = ["apps/*"]
if os.environ.get("DJANGO_SETTINGS_MODULE") != "tests.core_settings":
    collect_ignore_glob.append("core_alone/*")  # for a project without the console
if os.environ.get("SHEDLOCK_TEST_FORKY"):  # .ci/run has them outside of it
    collect_ignore_glob += ["protocol/*", "contrib/test_cron.py"]

skipped: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser, has_all=bool(os.environ.get(tiers.ALL_VARIABLE)))


def pytest_configure(config: pytest.Config) -> None:
    profiles.choose(config, has_all_tests=config.getoption(tiers.ALL))
    for name, meaning in tiers.MARKS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    config.addinivalue_line("markers", "servers_only: about transactions of a server")
    config.addinivalue_line("markers", "sqlite_only: about a database in a file")
    config.addinivalue_line("markers", "postgres_only: about PostgreSQL")
    config.addinivalue_line("markers", "mariadb_only: about MySQL and MariaDB")
    is_failure("")  # refuses a value that it does not know, before the tests
    flushing.install()
    settling.install()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what the README's run leaves to ``--all``."""
    if tiers.is_all(config) or not tiers.is_left_to_all(collection_path):
        return None
    return True


@pytest.hookimpl(tryfirst=True)  # so that -m knows the marks
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what is about other stores; skip all if the chosen one is missing."""
    for item in items:
        tiers.mark(item)
    left_out = set(tiers.left_out(items, config, chosen_store()))
    config.hook.pytest_deselected(items=list(left_out))
    # What takes longest begins first, beside all others.
    items[:] = sorted(
        (item for item in items if item not in left_out),
        key=lambda item: item.get_closest_marker(tiers.SLOW) is None,
    )
    reason = missing_reason(chosen_store())
    if reason:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Iterator[None]:
    # What its locks still write has to come before its tables are emptied.
    settling.wait_until_settled(with_late_releases=settling.commits(item))
    if nextitem is None:
        # asgiref's thread lives on, and its connection would keep the database.
        asyncio.run(sync_to_async(connections.close_all)())
    yield
    # A late release may have waited for the test's transaction until now. The next test
    # may change the settings by which its thread closes its connection.
    from django_shedlock.execution.keep_alive import late_releases
    from tests.support.threads import is_idle

    wait_for(lambda: is_idle(late_releases))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        # Not the place, whose path may have the name of a store.
        is_place = isinstance(report.longrepr, tuple)
        skipped[report.nodeid] = report.longrepr[2] if is_place else report.longreprtext


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == 0 and required_skips():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := required_skips():
        terminalreporter.section(f"{REQUIRED} is set, so these count as failed")
        for line in lines:
            terminalreporter.write_line(line)


def required_skips() -> list[str]:
    """Return the skipped tests that had to run, and why they did not."""
    return [f"{test}: {why}" for test, why in skipped.items() if is_failure(why)]


@pytest.fixture(autouse=True, scope="session")
def listen_to_ctrl_c() -> None:
    """Let tests of Ctrl-C, and what they start, also get it in a background job."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as the shell has it there
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def patient_connections() -> None:
    """Let no private connection give up a server that answers late."""
    wait_for_servers()


@pytest.fixture(autouse=True)
def prune_nothing_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no run delete old ones, unless a test asks for that."""
    from django_shedlock.history import retention

    monkeypatch.setattr(retention, "PRUNING_SHARE", 0)


@pytest.fixture
def outside_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the package take the databases for those of production."""
    from django.test import utils

    from django_shedlock.sql.connections import private_connections

    with monkeypatch.context() as patch:
        patch.delattr(utils._TestState, "saved_data")
        yield
    # It keeps those to databases of production, and this one is to be dropped.
    private_connections.close_idle()


@pytest.fixture
def child_log(tmp_path: Path) -> Iterator[Path]:
    """Return a file with what this process and its children log."""
    file = tmp_path / "log"
    handler = logging.FileHandler(file)
    logger = logging.getLogger("django_shedlock")
    logger.addHandler(handler)
    yield file
    logger.removeHandler(handler)
    handler.close()


@pytest.fixture(autouse=True)
def forget_memory() -> Iterator[None]:
    """Give each test providers of its own, and no locks in memory."""
    from django_shedlock.execution.keep_alive import late_releases
    from django_shedlock.providers import forget_providers

    forget_providers(setting="SHEDLOCK_PROVIDERS")
    yield
    forget_providers(setting="SHEDLOCK_PROVIDERS")
    for lock in list(late_releases.entries):
        late_releases.remove(lock)
