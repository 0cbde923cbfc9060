"""Many callers at once: processes on one lock and on many, and waiters."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import suppress
from threading import Barrier, Thread
from typing import Any

from benchmarks.tables import show

RAW = "raw psycopg, prepared"
DJANGO = {"Django's cursor": "default", "Django's cursor, prepared": "prepared"}
OURS = {"execute()": "default", "execute(), prepared": "prepared"}
"""The ways that Django's connections go, each with its alias."""
START = 240
"""Seconds for which processes wait for each other."""


def measure(
    settings: dict[str, Any], processes: int, seconds: float, waiters: int
) -> dict[str, Any]:
    """Return and print acquisitions a second, and how soon a waiter gets the lock."""
    throughput: dict[str, dict[str, float]] = {}
    for names in (1, processes):
        for way in (RAW, *DJANGO, *OURS):
            title = f"{processes} processes on {names} locks: {way}"
            rate = crowd(settings, way, processes, names, seconds)
            base = throughput.get(title.replace(way, RAW), {"a second": rate})
            ratio = rate / base["a second"]
            throughput[title] = {"a second": rate, "ratio": ratio}
    show("acquisitions", throughput)
    waiters = min(waiters, room())
    handover = {f"{waiters} waiters on one lock": wait(waiters)}
    show("from the release to the next holder (ms)", handover)
    return {"acquisitions": throughput, "waiters": handover}


def crowd(
    settings: dict[str, Any], way: str, processes: int, names: int, seconds: float
) -> float:
    """Return the acquisitions a second of all processes together."""
    from django_shedlock import execute

    for number in range(names):
        execute(list, f"crowd {number}", lock_at_most_for="1m", history=False)
    context = multiprocessing.get_context("spawn")
    barrier, counts = context.Barrier(processes), context.Queue()
    started = [
        context.Process(
            target=work,
            args=(settings, way, f"crowd {number % names}", seconds, barrier, counts),
        )
        for number in range(processes)
    ]
    for process in started:
        process.start()
    total = sum(counts.get(timeout=START + seconds) for _ in started)
    for process in started:
        process.join()
    return float(total) / seconds


def work(
    settings: dict[str, Any],
    way: str,
    name: str,
    seconds: float,
    barrier: Any,
    counts: Any,
) -> None:
    """Acquire and release for that many seconds, and report how often it worked."""
    from benchmarks.databases import set_up

    set_up(settings)
    if way in OURS:
        acquire = acquirer(name, way)
    else:
        acquire = raw_acquirer(settings, name, DJANGO.get(way))
    acquire()
    barrier.wait(START)
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        count += acquire()
    counts.put(count)


def acquirer(name: str, way: str) -> Any:
    """Return a function that acquires and releases, and returns whether it could."""
    from django_shedlock import execute

    def pair() -> bool:
        result = execute(
            list, name, lock_at_most_for="1m", history=False, provider=OURS[way]
        )
        return result.was_executed

    return pair


def raw_acquirer(settings: dict[str, Any], name: str, alias: str | None) -> Any:
    """Return what does the same with raw statements."""
    import os
    from functools import partial

    from django.db import connections

    from benchmarks.raw import A_MINUTE, ACQUIRE, RELEASE, connect

    me = str(os.getpid())
    if alias is None:
        execute = partial(connect(settings).execute, prepare=True)
    else:
        execute = connections[alias].cursor().execute

    def pair() -> bool:
        found = execute(ACQUIRE, (A_MINUTE, me, name)).rowcount
        if found:
            execute(RELEASE, (name, me))
        return bool(found)

    return pair


def room() -> int:
    """Return for how many callers the server has connections."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SHOW max_connections")
        [most] = cursor.fetchone()
    return int(most) - 20


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
