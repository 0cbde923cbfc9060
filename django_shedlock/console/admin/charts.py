"""The last runs of a lock: a picture with gaps for ticks without a run, and numbers."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile

from django.utils.translation import gettext, ngettext, pgettext

from django_shedlock.admin import OUTCOME_LABELS, STATE_LABELS
from django_shedlock.clocks import aware, local_text
from django_shedlock.console.admin.labels import ShownText, instant, length
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.status import LockState, LockStatus, RunOutcome
from django_shedlock.models import LockRun
from django_shedlock.schedules.state import BY_SCHEDULER, ScheduleState, Start, Trigger

CHART_SLOT_COUNT = 30
GAP_TICK_LIMIT = 30


@dataclass(frozen=True)
class Bar:
    """
    What a chart draws of a run: a ``row`` of the history, or the one that is open.

    ``kind`` is the outcome or, for an open run, the state of its lock.
    """

    kind: str
    label: ShownText
    began: datetime
    duration: timedelta | None
    trigger: str = ""
    row: LockRun | None = None

    @classmethod
    def of_row(cls, row: LockRun) -> "Bar":
        """Return the bar of a run that is over."""
        label = OUTCOME_LABELS.get(row.outcome, row.outcome)
        began = row.started or row.ended
        return cls(row.outcome, label, began, row.duration, row.trigger, row)

    @classmethod
    def of_open_run(cls, status: LockStatus) -> "Bar | None":
        """Return the bar of the run that has no row yet; ``None`` if there is none."""
        is_running = status.state is LockState.RUNNING
        is_holders = status.job.open_run == status.locked_by
        if not is_running and not (status.state is LockState.EXPIRED and is_holders):
            return None
        duration = status.held_for if is_running else None
        return cls(status.state, STATE_LABELS[status.state], status.locked_at, duration)

    @property
    def is_running(self) -> bool:
        """Whether the run is still going on."""
        return self.kind == LockState.RUNNING

    @property
    def is_bad(self) -> bool:
        """Whether somebody should have a look."""
        return not self.is_running and self.kind != RunOutcome.SUCCEEDED

    @property
    def title(self) -> str:
        """When the run began, how it ended, and how long it took."""
        text = gettext("%(date)s: %(outcome)s after %(duration)s")
        if self.duration is None:
            text = pgettext("shedlock", "%(date)s: %(outcome)s")
        elif self.is_running:
            text = gettext("%(date)s: %(outcome)s for %(duration)s so far")
        date, duration = local_text(self.began), length(self.duration)
        return text % {"date": date, "outcome": self.label, "duration": duration}


@dataclass(frozen=True)
class Mark:
    """
    A ``bar`` in its place or, without one, a gap: ticks that had no run.

    Places and lengths are in percent of the chart's, from its left and from its top.
    """

    title: str
    bar: Bar | None = None
    height: float = 100
    top: float = 0
    is_cut: bool = False
    """Whether its run took longer than the chart is high."""
    ticks: str = ""
    left: float = 0
    middle: float = 0


def make_chart(
    newest_first: Sequence[LockRun], status: LockStatus, grace: timedelta
) -> dict[str, object]:
    """
    Return the chart of these runs of a lock, and of the one that is open.

    Ticks of the present schedule should have had a run ``grace`` after them. The height
    of a bar is the duration of its run, so far if it goes on; ``scale`` is that of the
    chart. A run of unknown duration has a bar of the full height, and so has one that
    is cut, as it took much longer than the others. ``usual_top`` is where the line of
    the ``usual`` duration is. ``dates`` are when the last run began, and the oldest one
    if its bar is near the left edge.
    """
    found = _bars(newest_first, status)[:CHART_SLOT_COUNT]
    usual = status.job.usual_duration
    durations = sorted(bar.duration for bar in found if bar.duration)
    longest = scale = durations[-1] if durations else ZERO
    if durations:
        # The bars of a few runs that took much longer than all others are cut.
        most = durations[int(0.95 * (len(durations) - 1))]
        fitting = (each for each in durations if each <= 3 * most)
        scale = max(*fitting, usual or ZERO)
    slot_width = 100 / CHART_SLOT_COUNT
    bar_width = 0.75 * slot_width
    lefts = (
        slot_width * (CHART_SLOT_COUNT - 1 - index) for index in range(CHART_SLOT_COUNT)
    )
    marks = [
        replace(mark, left=left, middle=left + bar_width / 2)
        for left, mark in zip(lefts, _marks(found, scale, status, grace), strict=False)
    ][::-1]
    placed = [(mark, mark.bar) for mark in marks if mark.bar]
    is_full = bool(placed) and placed[0][0].left < 25
    dated = [placed[0], placed[-1]] if is_full else placed[-1:]
    return {
        "marks": marks,
        "longest": length(longest),
        "scale": length(scale),
        "half": length(scale / 2),
        "usual": length(usual),
        "usual_top": None if usual is None or not scale else 100 * (1 - usual / scale),
        "dates": [instant(bar.began) for _, bar in dated],
        "has_bad_end": any(bar.is_bad for _, bar in placed),
        "has_gap": len(placed) < len(marks),
        "has_cut": any(mark.is_cut for mark, _ in placed),
        "bar_width": bar_width,
    }


def _bars(newest_first: Sequence[LockRun], status: LockStatus) -> list[Bar]:
    bars, newest = [Bar.of_row(row) for row in newest_first], Bar.of_open_run(status)
    # It may have ended after its record was read.
    has_row = any(row.locked_by == status.locked_by for row in newest_first)
    return bars if newest is None or has_row else [newest, *bars]


def _marks(
    newest_first: Iterable[Bar],
    scale: timedelta,
    status: LockStatus,
    grace: timedelta,
) -> Iterator[Mark]:
    schedule, end = status.schedule, aware(status.clock) - grace
    for bar in newest_first:
        if schedule is not None:
            is_known = bar.trigger in set(Trigger)  # to this version
            start = Start(Trigger(bar.trigger)) if is_known else BY_SCHEDULER
            began = aware(bar.began)
            tick = ScheduleState().decide(start, schedule, ZERO, began).tick
            missed = takewhile(end.__gt__, schedule.ticks_after(tick))
            if ticks := sum(1 for _ in islice(missed, GAP_TICK_LIMIT)):
                yield _gap(ticks, bar)
            end = tick
        yield _placed(bar, scale)


def _gap(ticks: int, older: Bar) -> Mark:
    is_all = ticks < GAP_TICK_LIMIT
    text = gettext("%(ticks)s ticks or more without a run after %(date)s")
    if is_all:
        text = ngettext(
            "%(ticks)s tick without a run after %(date)s",
            "%(ticks)s ticks without a run after %(date)s",
            ticks,
        )
    title = text % {"ticks": ticks, "date": local_text(older.began)}
    return Mark(title, ticks=str(ticks) if is_all else f"{ticks}+")


def _placed(bar: Bar, scale: timedelta) -> Mark:
    share = 1.0
    if bar.duration is not None:
        share = bar.duration / scale if scale else 0.0
    # A bar of two percent can still be seen.
    height = min(max(2.0, round(share * 100, 1)), 100.0)
    return Mark(bar.title, bar, height, top=100 - height, is_cut=share > 1)


def statistics_of(runs: Sequence[LockRun]) -> dict[str, object] | None:
    """
    Return the success rate of the runs, and usual durations of the good ones.

    There are no durations if no run has succeeded, and no rate without a run. Only if
    all succeeded the rate is 100 %.
    """
    if not runs:
        return None
    good = [run for run in runs if run.outcome == RunOutcome.SUCCEEDED]
    rate = f"{math.floor(100 * len(good) / len(runs))} %"
    durations = sorted(run.duration for run in good if run.duration is not None)
    if not durations:
        return {"runs": len(runs), "rate": rate}
    p95 = durations[math.ceil(0.95 * len(durations)) - 1]  # by the nearest rank
    median = length(statistics.median(durations))
    return {"runs": len(runs), "rate": rate, "median": median, "p95": length(p95)}
