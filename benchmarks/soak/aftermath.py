"""What the stores show of a soak, when it is over."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import Error, connections

from benchmarks.soak.journal import read
from benchmarks.soak.verdict import Verdict
from benchmarks.soak.worker import LEASES, NAMES, SETS, TICKS
from django_shedlock import LockConfiguration, LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockQuery
from django_shedlock.testing.contract.harness import try_from
from tests.models import ElementSet, FencedWrite
from tests.support.element_sets import Guard, lost_elements
from tests.support.history import stale_writes
from tests.support.waiting import STARTUP_PATIENCE, wait_for

LONGEST_LEASE = timedelta(seconds=max(LEASES))
SLACK = 15
"""Seconds for which the machine may be busy, and the clocks of two members apart."""


def look(verdict: Verdict, journal: Path) -> None:
    """Complain of stale writes, lost elements, and locks that never end."""
    wait_for(is_answering, STARTUP_PATIENCE)
    columns = ("name", "token", "token_of_lock")
    writes = FencedWrite.objects.order_by("pk").values_list(*columns)
    verdict.complain(stale_writes(writes.iterator()))
    look_at_sets(verdict, journal)
    verdict.complain(too_long_held())


def look_at_sets(verdict: Verdict, journal: Path) -> None:
    """Complain of what a guarded set has lost; count it of the one without a guard."""
    added: dict[str, list[int]] = defaultdict(list)
    for event in read(journal):
        if event["what"] == "added":
            added[event["name"]].append(event["token"])
    unguarded = SETS[Guard.NONE]
    for name in {*added} - {unguarded}:
        verdict.complain(lost_elements(name, added[name]))
    if added[unguarded]:
        lost = sum(
            "lost" in each for each in lost_elements(unguarded, added[unguarded])
        )
        verdict.counts["elements lost without a guard"] = lost


def too_long_held() -> Iterator[str]:
    """Return which locks nobody can acquire when their leases must be over."""
    names = {*NAMES, *TICKS, *SETS.values()}
    known = {status.name for status in get_provider().statuses(LockQuery(names=names))}
    deadline = time.monotonic() + LONGEST_LEASE.total_seconds() + SLACK
    return (f"{n} is held beyond its lease" for n in known if not is_free(n, deadline))


def is_free(name: str, deadline: float) -> bool:
    """Return whether the lock can be acquired before the deadline."""
    while True:
        is_over = time.monotonic() > deadline
        configuration = LockConfiguration(name, LONGEST_LEASE)
        if isinstance(try_from(get_provider(), configuration), Lock):
            return True
        if is_over:
            return False
        time.sleep(0.02)


CLOCKS = {
    "postgresql": "CLOCK_TIMESTAMP()",
    "mysql": "UTC_TIMESTAMP(6)",
}


def held_by(identity: str) -> list[dict[str, Any]]:
    """
    Return the locks that are held by a process, by no statement under test.

    ``age`` and ``left`` are seconds by the server's clock: since the acquisition, and
    until the end of the lease.
    """
    wait_for(is_answering)
    connection = connections["default"]
    if connection.vendor not in CLOCKS:
        query = LockQuery(names={*NAMES, *TICKS, *SETS.values()})
        return [
            {
                "name": status.name,
                "id": status.locked_by,
                "age": None,
                "left": status.remaining.total_seconds(),
            }
            for status in get_provider().statuses(query)
            if status.locked_by.startswith(identity)
            and status.state is LockState.RUNNING
        ]
    clock = CLOCKS[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT name, locked_by, locked_at, lock_until, {clock} "
            f"FROM {LockRecord._meta.db_table} WHERE lock_until > {clock} "
            "AND (released_at IS NULL OR released_at < locked_at) "
            "AND locked_by LIKE %s",
            [f"{identity}%"],
        )
        return [
            {
                "name": name,
                "id": id,
                "age": (now - locked_at).total_seconds(),
                "left": (lock_until - now).total_seconds(),
            }
            for name, id, locked_at, lock_until, now in cursor.fetchall()
        ]


def is_answering() -> bool:
    """Return whether the servers are there again."""
    with suppress(Error, LockProviderError):
        get_provider().now()
        return ElementSet.objects.count() >= 0
    connections["default"].close()
    return False
