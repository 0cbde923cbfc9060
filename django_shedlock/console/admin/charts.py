"""The last runs of a lock as a picture, with gaps where ticks had no run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

from django.utils.translation import gettext, ngettext, pgettext

from django_shedlock.clocks import aware
from django_shedlock.console.admin.labels import OUTCOMES, instant, instant_text, length
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.states import RunOutcome
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState, Start, Trigger

SLOTS = 30
"""Bars and gaps that have room in a chart."""
WIDTH = 100 / SLOTS
BAR_WIDTH = 0.75 * WIDTH
LEAST = 2.0
"""The shortest bar, in percent, can still be seen."""
MARGIN = 25
"""A bar that is further from the left edge, in percent, has no date there."""
MOST_TICKS = 30
"""The ticks of a gap are counted up to this number."""


@dataclass(frozen=True)
class Bar:
    """The bar of a run; its height is in percent of the chart's."""

    run: Any
    outcome: RunOutcome
    height: float
    title: str

    @property
    def top(self) -> float:
        """Where the bar begins, in percent from the chart's top."""
        return 100 - self.height


@dataclass(frozen=True)
class Gap:
    """Ticks between two runs that had none."""

    ticks: int
    title: str

    @property
    def label(self) -> str:
        """The number of ticks, as far as they were counted."""
        return f"{self.ticks}+" if self.ticks == MOST_TICKS else str(self.ticks)


@dataclass(frozen=True)
class Place:
    """A bar or a gap, and where it stands in percent from the left."""

    shown: Bar | Gap
    left: float

    @property
    def bar(self) -> Bar | None:
        """The bar, unless it is a gap."""
        return self.shown if isinstance(self.shown, Bar) else None

    @property
    def middle(self) -> float:
        """Where its mark stands."""
        return self.left + BAR_WIDTH / 2


@dataclass(frozen=True)
class RunsChart:
    """
    Bars of runs and gaps between them, the newest on the right.

    The height of a bar is the duration of its run, so far if it goes on. A run of
    unknown duration has a bar of the full height. ``usual_top`` is where the line of
    the usual duration is, in percent from the top, if that is known.
    """

    places: Sequence[Place]
    longest: timedelta
    usual: timedelta | None = None
    bar_width: float = BAR_WIDTH

    @property
    def usual_top(self) -> float | None:
        """Where the line of the usual duration is, in percent from the top."""
        if self.usual is None or not self.longest:
            return None
        return 100 * (1 - self.usual / self.longest)

    @property
    def shown_longest(self) -> str:
        """The longest duration, as people read it."""
        return length(self.longest)

    @property
    def shown_usual(self) -> str:
        """The usual duration, as people read it."""
        return length(self.usual)

    @property
    def dates(self) -> Sequence[str]:
        """When the oldest run began, if its bar is near the left edge, and the last."""
        bars = [place for place in self.places if place.bar]
        is_full = bool(bars) and bars[0].left < MARGIN
        ends = [bars[0], bars[-1]] if is_full else bars[-1:]
        return [instant(place.bar.run.started) for place in ends if place.bar]

    @property
    def bars(self) -> Sequence[Bar]:
        """The bars, the oldest first."""
        return [place.bar for place in self.places if place.bar]

    @property
    def gaps(self) -> Sequence[Gap]:
        """The gaps, the oldest first."""
        return [p.shown for p in self.places if isinstance(p.shown, Gap)]

    @property
    def has_bad_end(self) -> bool:
        """Whether one of the runs did not end well."""
        return any(bar.outcome.is_bad for bar in self.bars)


@dataclass(frozen=True)
class Ticks:
    """The ticks that should have had a run by now, by the present schedule."""

    schedule: Schedule
    until: datetime

    def before(self, newer: Any | None, older: Any) -> Gap | None:
        """Return the gap between these runs; ``None`` for the newer one is now."""
        begin = self._tick_of(older)
        end = self.until if newer is None else self._tick_of(newer)
        missed = takewhile(lambda tick: tick < end, self.schedule.ticks_after(begin))
        ticks = sum(1 for _ in islice(missed, MOST_TICKS))
        return Gap(ticks, _gap_title(ticks, older)) if ticks else None

    def _tick_of(self, run: Any) -> datetime:
        known = run.trigger in {Trigger.RETRY, Trigger.OPERATOR, Trigger.CATCH_UP}
        trigger = Trigger(run.trigger) if known else Trigger.SCHEDULER
        started, no_grace = aware(run.started), timedelta(0)
        start = Start(trigger)
        return ScheduleState().decide(start, self.schedule, no_grace, started).tick


def make_chart(
    newest_first: Sequence[Any],
    usual: timedelta | None = None,
    ticks: Ticks | None = None,
) -> RunsChart:
    """Return the chart of these runs, with ``current_outcome`` and ``elapsed``."""
    longest = max(filter(None, map(_measured, newest_first[:SLOTS])), default=ZERO)
    if usual is not None and newest_first:
        longest = max(longest, usual)
    shown = list(islice(_shown(newest_first, longest, ticks), SLOTS))
    places = [
        Place(each, WIDTH * (SLOTS - 1 - index)) for index, each in enumerate(shown)
    ]
    return RunsChart(places[::-1], longest, usual)


def _shown(
    newest_first: Sequence[Any], longest: timedelta, ticks: Ticks | None
) -> Iterator[Bar | Gap]:
    newer = None
    for run in newest_first:
        gap = ticks.before(newer, run) if ticks else None
        if gap:
            yield gap
        yield _bar(run, longest)
        newer = run


def _measured(run: Any) -> timedelta | None:
    is_running = RunOutcome(run.current_outcome) is RunOutcome.RUNNING
    duration: timedelta | None = run.elapsed if is_running else run.duration
    return duration


def _bar(run: Any, longest: timedelta) -> Bar:
    outcome, duration = RunOutcome(run.current_outcome), _measured(run)
    share = 1.0
    if duration is not None:
        share = duration / longest if longest else 0.0
    height = max(LEAST, round(share * 100, 1))
    return Bar(run, outcome, height, _bar_title(outcome, duration, run.started))


def _bar_title(
    outcome: RunOutcome, duration: timedelta | None, started: datetime
) -> str:
    details = {
        "date": instant_text(started),
        "outcome": OUTCOMES[outcome],
        "duration": length(duration),
    }
    if duration is None:
        return pgettext("shedlock", "%(date)s: %(outcome)s") % details
    if outcome is RunOutcome.RUNNING:
        return gettext("%(date)s: %(outcome)s for %(duration)s so far") % details
    return gettext("%(date)s: %(outcome)s after %(duration)s") % details


def _gap_title(ticks: int, older: Any) -> str:
    if ticks == MOST_TICKS:
        text = gettext("%(ticks)s ticks or more without a run after %(date)s")
    else:
        text = ngettext(
            "%(ticks)s tick without a run after %(date)s",
            "%(ticks)s ticks without a run after %(date)s",
            ticks,
        )
    return text % {"ticks": ticks, "date": instant_text(older.started)}
