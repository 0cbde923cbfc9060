"""The last runs of a lock: a chart of their durations with gaps, and numbers."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile

from django.utils.translation import gettext, ngettext, pgettext

from django_shedlock.admin import OUTCOME_LABELS, STATE_LABELS
from django_shedlock.clocks import aware, local_text
from django_shedlock.console.admin.addresses import Addresses
from django_shedlock.console.admin.charts import Chart, Line, Mark
from django_shedlock.console.admin.labels import ShownText, instant, length
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.status import LockState, LockStatus, RunOutcome
from django_shedlock.models import LockRun
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import BY_SCHEDULER, ScheduleState, Start, Trigger

CHART_SLOT_COUNT = 30
GAP_TICK_LIMIT = 30
MISSED = "missed"
"""The kind of a mark that stands for ticks without a run."""


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
        if not status.holder_may_run:
            return None
        is_running = status.state is LockState.RUNNING
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
class Gap:
    """Ticks without a run: how many, and the last run before them."""

    ticks: int
    after: datetime

    @property
    def count(self) -> str:
        """The number of its ticks, with a plus if there are more."""
        return f"{self.ticks}+" if self.ticks >= GAP_TICK_LIMIT else str(self.ticks)

    @property
    def title(self) -> str:
        """How many ticks had no run, and after which run."""
        text = gettext("%(ticks)s ticks or more without a run after %(date)s")
        if self.ticks < GAP_TICK_LIMIT:
            text = ngettext(
                "%(ticks)s tick without a run after %(date)s",
                "%(ticks)s ticks without a run after %(date)s",
                self.ticks,
            )
        return text % {"ticks": self.ticks, "date": local_text(self.after)}


@dataclass(frozen=True)
class DurationChart:
    """
    The chart of a lock's last runs, and what its legend says.

    ``scale`` is the duration at the top of the chart, and ``usual`` the usual one.
    ``dates`` are when the last run began, and the oldest one if its bar is near the
    left edge.
    """

    chart: Chart
    scale: timedelta
    usual: timedelta | None
    dates: Sequence[str]
    has_bad_end: bool
    has_gap: bool
    has_cut: bool

    @property
    def scale_text(self) -> str:
        """The duration at the top."""
        return length(self.scale)

    @property
    def half_text(self) -> str:
        """The duration in the middle."""
        return length(self.scale / 2)

    @property
    def usual_text(self) -> str:
        """The usual duration; empty if it is not known, or not in the chart."""
        return length(self.usual) if self.usual is not None and self.scale else ""


def duration_chart(
    newest_first: Sequence[LockRun],
    status: LockStatus,
    grace: timedelta,
    addresses: Addresses,
) -> DurationChart:
    """
    Return the chart of these runs of a lock, and of the one that is open.

    Ticks of the present schedule should have had a run ``grace`` after them. The height
    of a bar is the duration of its run, so far if it goes on. A run of unknown duration
    has a bar of the full height. A run that took much longer than the others has a bar
    that is drawn broken, with its duration above it.
    """
    bars = _bars(newest_first, status)[:CHART_SLOT_COUNT]
    usual = status.job.usual_duration
    scale = _scale(bars, usual)
    slots = list(islice(_slots(bars, status, grace), CHART_SLOT_COUNT))[::-1]
    width = 100 / CHART_SLOT_COUNT
    free = CHART_SLOT_COUNT - len(slots)
    lefts = [width * (free + index) for index in range(len(slots))]
    marks = [
        _mark(slot, left, 0.75 * width, scale, addresses)
        for slot, left in zip(slots, lefts, strict=True)
    ]
    placed = [
        (left, slot)
        for left, slot in zip(lefts, slots, strict=True)
        if isinstance(slot, Bar)
    ]
    is_full = bool(placed) and placed[0][0] < 25
    dated = [placed[0], placed[-1]] if is_full else placed[-1:]
    levels = [Line("axis", place) for place in (0, 50, 100)]
    if usual is not None and scale:
        levels.append(Line("usual", 100 * (1 - usual / scale)))
    title = gettext("Durations and outcomes of the last runs, the newest on the right")
    return DurationChart(
        Chart("durations", title, marks, levels=levels),
        scale,
        usual,
        [instant(bar.began) for _, bar in dated],
        has_bad_end=any(bar.is_bad for _, bar in placed),
        has_gap=len(placed) < len(slots),
        has_cut=any(mark.is_cut for mark in marks),
    )


def _bars(newest_first: Sequence[LockRun], status: LockStatus) -> list[Bar]:
    bars, newest = [Bar.of_row(row) for row in newest_first], Bar.of_open_run(status)
    # It may have ended after its record was read.
    has_row = any(row.locked_by == status.locked_by for row in newest_first)
    return bars if newest is None or has_row else [newest, *bars]


def _scale(bars: Iterable[Bar], usual: timedelta | None) -> timedelta:
    """Return the duration that has a bar of the full height."""
    durations = sorted(bar.duration for bar in bars if bar.duration)
    if not durations:
        return ZERO
    # The bars of a few runs that took much longer than all others are cut.
    most = durations[int(0.95 * (len(durations) - 1))]
    fitting = (each for each in durations if each <= 3 * most)
    return max(*fitting, usual or ZERO)


def _slots(
    newest_first: Iterable[Bar], status: LockStatus, grace: timedelta
) -> Iterator[Bar | Gap]:
    """Return the bars with the gaps between them, the newest first."""
    schedule, end = status.schedule, aware(status.clock) - grace
    for bar in newest_first:
        if schedule is not None:
            tick = own_tick(schedule, aware(bar.began), bar.trigger)
            missed = takewhile(end.__gt__, schedule.ticks_after(tick))
            if ticks := sum(1 for _ in islice(missed, GAP_TICK_LIMIT)):
                yield Gap(ticks, bar.began)
            end = tick
        yield bar


def own_tick(schedule: Schedule, began: datetime, trigger: str = "") -> datetime:
    """Return the tick that a run which began then is for; see ``Trigger``."""
    is_known = trigger in set(Trigger)  # to this version
    start = Start(Trigger(trigger)) if is_known else BY_SCHEDULER
    return ScheduleState().decide(start, schedule, ZERO, began).tick


def _mark(
    slot: Bar | Gap,
    left: float,
    width: float,
    scale: timedelta,
    addresses: Addresses,
) -> Mark:
    if isinstance(slot, Gap):
        return Mark(
            MISSED, slot.title, left, width, note=slot.count, is_note_inside=True
        )
    share = 1.0
    if slot.duration is not None:
        share = slot.duration / scale if scale else 0.0
    # A bar of two percent can still be seen.
    height = min(max(2.0, round(share * 100, 1)), 100.0)
    is_cut = share > 1
    note = "✕" if slot.is_bad else ""
    if is_cut:
        note = f"{note} {length(slot.duration)}".strip()
    return Mark(
        slot.kind,
        slot.title,
        left,
        width,
        top=100 - height,
        height=height,
        page=addresses.run(slot.row.pk) if slot.row else "",
        note=note,
        is_cut=is_cut,
    )


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
    # Only the page of a lock needs it, and it loads more modules of Python.
    import statistics

    p95 = durations[math.ceil(0.95 * len(durations)) - 1]  # by the nearest rank
    median = length(statistics.median(durations))
    return {"runs": len(runs), "rate": rate, "median": median, "p95": length(p95)}
