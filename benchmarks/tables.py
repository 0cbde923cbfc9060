"""Measure several ways, and print the numbers as tables."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

WARM_UP = 2
"""How often each way runs before it is measured."""
LEFT_OUT = "left out"
"""The key of the reason why a row has no numbers."""


class Timed:
    """A way that itself returns how many seconds it took."""

    def __call__(self) -> float:
        raise NotImplementedError


@dataclass(frozen=True)
class LeftOut:
    """Why a way is not measured on this machine."""

    reason: str


Way = Callable[[], Any]
Ways = dict[str, Way | LeftOut]
Row = dict[str, Any]


@dataclass(frozen=True)
class Prepared(Timed):
    """A way with a preparation that is not measured."""

    way: Way
    before: Way = lambda: None
    around: Callable[[], AbstractContextManager[Any]] = nullcontext

    def __call__(self) -> float:
        """Return the seconds of the way alone, without its preparation."""
        self.before()
        with self.around():
            return seconds(self.way)


def seconds(way: Way) -> float:
    """Return how many seconds the way takes."""
    if isinstance(way, Timed):
        return way()
    began = time.perf_counter()
    way()
    return time.perf_counter() - began


def compare(
    tables: dict[str, Ways], rounds: int, in_a_row: int = 1
) -> dict[str, dict[str, Row]]:
    """Return and print the times of each table's ways, compared with its first."""
    results = {}
    for title, ways in tables.items():
        times = interleaved(ways, rounds, in_a_row)
        base = statistics.median(next(iter(times.values())))
        rows = {
            name: {LEFT_OUT: way.reason}
            if isinstance(way, LeftOut)
            else summary(times[name], base)
            for name, way in ways.items()
        }
        show(f"{title} (ms, ratio to the first)", rows)
        results[title] = rows
    return results


def interleaved(ways: Ways, rounds: int, in_a_row: int) -> dict[str, list[float]]:
    """
    Return the seconds of each way, measured in turn, round by round.

    Each round has a different order, and each way comes some times ``in_a_row``: a way
    that follows another one does not find its code in the processor's caches.
    """
    chance = random.Random(1)  # noqa: S311
    measured = {name: way for name, way in ways.items() if not isinstance(way, LeftOut)}
    for way in [*measured.values()] * WARM_UP:
        way()
    times: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(rounds):
        for name in chance.sample(list(measured), len(measured)):
            times[name] += (seconds(measured[name]) for _ in range(in_a_row))
    return times


def summary(times: Sequence[float], base: float) -> dict[str, float]:
    """Return median and percentiles in milliseconds, and the ratio of the median."""
    *_, highest = cuts = statistics.quantiles(times, n=100, method="inclusive")
    median = statistics.median(times)
    return {
        "median": median * 1000,
        "p90": cuts[89] * 1000,
        "p99": highest * 1000,
        "ratio": median / base,
    }


def show(title: str, rows: dict[str, Row]) -> None:
    """Print a table with a line for each row."""
    columns = [*dict.fromkeys(key for row in rows.values() for key in row)]
    widths = {key: max(9, len(key)) for key in columns if key != LEFT_OUT}
    width = max(map(len, rows))
    heads = " ".join(f"{key:>{wide}}" for key, wide in widths.items())
    print(f"\n{title}\n{'':{width}} {heads}")
    for name, row in rows.items():
        cells = (f"{cell(row.get(key)):>{wide}}" for key, wide in widths.items())
        reason = row.get(LEFT_OUT)
        line = " ".join(cells) if reason is None else f" {reason}"
        print(f"{name:{width}} {line}".rstrip())


def cell(value: float | str | None) -> str:
    """Return a number or a word as it is printed."""
    if isinstance(value, float):
        return f"{value:.2f}"
    return "" if value is None else str(value)
