"""Transactions that keep one snapshot, and processes that race for new names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import product
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest
from django.db import connection, transaction

from django_shedlock.locks.configuration import make_request
from django_shedlock.locks.lock import Lock
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.testing.contract.harness import try_from
from tests.models import Counter
from tests.support.history import Acquisition, recorded, violations
from tests.support.processes import Parent, race

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]

RACERS = 6
RACES = 30
LEVELS = {"repeatable read": 3, "serializable": 4}
"""With psycopg's numbers."""


def options_of(level: str, *, is_servers: bool) -> dict[str, Any]:
    """Return a connection's options, with the level as the server's default or not."""
    if connection.vendor == "postgresql":
        default = (
            f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"
        )
        return (
            {"options": default} if is_servers else {"isolation_level": LEVELS[level]}
        )
    if is_servers:
        command = f"SET SESSION TRANSACTION ISOLATION LEVEL {level}"
        return {"isolation_level": None, "init_command": command}
    return {"isolation_level": level}


@contextmanager
def by_hand() -> Iterator[None]:
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


CALLERS: list[Callable[[], AbstractContextManager[Any]]] = [
    nullcontext,
    transaction.atomic,
    by_hand,
]
SCHEDULES: list[dict[str, str]] = [{}, {"schedule": "@daily"}]


def win(parent: Parent, barrier: Barrier, options: dict[str, Any]) -> list[Acquisition]:
    """Return what this process won, of the locks that all processes wanted."""
    connection.close()
    connection.settings_dict["OPTIONS"].update(options)
    provider = DatabaseLockProvider("default")
    won: list[Acquisition] = []
    with ExitStack() as held:
        for turn, caller, schedule in product(range(RACES), CALLERS, SCHEDULES):
            name = f"{turn} {caller.__name__} {schedule}"
            request = make_request(name, {"lock_at_most_for": "5m", **schedule})
            with caller():
                Counter.objects.count()  # from now on it has its snapshot
                barrier.wait()
                asked = time.monotonic()
                lock = try_from(provider, request.configuration())
            if isinstance(lock, Lock):
                held.enter_context(recorded(won, lock, asked))
    return won


@pytest.mark.parametrize("is_servers", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_new_name_has_one_winner_and_no_error(level: str, is_servers: bool) -> None:
    """An INSERT that comes second is tried again on a fresh snapshot."""
    options = options_of(level, is_servers=is_servers)
    won = [each for of_one in race(RACERS, win, options) for each in of_one]
    assert len(won) == RACES * len(CALLERS) * len(SCHEDULES)
    assert [*violations(won)] == []
