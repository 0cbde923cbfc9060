"""One caller: acquire and release, or be refused, by hand and with this package."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import Any

from benchmarks import raw, rivals
from benchmarks.databases import add_records
from benchmarks.tables import WARM_UP, Prepared, Row, Ways, compare

ALIASES = {"default": "", "prepared": ", prepared"}
"""With Django's defaults, and with its prepared statements: how the tables differ."""
PAIR = "acquire and release"
WITH_HISTORY = "acquire and release with history"
REFUSAL = "a first refusal"
OTHERS = ", other libraries"
"""Tables of their own: some start threads, which slow down what comes next."""
COMPARED = {
    PAIR: ("by hand, two querysets", "hold()"),
    REFUSAL: ("by hand, one queryset", "execute()"),
}
"""What other libraries are measured beside."""
LEASE = "1m"
YEAR = timedelta(days=365)
"""Between two ticks of the schedule, so that none comes during the run."""


def measure(
    settings: dict[str, Any], options: argparse.Namespace
) -> dict[str, dict[str, Row]]:
    """Return and print each way's times, compared with what people write by hand."""
    from django.db import close_old_connections, connections

    add_records("free ", 1)
    add_records("held ", 1, timedelta(hours=9))
    names = (f"refused {number}" for number in count(1))
    tables: dict[str, Ways] = {}
    with ExitStack() as stack:
        for alias, words in ALIASES.items():
            tables[PAIR + words] = pairs(alias, settings)
            tables[WITH_HISTORY + words] = pairs_with_history(alias)
            tables[REFUSAL + words] = refusals(alias, settings, names.__next__)
        others = rivals.ways(settings, options, stack)
        for position, title in enumerate((PAIR, REFUSAL)):
            ours = {way: tables[title][way] for way in COMPARED[title]}
            theirs = {way: both[position] for way, both in others.items()}
            tables[title + OTHERS] = ours | theirs
        refused = sum(len(table) for title, table in tables.items() if REFUSAL in title)
        tries = options.rounds * options.in_a_row + WARM_UP
        add_records("refused ", refused * tries, timedelta(hours=9))
        results = compare(tables, options.rounds, options.in_a_row)
    close_old_connections()
    connections.close_all()
    return results


def pairs(alias: str, settings: dict[str, Any]) -> Ways:
    """Return the ways to acquire and release on one alias."""
    from asgiref.sync import async_to_sync
    from django.db import transaction
    from django.db.models import F

    from benchmarks.by_hand import HandWritten
    from django_shedlock import ahold
    from django_shedlock.models import LockRecord

    hand = HandWritten(alias)
    options: Any = {"lock_at_most_for": LEASE, "provider": alias, "history": False}
    yearly = f"scheduled {alias}"
    record = LockRecord.objects.filter(name=yearly)

    async def asynchronous() -> None:
        async with ahold(f"async {alias}", **options):
            pass

    return {
        "by hand, two querysets": lambda: hand.pair("free 1"),
        **raw.pairs(settings, "free 1", prepare=alias == "prepared"),
        "hold()": lambda: held(f"hold {alias}", **options),
        "inside atomic()": Prepared(
            lambda: held(f"atomic {alias}", **options),
            around=lambda: transaction.atomic(using=alias),
        ),
        "with a schedule": Prepared(
            lambda: held(yearly, schedule="@yearly", **options),
            # As if the newest run had been that of the tick before.
            before=lambda: record.update(tick=F("tick") - YEAR, due_at=F("tick")),
        ),
        "ahold(), from sync code": async_to_sync(asynchronous),
    }


def pairs_with_history(alias: str) -> Ways:
    """Return the ways that also write the run."""
    from benchmarks.by_hand import HandWritten

    hand = HandWritten(alias)
    options: Any = {"lock_at_most_for": LEASE, "provider": alias, "history": True}
    return {
        "by hand, four querysets": lambda: hand.pair_with_history("free 1"),
        "hold() with history": lambda: held(f"history {alias}", **options),
    }


def held(name: str, **options: Any) -> None:
    """Acquire and release."""
    from django_shedlock import hold

    with hold(name, **options):
        pass


def refusals(alias: str, settings: dict[str, Any], new_name: Callable[[], str]) -> Ways:
    """
    Return the ways to be refused on one alias.

    Each time it is another lock, which somebody holds: a job that runs once a minute
    finds nothing in the memory of its process.
    """
    from benchmarks.by_hand import HandWritten
    from django_shedlock import LockNotAcquired, execute, hold

    hand = HandWritten(alias)
    connection = raw.connect(settings)
    options: Any = {"lock_at_most_for": LEASE, "provider": alias}

    def skip() -> None:
        execute(list, new_name(), **options)

    def ask() -> None:
        with suppress(LockNotAcquired), hold(new_name(), **options):
            raise AssertionError("somebody holds it")

    yearly = f"skipped {alias}"
    return {
        "by hand, one queryset": lambda: hand.pair(new_name()),
        "raw psycopg": lambda: raw.pair(
            connection, new_name(), prepare=alias == "prepared"
        ),
        "execute()": skip,
        "execute(), not logged": Prepared(skip, around=unlogged),
        "hold(), whose error names the holder": ask,
        "a skipped tick": lambda: execute(list, yearly, schedule="@yearly", **options),
    }


@contextmanager
def unlogged() -> Iterator[None]:
    """Log nothing of this package, as Django does until a project configures it."""
    logger = logging.getLogger("django_shedlock")
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False
