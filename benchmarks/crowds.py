"""Many callers at once: processes on one lock and on many, and waiters."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import product
from threading import Barrier, Thread
from typing import Any

from benchmarks import raw
from benchmarks.tables import Row, show

RAW = "raw psycopg, prepared"
DJANGO = {"Django's cursor": "default", "Django's cursor, prepared": "prepared"}
OURS = {"execute()": "default", "execute(), prepared": "prepared"}
"""The ways that Django's connections go, each with its alias."""
WAYS = (RAW, *DJANGO, *OURS)
LOCKS = (1, 16)
START = 240
"""Seconds for which processes wait for each other."""
TURNS = 3
"""How often each way comes, so that a slow moment slows none of them alone."""


def measure(settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return and print acquisitions a second, and how soon a waiter gets the lock."""
    throughput: dict[str, Row] = {}
    # Half, since the server ends connections a little after they are closed.
    crowds = [count for count in options.processes if count <= room() // 2]
    for locks, processes in product(LOCKS, crowds):
        rates = crowd(settings, processes, locks, options.seconds)
        for way, rate in rates.items():
            row = {"a second": rate, "ratio": rate / rates[RAW]}
            throughput[title(processes, locks, way)] = row
    show("acquisitions", throughput)
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

    for number in range(locks):
        execute(list, f"crowd {number}", lock_at_most_for="1m", history=False)
    context = multiprocessing.get_context("spawn")
    barrier, counts = context.Barrier(processes), context.Queue()
    started = [
        context.Process(
            target=work,
            args=(settings, f"crowd {number % locks}", seconds, barrier, counts),
        )
        for number in range(processes)
    ]
    for process in started:
        process.start()
    total: Counter[str] = Counter()
    for _ in started:
        total.update(counts.get(timeout=START + len(WAYS) * seconds))
    for process in started:
        process.join()
    if any(process.exitcode for process in started):
        raise RuntimeError(f"{processes} processes: one failed, see above")
    return {way: total[way] / seconds for way in WAYS}


def work(
    settings: dict[str, Any], name: str, seconds: float, barrier: Any, counts: Any
) -> None:
    """Acquire and release in each way in turn, and report how often each worked."""
    from benchmarks.databases import set_up

    set_up(settings)
    total = dict.fromkeys(WAYS, 0)
    try:
        for way in WAYS * TURNS:
            with ExitStack() as stack:
                # The others end their turn before anybody opens a connection again.
                stack.callback(barrier.wait, START)
                acquire = acquirer(settings, name, way, stack)
                acquire()
                barrier.wait(START)
                end = time.monotonic() + seconds / TURNS
                while time.monotonic() < end:
                    total[way] += acquire()
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

    from django_shedlock import execute

    def pair() -> bool:
        result = execute(
            list, name, lock_at_most_for="1m", history=False, provider=OURS[way]
        )
        return result.was_executed

    stack.callback(connections.close_all)
    if way in OURS:
        return pair
    me = str(os.getpid())
    send: Callable[..., Any]
    if way == RAW:
        connection = stack.enter_context(raw.connect(settings))
        send = partial(connection.execute, prepare=True)
    else:
        send = connections[DJANGO[way]].cursor().execute

    def raw_pair() -> bool:
        found = send(raw.ACQUIRE, (raw.A_MINUTE, me, name)).rowcount
        if found:
            send(raw.RELEASE, (name, me))
        return bool(found)

    return raw_pair


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
