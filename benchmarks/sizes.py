"""Many records, many updates of one record, and many names."""

from __future__ import annotations

import argparse
import statistics
import tracemalloc
from itertools import takewhile
from typing import Any

from benchmarks import raw
from benchmarks.databases import add_records
from benchmarks.tables import Row, Ways, interleaved, show

UPDATES = 1000
RAW, OURS, HISTORY, PREPARED = "raw", "hold()", "with history", "prepared"


def measure(settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return and print the effect of many records, updates and names."""
    costs = among(settings, options)
    show("a pair among other records (median in ms, ratio to the first row)", costs)
    updates = {"shedlock": {"HOT in %": heap_only_updates()}}
    show("updates that touch no index", updates)
    memory = {f"{options.names:,} names": {"kB": memory_of(options.names)}}
    show("memory that stays", memory)
    return {"records": costs, "updates": updates, "memory": memory}


def among(settings: dict[str, Any], options: argparse.Namespace) -> dict[str, Row]:
    """Return the medians among 1, 10, 100 and so on records."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE shedlock, hand_written_lock")
    add_records("free ", 1)
    measured = ways(settings)
    powers = (10**power for power in range(9))
    fewer = takewhile(lambda count: count < options.records, powers)
    costs: dict[str, Row] = {}
    for count in (*fewer, options.records):
        add_records("other ", count)
        times = interleaved(measured, options.rounds, options.in_a_row)
        row: Row = {way: statistics.median(each) * 1000 for way, each in times.items()}
        first = next(iter(costs.values()), row)
        # Of the raw statements, too: theirs tells what the machine did meanwhile.
        ratios = {
            f"{way} ratio": row[way] / first[way] for way in (RAW, OURS, PREPARED)
        }
        costs[f"{count:,} records"] = row | ratios
    return costs


def ways(settings: dict[str, Any]) -> Ways:
    """Return what is measured among the records."""
    connection = raw.connect(settings)
    return {
        RAW: lambda: raw.pair(connection, "free 1", prepare=True),
        OURS: lambda: pair("default", history=False),
        PREPARED: lambda: pair("prepared", history=False),
        HISTORY: lambda: pair("default", history=True),
    }


def pair(alias: str, *, history: bool) -> None:
    """Acquire and release."""
    from django_shedlock import hold

    with hold("one", lock_at_most_for="1m", provider=alias, history=history):
        pass


def heap_only_updates() -> float:
    """Return the share of updates of records that changed no index, in percent."""
    before = counted_updates()
    for _ in range(UPDATES):
        pair("default", history=True)
    heap_only, all = (
        after - earlier
        for after, earlier in zip(counted_updates(), before, strict=True)
    )
    return 100.0 * heap_only / all


def counted_updates() -> tuple[int, int]:
    """Return how many updates of records changed no index, and how many there were."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables "
            "WHERE relname = 'shedlock'"
        )
        [heap_only, all] = cursor.fetchone()
    return heap_only, all


def memory_of(names: int) -> float:
    """Return the kB of memory still in use after locks of this many names."""
    from django_shedlock import execute
    from django_shedlock.providers import get_provider
    from django_shedlock.testing import locked_in_memory

    execute(list, "first", lock_at_most_for="1m")
    with locked_in_memory():
        provider: Any = get_provider()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(names):
            execute(list, f"name {number}", lock_at_most_for="1m")
            provider._entries.clear()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return (after - before) / 1024
