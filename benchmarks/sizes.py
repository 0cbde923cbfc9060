"""Many records, many updates of one record, and many names."""

from __future__ import annotations

import statistics
import tracemalloc
from contextlib import suppress
from typing import Any

from benchmarks.tables import interleaved, show

FEW = 1


def measure(records: int, names: int, rounds: int) -> dict[str, Any]:
    """Return and print the effect of many records, updates and names."""
    costs: dict[str, dict[str, float]] = {}
    for count in sorted({FEW, min(10_000, records), records}):
        add_records(count)
        times = interleaved({"hold()": pair}, rounds)["hold()"]
        median = statistics.median(times) * 1000
        first = next(iter(costs.values()), {"ms": median})
        costs[f"{count:,} records"] = {"ms": median, "ratio": median / first["ms"]}
    show("a lock among others", costs)
    updates = {"of all updates": {"HOT in %": heap_only_updates()}}
    show("updates that touch no index", updates)
    memory = {f"{names:,} names": {"kB": memory_of(names)}}
    show("memory that stays", memory)
    return {"records": costs, "updates": updates, "memory": memory}


def add_records(count: int) -> None:
    """Fill the table up to this number of records."""
    from django.db import ProgrammingError, connection

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) "
            "SELECT 'other ' || number, now(), now(), 'nobody' "
            "FROM generate_series(1, %s) AS number ON CONFLICT DO NOTHING",
            [count],
        )
        cursor.execute("VACUUM ANALYZE shedlock")
        with suppress(ProgrammingError):  # only some users may
            # Else the server still writes the new records while the locks are timed.
            cursor.execute("CHECKPOINT")


def pair() -> None:
    """Acquire and release."""
    from django_shedlock import hold

    with hold("one", lock_at_most_for="1m", history=False):
        pass


def heap_only_updates() -> float:
    """Return the share of updates that changed no index, in percent."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_stat_reset_single_table_counters('shedlock'::regclass)"
        )
        for _ in range(1000):
            pair()
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT 100.0 * n_tup_hot_upd / n_tup_upd FROM pg_stat_user_tables "
            "WHERE relname = 'shedlock'"
        )
        [share] = cursor.fetchone()
    return float(share)


def memory_of(names: int) -> float:
    """Return the kB of memory still in use after locks of this many names."""
    from django_shedlock import execute
    from django_shedlock.providers import get_provider
    from django_shedlock.test import locked_in_memory

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
