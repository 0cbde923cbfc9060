"""The last runs of a lock: a picture with gaps for ticks without a run, and numbers."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

from django.utils.translation import gettext, ngettext, pgettext

from django_shedlock.clocks import aware, local_text
from django_shedlock.console.admin.labels import OUTCOMES, instant, length
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.states import RunOutcome
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import BY_SCHEDULER, ScheduleState, Start, Trigger

SLOTS = 30
"""Bars and gaps that have room in a chart."""
WIDTH = 100 / SLOTS
BAR_WIDTH = 0.75 * WIDTH
LEAST = 2.0
"""The shortest bar, in percent, can still be seen."""
MARGIN = 25
"""A bar that is further from the left edge, in percent, has no date there."""
USUALLY = 0.95
"""The share of runs for which a chart is scaled; those far above it are cut."""
FAR = 3
"""A chart whose longest bar exceeds this many times the others' scale is cut."""
MOST_TICKS = 30
"""The ticks of a gap are counted up to this number."""


@dataclass(frozen=True)
class Mark:
    """
    The bar of a run or, without a ``run``, a gap: ticks that had none.

    Places and lengths are in percent of the chart's, from its left and from its top.
    """

    title: str
    run: Any = None
    outcome: RunOutcome | None = None
    height: float = 100
    top: float = 0
    is_cut: bool = False
    """Whether its run took longer than the chart is high."""
    ticks: str = ""
    left: float = 0
    middle: float = 0


def make_chart(
    newest_first: Sequence[Any],
    usual: timedelta | None = None,
    schedule: Schedule | None = None,
    until: datetime | None = None,
) -> dict[str, Any]:
    """
    Return the chart of these runs, which have ``current_outcome`` and ``elapsed``.

    Ticks of the present ``schedule`` before ``until`` should have had a run by now. The
    height of a bar is the duration of its run, so far if it goes on; ``scale`` is that
    of the chart. A run of unknown duration has a bar of the full height, and so has one
    that is cut, as it took much longer than the others. ``usual_top`` is where the line
    of the ``usual`` duration is. ``dates`` are when the last run began, and the oldest
    one if its bar is near the left edge.
    """
    durations = sorted(filter(None, map(_measured, newest_first[:SLOTS])))
    longest = scale = durations[-1] if durations else ZERO
    if durations:
        most = durations[int(USUALLY * (len(durations) - 1))]
        scale = most if longest > FAR * most else longest
        scale = max(scale, usual or ZERO)
    lefts = (WIDTH * (SLOTS - 1 - index) for index in range(SLOTS))
    found = _marks(newest_first, scale, schedule, until)
    marks = [
        replace(mark, left=left, middle=left + BAR_WIDTH / 2)
        for left, mark in zip(lefts, found, strict=False)
    ][::-1]
    bars = [mark for mark in marks if mark.run]
    is_full = bool(bars) and bars[0].left < MARGIN
    dated = [bars[0], bars[-1]] if is_full else bars[-1:]
    return {
        "marks": marks,
        "longest": length(longest),
        "scale": length(scale),
        "half": length(scale / 2),
        "usual": length(usual),
        "usual_top": None if usual is None or not scale else 100 * (1 - usual / scale),
        "dates": [instant(bar.run.started) for bar in dated],
        "has_bad_end": any(bar.outcome and bar.outcome.is_bad for bar in bars),
        "has_gap": len(bars) < len(marks),
        "has_cut": any(bar.is_cut for bar in bars),
        "bar_width": BAR_WIDTH,
    }


def _marks(
    newest_first: Sequence[Any],
    scale: timedelta,
    schedule: Schedule | None,
    end: datetime | None,
) -> Iterator[Mark]:
    for run in newest_first:
        if schedule is not None and end is not None:
            is_known = run.trigger in set(Trigger)  # to this version
            start = Start(Trigger(run.trigger)) if is_known else BY_SCHEDULER
            began = aware(run.started)
            tick = ScheduleState().decide(start, schedule, ZERO, began).tick
            missed = takewhile(end.__gt__, schedule.ticks_after(tick))
            if ticks := sum(1 for _ in islice(missed, MOST_TICKS)):
                yield _gap(ticks, run)
            end = tick
        yield _bar(run, scale)


def _gap(ticks: int, older: Any) -> Mark:
    is_all = ticks < MOST_TICKS
    text = gettext("%(ticks)s ticks or more without a run after %(date)s")
    if is_all:
        text = ngettext(
            "%(ticks)s tick without a run after %(date)s",
            "%(ticks)s ticks without a run after %(date)s",
            ticks,
        )
    title = text % {"ticks": ticks, "date": local_text(older.started)}
    return Mark(title, ticks=str(ticks) if is_all else f"{ticks}+")


def _measured(run: Any) -> timedelta | None:
    is_running = RunOutcome(run.current_outcome) is RunOutcome.RUNNING
    return run.elapsed if is_running else run.duration  # type: ignore[no-any-return]


def _bar(run: Any, scale: timedelta) -> Mark:
    outcome, duration, share = RunOutcome(run.current_outcome), _measured(run), 1.0
    if duration is None:
        text = pgettext("shedlock", "%(date)s: %(outcome)s")
    elif outcome is RunOutcome.RUNNING:
        text = gettext("%(date)s: %(outcome)s for %(duration)s so far")
    else:
        text = gettext("%(date)s: %(outcome)s after %(duration)s")
    title = text % {
        "date": local_text(run.started),
        "outcome": OUTCOMES[outcome],
        "duration": length(duration),
    }
    if duration is not None:
        share = duration / scale if scale else 0.0
    height = min(max(LEAST, round(share * 100, 1)), 100.0)
    return Mark(title, run, outcome, height, top=100 - height, is_cut=share > 1)


def statistics_of(runs: Sequence[Any]) -> dict[str, Any] | None:
    """
    Return the success rate of the ended runs, and usual durations of the good ones.

    There are no durations if no run has succeeded, and no rate if none has ended. Only
    if all succeeded the rate is 100 %.
    """
    outcomes = [RunOutcome(run.current_outcome) for run in runs]
    ended = len(outcomes) - outcomes.count(RunOutcome.RUNNING)
    if not ended:
        return None
    rate = f"{math.floor(100 * outcomes.count(RunOutcome.SUCCEEDED) / ended)} %"
    durations = sorted(
        run.duration
        for run, outcome in zip(runs, outcomes, strict=True)
        if outcome is RunOutcome.SUCCEEDED and run.duration is not None
    )
    if not durations:
        return {"runs": ended, "rate": rate}
    p95 = durations[math.ceil(0.95 * len(durations)) - 1]  # by the nearest rank
    median = length(statistics.median(durations))
    return {"runs": ended, "rate": rate, "median": median, "p95": length(p95)}
