"""Measure several ways, and print the numbers as tables."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

Way = Callable[[], Any]
Ways = dict[str, Way]


@dataclass(frozen=True)
class Prepared:
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
    if isinstance(way, Prepared):
        return way()
    began = time.perf_counter()
    way()
    return time.perf_counter() - began


def compare(
    tables: dict[str, Ways], rounds: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Return and print the times of each table's ways, compared with its first."""
    results = {}
    for title, ways in tables.items():
        times = interleaved(ways, rounds)
        base = statistics.median(next(iter(times.values())))
        rows = {name: summary(each, base) for name, each in times.items()}
        show(f"{title} (ms, ratio to the first)", rows)
        results[title] = rows
    return results


def interleaved(ways: Ways, rounds: int) -> dict[str, list[float]]:
    """
    Return the seconds of each way, measured in turn, round by round.

    Each round has a different order, since a way that follows raw statements finds
    no Django code in the processor's caches.
    """
    chance = random.Random(1)  # noqa: S311
    for way in ways.values():
        way()
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in chance.sample(list(ways), len(ways)):
            times[name].append(seconds(ways[name]))
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


def show(title: str, rows: dict[str, dict[str, float]]) -> None:
    """Print a table with a line for each row."""
    columns = list(next(iter(rows.values())))
    width = max(map(len, rows))
    print(f"\n{title}\n{'':{width}} " + " ".join(f"{name:>9}" for name in columns))
    for name, values in rows.items():
        numbers = " ".join(f"{values[column]:9.2f}" for column in columns)
        print(f"{name:{width}} {numbers}")
