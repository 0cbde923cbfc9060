"""The last runs of a lock as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext

from django_shedlock.admin.labels import OUTCOMES, length
from django_shedlock.configuration import ZERO
from django_shedlock.outcomes import RunOutcome

HEIGHT = 100
SLOT = 20
GAP = 4
LEAST = 3
"""A bar of the shortest run can still be seen, and hit with a mouse."""


@dataclass(frozen=True)
class Bar:
    """One run: where its bar stands, in the chart's own units, and what it says."""

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
    Bars for runs, the oldest first, as high as they took long.

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
    bars = []
    for index, run in enumerate(runs):
        share = run.duration / longest if run.duration and longest else 1.0
        share = 0.0 if run.duration == ZERO else share
        height = max(LEAST, round(share * HEIGHT, 1))
        bars.append(
            Bar(
                outcome=RunOutcome(run.current_outcome),
                x=index * SLOT + GAP // 2,
                y=HEIGHT - height,
                height=height,
                title=_title(run),
            )
        )
    return RunsChart(bars, length(longest))


def _title(run: Any) -> str:
    outcome = OUTCOMES[RunOutcome(run.current_outcome)]
    if run.duration is None:
        return str(outcome)
    details = {"outcome": outcome, "duration": length(run.duration)}
    return gettext("%(outcome)s after %(duration)s") % details
