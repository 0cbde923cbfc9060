"""What the numbers should be: the most, or the least, that is good enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from benchmarks import crowds, sizes
from benchmarks.tables import Row, show

PAIR, TRY, REDIS = "acquire and release", "a failed try", "a pair in Redis"
WAYS = {
    "a failed try, execute()": (TRY, "execute()", 3.8, 2.4),
    "a failed try, decorator": (TRY, "decorator", 3.8, 2.4),
    "a pair, no history": (PAIR, "hold()", 1.2, 1.0),
    "a pair with history": (PAIR, "hold() with history", 1.8, 1.35),
    "a pair with schedule and history": (PAIR, "with a schedule and history", 2.4, 2.0),
    "inside atomic(), no history": (PAIR, "inside atomic()", 1.4, 1.2),
}
"""Each with its table and way, and the highest ratio to raw prepared statements."""
IN_REDIS = {
    "Redis, a pair by the provider": (REDIS, "the provider alone", 1.1),
    "Redis, a pair by hold()": (REDIS, "hold()", 1.3),
    "Redis, a failed try by the provider": (TRY, "the provider alone", 0.9),
    "Redis, a failed try by execute()": (TRY, "execute()", 1.1),
}
"""Each with the highest ratio to redis-py's lock."""


def report(results: dict[str, Any]) -> dict[str, Row]:
    """Return and print each goal beside what was measured."""
    rows = dict(goals(results))
    if rows:
        show("goals (with Django's defaults, and with its prepared statements)", rows)
    return rows


def goals(results: dict[str, Any]) -> Iterator[tuple[str, Row]]:
    """Yield those of the sections that were measured."""
    if "ways" in results:
        for title, (table, way, most, most_prepared) in WAYS.items():
            rows = results["ways"][table]
            prepared = rows[f"{way}, prepared"]["ratio"]
            yield title, row(rows[way]["ratio"], most, prepared, most_prepared)
    with suppress(KeyError):  # not with these numbers of processes
        rows = results["crowds"]["acquisitions"]
        ways = (rows[crowds.title(16, 16, way)] for way in crowds.OURS)
        ours, prepared = (way["ratio"] for way in ways)
        yield "16 processes on 16 locks, at least", row(ours, 0.7, prepared, 0.85)
    if "sizes" in results:
        title, last = list(results["sizes"]["records"].items())[-1]
        ours, prepared = (last[f"{way} ratio"] for way in (sizes.OURS, sizes.PREPARED))
        yield f"{title} against 1", row(ours, 1.1, prepared, 1.1)
        for table, share in results["sizes"]["updates"].items():
            yield f"HOT updates of {table}, at least, %", row(share["HOT in %"], 100.0)
    if "redis" in results:
        for title, (table, way, most) in IN_REDIS.items():
            yield title, row(results["redis"][table][way]["ratio"], most)


def row(found: float, goal: float, *prepared: float) -> Row:
    """Return what was measured, and the goal; the same with prepared statements."""
    columns = ("found", "goal", "prepared", "its goal")
    return dict(zip(columns, (found, goal, *prepared), strict=False))
