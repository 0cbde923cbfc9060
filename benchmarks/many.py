"""Many locks of one process: kept alive, and near the ends of their leases."""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from contextlib import ExitStack
from typing import Any

from benchmarks import raw
from benchmarks.tables import Row, show

FEW = 10
PAUSE = 0.1
"""Seconds between two looks."""
NEAR = 0.15
"""How near its end a lease is when its lock is released: a share of the lease."""


class Peak:
    """The largest number of threads and of connections while the body runs."""

    def __init__(self, settings: dict[str, Any]):
        self._settings = settings
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self.threads = self.connections = 0

    def __enter__(self) -> Peak:
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._watcher.join()

    def _watch(self) -> None:
        with raw.connect(self._settings) as connection:
            while not self._is_over.wait(PAUSE):
                found = connection.execute(
                    "SELECT count(*) - 1 FROM pg_stat_activity "
                    "WHERE datname = current_database() "
                    "AND backend_type = 'client backend'"
                )
                self.connections = max(self.connections, *found.fetchone())
                # All but this one.
                self.threads = max(self.threads, threading.active_count() - 1)


def measure(settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Row]:
    """Return and print what many locks need, compared with few."""
    from django.db import connections

    rows: dict[str, Row] = {}
    for count in (FEW, options.kept):
        connections.close_all()
        with Peak(settings) as peak:
            found = keep_alive(count, options.lease)
        rows[f"{count:,} locks kept alive"] = numbers(peak) | found
    for count in (FEW, options.ending):
        connections.close_all()
        with Peak(settings) as peak:
            found = asyncio.run(near_their_ends(count, options.lease / 3))
        rows[f"{count:,} async locks near their ends"] = numbers(peak) | found
    show(f"many locks of one process, with leases of {options.lease:g} s", rows)
    return rows


def numbers(peak: Peak) -> Row:
    """Return what was counted."""
    return {"threads": peak.threads, "connections": peak.connections}


def keep_alive(count: int, lease: float) -> Row:
    """Hold the locks for as long as a lease; return how late the latest beat was."""
    from django_shedlock import hold

    least = lease
    with ExitStack() as stack:
        locks = [
            stack.enter_context(
                hold(
                    f"kept {number}",
                    lock_at_most_for=lease,
                    keep_alive=True,
                    history=False,
                )
            )
            for number in range(count)
        ]
        end = time.monotonic() + lease
        while time.monotonic() < end:
            time.sleep(PAUSE)
            left = min(lock.remaining() for lock in locks)
            least = min(least, left.total_seconds())
        lost = sum(lock.is_lost for lock in locks)
    # A beat is due when a third of the lease is over.
    return {"latest beat, s": max(0.0, 2 / 3 * lease - least), "lost": lost}


async def near_their_ends(count: int, lease: float) -> Row:
    """Hold the locks until shortly before the ends of their leases, all at once."""
    from django_shedlock import ahold

    async def job(number: int) -> bool:
        name = f"ending {number}"
        async with ahold(name, lock_at_most_for=lease, history=False) as lock:
            await asyncio.sleep(lock.remaining().total_seconds() - NEAR * lease)
            return lock.is_lost

    ended = await asyncio.gather(*map(job, range(count)), return_exceptions=True)
    return {"lost": sum(is_lost is not False for is_lost in ended)}
