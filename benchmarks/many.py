"""What one process needs: for locks of several threads, and for many locks at once."""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from benchmarks import raw
from benchmarks.tables import Row, show

THREADS = (1, 4, 16)
FEW = 10
PAUSE = 0.1
"""Seconds between two looks."""
SHORT = 6
"""Seconds of the leases of several threads."""
LONGEST = 60
"""Seconds for which threads wait for each other."""
NEAR = 0.15
"""How near its end a lease is when its lock is released: a share of the lease."""


class Peak:
    """The largest number of threads and of connections while the body runs."""

    def __init__(self, settings: dict[str, Any]):
        self._settings = settings
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self.threads = self.connections = self._looks = 0

    def __enter__(self) -> Peak:
        from django.db import connections

        from django_shedlock.sql.connections import private_connections

        connections.close_all()
        private_connections.close_idle()
        with raw.connect(self._settings) as connection:
            # The server may end them a moment later.
            wait_for(lambda: not self._count(connection))
        self._watcher.start()
        self.look()  # it is connected
        return self

    def look(self) -> None:
        """Wait until all has been counted once more."""
        seen = self._looks
        wait_for(lambda: self._looks >= seen + 2)  # the next one may have begun before

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._watcher.join()

    def _watch(self) -> None:
        with raw.connect(self._settings) as connection:
            while not self._is_over.wait(PAUSE):
                self.connections = max(self.connections, self._count(connection))
                # All but this one.
                self.threads = max(self.threads, threading.active_count() - 1)
                self._looks += 1

    def _count(self, connection: Any) -> int:
        [others] = connection.execute(
            "SELECT count(*) - 1 FROM pg_stat_activity "
            "WHERE datname = current_database() AND backend_type = 'client backend'"
        ).fetchone()
        return int(others)


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when the condition is true; raise TimeoutError if that takes too long."""
    end = time.monotonic() + LONGEST
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"Not after {LONGEST} s.")
        time.sleep(PAUSE)


def measure(settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Row]:
    """Return and print what many locks need, compared with few."""
    rows = in_threads(settings)
    for count in (FEW, options.kept):
        with Peak(settings) as peak:
            found = keep_alive(count, options.lease)
        rows[f"{count:,} locks kept alive"] = numbers(peak) | found
    for count in (FEW, options.ending):
        with Peak(settings) as peak:
            found = asyncio.run(near_their_ends(count, options.lease / 3))
        rows[f"{count:,} async locks near their ends"] = numbers(peak) | found
    show(f"what one process needs, with leases of {options.lease:g} s", rows)
    return rows


def numbers(peak: Peak) -> Row:
    """Return what was counted."""
    return {"threads": peak.threads, "connections": peak.connections}


def in_threads(settings: dict[str, Any]) -> dict[str, Row]:
    """Hold a lock in each of some threads, which use the database anyway."""
    from django.db import connection, connections, transaction

    from django_shedlock import hold

    atomic: Callable[[], AbstractContextManager[Any]] = transaction.atomic
    ways = [("plain", nullcontext, False), ("keep_alive", nullcontext, True)]
    ways += [("in atomic()", atomic, False), ("keep_alive in atomic()", atomic, True)]

    def work(number: int, block: Any, is_kept: bool) -> None:
        # The barrier, so that all have their locks at once.
        with connection.cursor(), block():
            with hold(f"of {number}", lock_at_most_for=SHORT, keep_alive=is_kept):
                everybody.wait(LONGEST)
                if is_kept:
                    time.sleep(SHORT / 2)  # a third of it is over, so it was extended
                peak.look()
                everybody.wait(LONGEST)
        connections.close_all()

    rows: dict[str, Row] = {}
    for way, *how in ways:
        for count in THREADS:
            everybody = threading.Barrier(count)
            threads = [
                threading.Thread(target=work, args=[number, *how])
                for number in range(count)
            ]
            with Peak(settings) as peak:
                for each in threads:
                    each.start()
                for each in threads:
                    each.join()
            rows[f"{way}, {count} threads"] = numbers(peak)
    return rows


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
    from asgiref.sync import sync_to_async
    from django.db import connections

    from django_shedlock import ahold

    async def job(number: int) -> bool:
        name = f"ending {number}"
        async with ahold(name, lock_at_most_for=lease, history=False) as lock:
            await asyncio.sleep(lock.remaining().total_seconds() - NEAR * lease)
            return lock.is_lost

    ended = await asyncio.gather(*map(job, range(count)), return_exceptions=True)
    await sync_to_async(connections.close_all)()
    return {"lost": sum(is_lost is not False for is_lost in ended)}
