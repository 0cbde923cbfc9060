"""Fixtures that all tests share, and the rule on skipped tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.stores import REQUIRED, chosen_store, missing_reason

collect_ignore_glob = ["apps/*"]

ONLY_OF_STORE = {
    "sqlite": {"sqlite_only", "newcomers_only"},
    "postgres": {"servers_only", "postgres_only", "newcomers_only"},
    "mariadb": {"servers_only", "mariadb_only"},
}
ONLY = set().union(*ONLY_OF_STORE.values())

skipped: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "servers_only: about transactions of a server")
    config.addinivalue_line("markers", "soak: takes minutes")
    config.addinivalue_line("markers", "sqlite_only: about a database in a file")
    config.addinivalue_line("markers", "postgres_only: about PostgreSQL")
    config.addinivalue_line("markers", "newcomers_only: about what needs no server")
    config.addinivalue_line("markers", "mariadb_only: about MySQL and MariaDB")


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what is about other stores; skip all if the chosen one is missing."""
    others = ONLY - ONLY_OF_STORE[chosen_store()]
    left_out = [item for item in items if any(map(item.get_closest_marker, others))]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    reason = missing_reason(chosen_store())
    if reason:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        skipped.append(f"{report.nodeid}: {report.longreprtext}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get(REQUIRED) and skipped and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ.get(REQUIRED) and skipped:
        terminalreporter.section(f"{REQUIRED} is set, so these count as failed")
        for line in skipped:
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def forget_memory() -> Iterator[None]:
    """Give each test providers of its own: the memory's locks are theirs."""
    from django_shedlock.providers import forget_providers

    forget_providers(setting="SHEDLOCK_PROVIDERS")
    yield
    forget_providers(setting="SHEDLOCK_PROVIDERS")
