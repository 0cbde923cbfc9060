"""What the numbers should be: the most, or the least, that is good enough."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from benchmarks import crowds, redis_locks, sizes, ways
from benchmarks.tables import Row, show

WAYS = {
    "a pair": (ways.PAIR, "hold()", 0.7),
    "a pair with history": (ways.WITH_HISTORY, "hold() with history", 0.55),
    "a first refusal": (ways.REFUSAL, "execute()", 1.1),
    "a pair inside atomic()": (ways.PAIR, "inside atomic()", 0.85),
}
"""Each with its table and way, and the highest ratio to the same by hand."""
CROWD = 1.5
"""The lowest ratio of 16 processes on 16 locks to the same by hand."""
REDIS = 1.05
"""The highest ratio of a pair by the provider to one by redis-py's lock."""
GROWTH = 1.1
"""The highest ratio of a pair among most records to one among few."""


def report(results: dict[str, Any]) -> dict[str, Row]:
    """Return and print each goal beside what was measured."""
    rows = dict(goals(results))
    if rows:
        show("goals (with Django's prepared statements: for comparison only)", rows)
    return rows


def goals(results: dict[str, Any]) -> Iterator[tuple[str, Row]]:
    """Yield those of the sections that were measured."""
    if "ways" in results:
        for title, (table, way, most) in WAYS.items():
            found, prepared = (
                results["ways"][table + words][way]["ratio"]
                for words in ways.ALIASES.values()
            )
            yield title, at_most(most, found, prepared)
    with suppress(KeyError):  # not with these numbers of processes
        rows = results["crowds"]["acquisitions"]
        found, prepared = (
            rows[crowds.title(16, 16, ours)]["a second"]
            / rows[crowds.title(16, 16, by_hand)]["a second"]
            for ours, by_hand in zip(crowds.OURS, crowds.BY_HAND, strict=True)
        )
        yield "16 processes on 16 locks", at_least(CROWD, found, prepared)
    if "redis" in results:
        found = results["redis"][redis_locks.PAIR][redis_locks.PROVIDER]["ratio"]
        yield "a pair by the Redis provider", at_most(REDIS, found)
    if "sizes" in results:
        title, last = list(results["sizes"]["records"].items())[-1]
        found, prepared = (last[f"{way} ratio"] for way in (sizes.OURS, sizes.PREPARED))
        yield f"a pair among {title}", at_most(GROWTH, found, prepared)
        found = results["sizes"]["updates"]["shedlock"]["HOT in %"]
        yield "updates that touch no index, %", at_least(100.0, found)


def at_most(goal: float, found: float, prepared: float | None = None) -> Row:
    """Return a goal that is met by this and any lower number."""
    return row(f"<= {goal:g}", found, prepared, is_met=found <= goal)


def at_least(goal: float, found: float, prepared: float | None = None) -> Row:
    """Return a goal that is met by this and any higher number."""
    return row(f">= {goal:g}", found, prepared, is_met=found >= goal)


def row(goal: str, found: float, prepared: float | None, *, is_met: bool) -> Row:
    """Return what is printed of a goal."""
    result = "met" if is_met else "missed"
    return {"found": found, "goal": goal, "result": result, "prepared": prepared}
