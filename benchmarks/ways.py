"""One caller: acquire and release, or fail to acquire, in this package's ways."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import Any

from benchmarks import raw, rivals
from benchmarks.tables import Prepared, Ways, compare

ALIASES = {"default": "", "prepared": ", prepared"}
"""With Django's defaults, and with its prepared statements: what the names end with."""
LEASE = "1m"
YEAR = timedelta(days=365)
"""Between two ticks of the schedule, so that none comes during the run."""


def measure(
    settings: dict[str, Any], options: argparse.Namespace
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return and print each way's times, compared with raw prepared statements."""
    from django.db import close_old_connections, connections

    add_records()
    with ExitStack() as stack:
        others = rivals.ways(settings, options, stack)
        tables = {
            "acquire and release": {**raw.pairs(settings), **ours(pairs)},
            "a failed try": {**raw.tries(settings), **ours(tries)},
        }
        for name, (pair, failed) in others.items():
            tables["acquire and release"][name] = pair
            tables["a failed try"][name] = failed
        results = compare(tables, options.rounds, options.in_a_row)
    close_old_connections()
    connections.close_all()
    return results


def add_records() -> None:
    """Add a free record for the raw ways, and a held one."""
    from django_shedlock.fields import DatabaseNow
    from django_shedlock.models import LockRecord

    now = DatabaseNow()
    leases = {"raw": timedelta(0), "held": timedelta(hours=9)}
    LockRecord.objects.bulk_create(
        (
            LockRecord(
                name=name, lock_until=now + lease, locked_at=now, locked_by="nobody"
            )
            for name, lease in leases.items()
        ),
        ignore_conflicts=True,
    )


def ours(ways: Callable[[str], Ways]) -> Ways:
    """Return the ways with Django's defaults, and with its prepared statements."""
    return {
        f"{name}{words}": way
        for alias, words in ALIASES.items()
        for name, way in ways(alias).items()
    }


def pairs(alias: str) -> Ways:
    """Return the ways to acquire and release on one alias."""
    from asgiref.sync import async_to_sync
    from django.db import connections, transaction
    from django.db.models import F

    from django_shedlock import ahold, hold
    from django_shedlock.models import LockRecord

    def by_cursor() -> None:
        with connections[alias].cursor() as cursor:
            cursor.execute(raw.ACQUIRE, (raw.A_MINUTE, "me", "raw"))
            cursor.execute(raw.RELEASE, ("raw", "me"))

    def held(name: str, **options: Any) -> None:
        # Each alias has its own locks: what it remembers of them then stays true.
        with hold(f"{name} {alias}", lock_at_most_for=LEASE, provider=alias, **options):
            pass

    async def asynchronous() -> None:
        name = f"async {alias}"
        async with ahold(name, lock_at_most_for=LEASE, provider=alias, history=False):
            pass

    def scheduled(*, history: bool) -> Prepared:
        name = f"scheduled {history}"
        record = LockRecord.objects.filter(name=f"{name} {alias}")
        way = partial(held, name, history=history, schedule="@yearly")
        # As if the newest run had been that of the tick before.
        earlier = partial(record.update, tick=F("tick") - YEAR, due_at=F("tick"))
        return Prepared(way, before=earlier)

    return {
        "the raw SQL by Django's cursor": by_cursor,
        "hold()": lambda: held("hold", history=False),
        "decorator": decorated(f"decorator {alias}", alias, history=False),
        "hold() with history": lambda: held("history", history=True),
        "decorator with history": decorated(f"recorded {alias}", alias, history=True),
        "keep_alive": lambda: held("kept", history=False, keep_alive=True),
        "inside atomic()": Prepared(
            lambda: held("atomic", history=False),
            around=lambda: transaction.atomic(using=alias),
        ),
        "with a schedule": scheduled(history=False),
        "with a schedule and history": scheduled(history=True),
        "ahold(), from sync code": async_to_sync(asynchronous),
    }


def tries(alias: str) -> Ways:
    """Return the ways to fail on one alias: the holder is asked for, or not."""
    from django_shedlock import LockNotAcquired, execute, hold

    def skip(name: str = "held", **options: Any) -> None:
        execute(list, name, lock_at_most_for=LEASE, provider=alias, **options)

    def ask() -> None:
        with suppress(LockNotAcquired):
            with hold("held", lock_at_most_for=LEASE, provider=alias):
                raise AssertionError("somebody holds it")

    return {
        "execute()": lambda: skip(history=True),
        "execute(), no history": lambda: skip(history=False),
        "decorator": decorated("held", alias, history=True),
        "decorator, no history": decorated("held", alias, history=False),
        "hold(), whose error tells the holder": ask,
        "a skipped tick": lambda: skip(f"skipped {alias}", schedule="@yearly"),
    }


def decorated(name: str, alias: str, *, history: bool) -> Callable[[], None]:
    """Return a decorated job that does nothing."""
    from django_shedlock import scheduler_lock

    @scheduler_lock(name, lock_at_most_for=LEASE, provider=alias, history=history)
    def job() -> None:
        pass

    return job
