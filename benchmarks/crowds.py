"""Many callers at once: processes on one lock and on many, and waiters."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import product
from threading import Barrier, Thread
from typing import Any

from benchmarks import raw
from benchmarks.databases import add_records, set_up
from benchmarks.tables import Row, show

BY_HAND = {"by hand": "default", "by hand, prepared": "prepared"}
RAW = "raw psycopg, prepared"
OURS = {"execute()": "default", "execute(), prepared": "prepared"}
"""The ways that Django's connections go, each with its alias."""
WAYS = (*BY_HAND, RAW, *OURS)
LOCKS = (1, 16)
START = 240
"""Seconds for which processes wait for each other."""
TURNS = 5
"""How often each way comes, of which the median counts: a moment may be slow."""


def measure(settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return and print acquisitions a second, and how soon a waiter gets the lock."""
    throughput: dict[str, Row] = {}
    # Half, since the server ends connections a little after they are closed.
    crowds = [count for count in options.processes if count <= room() // 2]
    for locks, processes in product(LOCKS, crowds):
        rates = crowd(settings, processes, locks, options.seconds)
        base, *_ = rates.values()
        for way, rate in rates.items():
            row = {"a second": rate, "ratio": rate / base}
            throughput[title(processes, locks, way)] = row
    show("acquisitions (ratio to those by hand)", throughput)
    counts = sorted({min(waiters, room()) for waiters in options.waiters})
    handover = {f"{count} waiters on one lock": wait(count) for count in counts}
    show("from the release to the next holder (ms)", handover)
    return {"processes": crowds, "acquisitions": throughput, "waiters": handover}


def title(processes: int, locks: int, way: str) -> str:
    """Return the name of a row."""
    return f"{processes} processes on {locks} locks: {way}"


def crowd(
    settings: dict[str, Any], processes: int, locks: int, seconds: float
) -> dict[str, float]:
    """Return each way's acquisitions a second, of all processes together."""
    from django_shedlock import execute

    add_records("crowd ", locks)
    names = [f"crowd {number}" for number in range(1, locks + 1)]
    for name in names:
        execute(list, name, lock_at_most_for="1m", history=False)
    context = multiprocessing.get_context("spawn")
    barrier, counts = context.Barrier(processes), context.Queue()
    started = [
        context.Process(
            target=work,
            args=(settings, names[number % locks], seconds, barrier, counts),
            daemon=True,
        )
        for number in range(processes)
    ]
    for process in started:
        process.start()
    found = [counts.get(timeout=START + len(WAYS) * seconds) for _ in started]
    for process in started:
        process.join(START)
    if any(process.exitcode != 0 for process in started):
        raise RuntimeError(f"{processes} processes: one failed, see above")
    return {
        way: statistics.median(
            sum(turns) * TURNS / seconds
            for turns in zip(*(each[way] for each in found), strict=True)
        )
        for way in WAYS
    }


def work(
    settings: dict[str, Any], name: str, seconds: float, barrier: Any, counts: Any
) -> None:
    """Acquire and release in each way in turn, and report how often in each turn."""
    set_up(settings)
    total: dict[str, list[int]] = {way: [] for way in WAYS}
    try:
        for way in WAYS * TURNS:
            with ExitStack() as stack:
                # The others end their turn before anybody opens a connection again.
                stack.callback(barrier.wait, START)
                acquire = acquirer(settings, name, way, stack)
                acquire()
                barrier.wait(START)
                end = time.monotonic() + seconds / TURNS
                acquired = 0
                while time.monotonic() < end:
                    acquired += acquire()
                total[way].append(acquired)
    except BaseException:
        barrier.abort()
        raise
    finally:
        counts.put(total)


def acquirer(
    settings: dict[str, Any], name: str, way: str, stack: ExitStack
) -> Callable[[], bool]:
    """
    Return a function that acquires and releases, and returns whether it could.

    The stack closes its connection.
    """
    import os

    from django.db import connections

    from benchmarks.by_hand import HandWritten
    from django_shedlock import execute

    me = str(os.getpid())

    def pair() -> bool:
        result = execute(
            list, name, lock_at_most_for="1m", history=False, provider=OURS[way]
        )
        return result.was_executed

    stack.callback(connections.close_all)
    if way in OURS:
        return pair
    if way in BY_HAND:
        return partial(HandWritten(BY_HAND[way], me).pair, name)
    connection = stack.enter_context(raw.connect(settings))
    return partial(raw.pair, connection, name, prepare=True, me=me)


def room() -> int:
    """Return for how many callers the server has connections."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('max_connections')::int - 20 - count(*) "
            "FROM pg_stat_activity"
        )
        [most] = cursor.fetchone()
    return int(most)


def wait(waiters: int) -> dict[str, float]:
    """Return how long a released lock is free before a waiter has it."""
    from django.db import connections

    from django_shedlock import LockNotAcquired, hold

    everybody = Barrier(waiters + 1)
    acquired: list[float] = []

    def wait_for_it() -> None:
        everybody.wait(START)
        with suppress(LockNotAcquired):
            with hold("awaited", lock_at_most_for="10m", wait="5m", history=False):
                acquired.append(time.perf_counter())
        connections.close_all()

    threads = [Thread(target=wait_for_it, daemon=True) for _ in range(waiters)]
    with hold("awaited", lock_at_most_for="10m", history=False):
        for thread in threads:
            thread.start()
        everybody.wait(START)
        time.sleep(2)
    released = time.perf_counter()
    for thread in threads:
        thread.join()
    first, last = min(acquired), max(acquired)
    return {
        "first": (first - released) * 1000,
        "each": (last - released) * 1000 / len(acquired),
        "got it": len(acquired),
    }
