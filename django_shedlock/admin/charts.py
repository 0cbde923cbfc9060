"""The last runs of a lock, as rows and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils.translation import gettext

from django_shedlock.admin.labels import (
    OUTCOMES,
    admin_provider,
    holder,
    instant,
    length,
    outcome_badge,
)
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRun

HEIGHT = 100
SLOT = 20
GAP = 4
LEAST = 3
"""The shortest bar can still be seen, and hit with a mouse."""
RUNS = 30
"""Number of runs on a lock's page."""


@dataclass(frozen=True)
class Bar:
    """The bar of a run, in the chart's own units, and its tooltip."""

    outcome: RunOutcome
    x: int
    y: float
    height: float
    title: str
    width: int = SLOT - GAP

    @property
    def middle(self) -> float:
        """Where the bar's mark stands."""
        return self.x + self.width / 2


@dataclass(frozen=True)
class RunsChart:
    """
    Bars of runs, the oldest first; the height of a bar is the duration of its run.

    A run without a duration has a bar of the full height, drawn as an outline.
    """

    bars: Sequence[Bar]
    longest: str
    height: int = HEIGHT

    @property
    def width(self) -> int:
        """The chart's width in its own units."""
        return max(len(self.bars), 10) * SLOT


def make_chart(newest_first: Sequence[Any]) -> RunsChart:
    """Return the chart of these runs, which have a ``current_outcome``."""
    runs = list(reversed(newest_first))
    longest = max((run.duration for run in runs if run.duration), default=ZERO)
    bars = [_bar(run, index * SLOT, longest) for index, run in enumerate(runs)]
    return RunsChart(bars, length(longest))


def _bar(run: Any, left: int, longest: timedelta) -> Bar:
    outcome = RunOutcome(run.current_outcome)
    title, share = str(OUTCOMES[outcome]), 1.0
    if run.duration is not None:
        details = {"outcome": title, "duration": length(run.duration)}
        title = gettext("%(outcome)s after %(duration)s") % details
        share = run.duration / longest if longest else 0.0
    height = max(LEAST, round(share * HEIGHT, 1))
    return Bar(outcome, left + GAP // 2, HEIGHT - height, height, title)


def last_runs(name: str) -> dict[str, Any]:
    """Return the rows and the chart of the lock's last runs, for the template."""
    provider = admin_provider()
    runs = LockRun.objects.using(provider.using).of_lock(name, provider.alias)
    newest_first: list[Any] = list(runs.with_outcome().order_by("-pk")[:RUNS])
    return {
        "shedlock_runs": [_row(run) for run in newest_first],
        "shedlock_chart": make_chart(newest_first),
    }


def _row(run: Any) -> dict[str, Any]:
    return {
        "run": run,
        "outcome": outcome_badge(RunOutcome(run.current_outcome)),
        "started": instant(run.started),
        "duration": length(run.duration),
        "worker": holder(run.locked_by, run.host, run.pid),
    }
