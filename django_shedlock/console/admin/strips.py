"""Strips: the last 24 hours of a lock, or of a host, as one small bar."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice, takewhile
from operator import attrgetter, itemgetter

from django.utils.translation import gettext, ngettext, pgettext

from django_shedlock.admin import OUTCOME_LABELS, STATE_LABELS
from django_shedlock.clocks import aware, local_text
from django_shedlock.console.admin.addresses import Addresses
from django_shedlock.console.admin.charts import Chart, Mark
from django_shedlock.console.admin.days import Day, HostStarts, Span
from django_shedlock.console.admin.duration_chart import (
    GAP_TICK_LIMIT,
    MISSED,
    Gap,
    own_tick,
)
from django_shedlock.console.admin.labels import coarse
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.status import LockState, LockStatus, RunOutcome

SHORTEST_LISTED_GAP = timedelta(minutes=20)
"""A gap that is shorter than this would be too small to see in the list."""
SHOWN_HOST_LIMIT = 30
SMALLEST_MARK_WIDTH = 0.7
"""In percent of a strip: a run of a second can still be seen."""
LANE_LIMIT = 3
"""More runs at the same time are drawn over each other."""


def place_of_times(
    day: Day, kind: str, title: str, began: datetime, ended: datetime
) -> Mark:
    """Return the mark of something that went on between these instants."""
    left, right = day.place(began), day.place(ended)
    width = max(right - left, SMALLEST_MARK_WIDTH)
    return Mark(kind, title, min(left, 100 - width), width)


def joined(spans: Sequence[Span]) -> list[Span]:
    """Return the spans, with adjacent hours of the same outcome joined into one."""
    found: list[Span] = []
    for outcome in {span.outcome for span in spans}:
        alike: list[Span] = []
        for span in spans:
            if span.outcome != outcome:
                continue
            if alike and alike[-1].is_adjacent(span):
                alike[-1] = alike[-1].with_later(span)
            else:
                alike.append(span)
        found += alike
    return sorted(found, key=attrgetter("began", "outcome"))


def in_lanes(spans: Sequence[Span]) -> list[tuple[Span, int]]:
    """
    Return each run with its lane: runs at the same time have different ones.

    Counted runs stay in one lane: nobody knows which of them overlapped.
    """
    if any(span.runs > 1 for span in spans):
        return [(span, 0) for span in spans]
    ends: list[datetime] = []
    found = []
    for span in spans:
        free = (lane for lane, end in enumerate(ends) if end <= span.began)
        lane = next(free, len(ends))
        if lane == len(ends):
            ends.append(span.ended)
        ends[lane] = span.ended
        found.append((span, min(lane, LANE_LIMIT - 1)))
    return found


@dataclass(frozen=True)
class Strip:
    """The last 24 hours of one lock, as a chart and in words."""

    status: LockStatus
    day: Day
    addresses: Addresses | None = None
    """Where its marks lead; without it no mark is a link."""
    shortest_gap: timedelta = ZERO
    """Gaps that are shorter are not looked for."""

    @cached_property
    def runs(self) -> list[Span]:
        """Its runs, and the last one of its record if the history lacks it."""
        runs = self.day.spans.get(self.status.name, [])
        last = self._last_run()
        if last is not None and all(run.ended < last.began for run in runs):
            return [*runs, last]
        return runs

    @cached_property
    def spans(self) -> list[Span]:
        """The runs, or adjacent hours of runs, that get one mark each."""
        return joined(self.runs)

    def _last_run(self) -> Span | None:
        job = self.status.job
        if job.outcome is None or job.ended_at is None:
            return None
        ended = aware(job.ended_at)
        if ended < self.day.since:
            return None
        began = aware(job.started_at) if job.started_at else ended
        return Span(job.outcome, began, ended)

    @cached_property
    def pauses(self) -> list[tuple[datetime, datetime]]:
        """When its job was paused, in order."""
        status = self.status
        found: list[tuple[datetime, datetime]] = []
        for pause in self.day.pauses.get(status.name, ()):
            starts = (run.began for run in self.runs if run.began > pause.began)
            end = pause.ended or next(starts, self.day.until)
            found.append((pause.began, min(end, self.day.until)))
        if status.pause is not None:
            began = max(aware(status.locked_at), self.day.since)
            found = [
                (first, min(last, began)) for first, last in found if first < began
            ]
            found.append((began, self.day.until))
        return found

    @cached_property
    def open_run(self) -> Span | None:
        """The run that has no end yet, until now; ``None`` if there is none."""
        status = self.status
        if not status.holder_may_run:
            return None
        return Span(status.state, aware(status.locked_at), self.day.until)

    @cached_property
    def gaps(self) -> list[tuple[datetime, datetime, Gap]]:
        """The times without a run in which there were ticks."""
        schedule = self.status.schedule
        if schedule is None:
            return []
        found: list[tuple[datetime, datetime, Gap]] = []
        edge, owner = self._first_edge(), None
        for began, ended, run in self._covered():
            if edge is not None and began - edge > self.shortest_gap:
                # A run begins shortly after its own tick, which was not missed.
                limit = began if run is None else own_tick(schedule, began)
                found += self._gap(self._after(edge, owner), limit, began)
            if edge is None or ended > edge:
                edge, owner = ended, run
        if edge is not None:
            # No tick up to the newest one that began was missed, even without a row.
            known = max(self._after(edge, owner), self.status.ticks.tick or edge)
            found += self._gap(known, self.day.until - self.day.grace, self.day.until)
        return found

    def _after(self, edge: datetime, owner: Span | None) -> datetime:
        """Return from when on ticks are missed, after a run or a pause that ended."""
        schedule = self.status.schedule
        if owner is None or schedule is None:
            return edge
        return max(edge, own_tick(schedule, owner.last_began))

    def _first_edge(self) -> datetime | None:
        """Return from when on a tick without a run was missed; ``None`` if unknown."""
        tick = self.status.ticks.tick
        if tick is None:
            return None
        if tick <= self.day.since:
            return self.day.since
        # Earlier runs may have been deleted, or an earlier schedule had no such ticks.
        return None if self._covered() else tick

    def _covered(self) -> list[tuple[datetime, datetime, Span | None]]:
        """Return when the job ran or was paused, with the runs, in order."""
        runs = [*self.runs, self.open_run] if self.open_run else self.runs
        covered: list[tuple[datetime, datetime, Span | None]] = []
        covered += [(run.began, run.ended, run) for run in runs]
        covered += [(began, ended, None) for began, ended in self.pauses]
        return sorted(covered, key=itemgetter(0, 1))

    def _gap(
        self, edge: datetime, limit: datetime, end: datetime
    ) -> Iterator[tuple[datetime, datetime, Gap]]:
        schedule = self.status.schedule
        if schedule is None or edge >= limit:
            return
        ticks = takewhile(limit.__gt__, schedule.ticks_after(edge))
        missed = list(islice(ticks, GAP_TICK_LIMIT))
        if missed:
            yield missed[0], end, Gap(len(missed), edge)

    def chart(self, kind: str = "strip") -> Chart:
        """Return the chart; the one of the kind "timeline" has lines for the hours."""
        day = self.day
        marks = [
            place_of_times(day, LockState.PAUSED, paused_text(began), began, ended)
            for began, ended in self.pauses
        ]
        spans = [*self.spans, self.open_run] if self.open_run else self.spans
        placed = in_lanes(sorted(spans, key=attrgetter("began")))
        lanes = 1 + max((lane for _, lane in placed), default=0)
        drawn = [(span, self._mark(span, lane, lanes)) for span, lane in placed]
        # What is bad is drawn last, so nothing covers it.
        bad = [
            mark for span, mark in drawn if span.is_bad and span is not self.open_run
        ]
        marks += [mark for _, mark in drawn if mark not in bad]
        marks += [
            place_of_times(day, MISSED, gap.title, began, ended)
            for began, ended, gap in self.gaps
        ]
        marks += bad
        columns = day.grid() if kind == "timeline" else []
        title = gettext("Last 24 hours: %(summary)s") % {"summary": self.summary}
        return Chart(kind, title, marks, columns)

    def _mark(self, span: Span, lane: int, lanes: int) -> Mark:
        title, page = span.title, ""
        if span is self.open_run:
            text = gettext("%(state)s since %(began)s")
            label = STATE_LABELS[self.status.state]
            title = text % {"state": label, "began": local_text(span.began)}
        elif self.addresses is not None and span.key is not None:
            page = self.addresses.run(span.key)
        elif self.addresses is not None:
            page = self.addresses.runs_of(self.status.name, span)
        mark = place_of_times(self.day, span.outcome, title, span.began, span.ended)
        room = 100 / lanes
        height = room if lanes == 1 else room - 4
        bottom = 100 - lane * room
        if span.outcome == RunOutcome.SUCCEEDED:
            height *= 0.55
        is_tab_stop = span.is_bad and bool(page)
        return replace(
            mark, top=bottom - height, height=height, page=page, is_tab_stop=is_tab_stop
        )

    @property
    def counts(self) -> str:
        """How many runs ended how; the bad ones come first."""
        counted: Counter[str] = Counter()
        for run in self.runs:
            counted[run.outcome] += run.runs
        text = pgettext("shedlock", "%(count)s %(outcome)s")
        known = [outcome for outcome in OUTCOME_LABELS if outcome in counted]
        others = sorted(counted.keys() - OUTCOME_LABELS.keys())  # of another version
        return ", ".join(
            text % {"count": counted[each], "outcome": OUTCOME_LABELS.get(each, each)}
            for each in [*others, *known]
        )

    @property
    def summary(self) -> str:
        """All that the strip shows, in words."""
        told = [self.counts or pgettext("shedlock", "no run")]
        if self.gaps:
            text = ngettext(
                "%(count)s gap without a run",
                "%(count)s gaps without a run",
                len(self.gaps),
            )
            told.append(text % {"count": len(self.gaps)})
        if self.status.pause is not None:
            told.append(str(STATE_LABELS[LockState.PAUSED]))
        elif self.pauses:
            told.append(pgettext("shedlock", "was paused"))
        if self.open_run is not None:
            told.append(str(STATE_LABELS[self.status.state]))
        return ", ".join(told)


def paused_text(began: datetime) -> str:
    """Return since when a job is, or was, paused."""
    return gettext("paused from %(began)s on") % {"began": local_text(began)}


@dataclass(frozen=True)
class HostStrip:
    """The last 24 hours of one host: when it started runs."""

    host: str
    day: Day
    hours: Sequence[HostStarts]

    @property
    def last_start(self) -> datetime:
        """When it started its last run."""
        return max(hour.last for hour in self.hours)

    @property
    def last_text(self) -> str:
        """How long ago that was."""
        age = max(self.day.until - self.last_start, ZERO)
        return gettext("last start %(age)s ago") % {"age": coarse(age)}

    def chart(self) -> Chart:
        """Return the chart."""
        marks = []
        for hour in self.hours:
            title = started_text(hour)
            mark = place_of_times(self.day, "host", title, hour.first, hour.last)
            marks.append(replace(mark, top=45.0, height=55.0))
        title = gettext("Last 24 hours: %(summary)s") % {"summary": self.last_text}
        return Chart("timeline", title, marks, self.day.grid())


def started_text(hour: HostStarts) -> str:
    """Return how many runs a host started in this time."""
    text = ngettext(
        "%(count)s run began between %(began)s and %(ended)s",
        "%(count)s runs began between %(began)s and %(ended)s",
        hour.runs,
    )
    began, ended = local_text(hour.first), local_text(hour.last)
    return text % {"count": hour.runs, "began": began, "ended": ended}


def host_strips(day: Day, statuses: Iterable[LockStatus]) -> list[HostStrip]:
    """Return the strips of the hosts, the host with the newest start first."""
    hosts = {host: list(hours) for host, hours in day.hosts.items()}
    for status in statuses:
        began = aware(status.locked_at)
        if status.state is LockState.RUNNING and began > day.since:
            host, _ = split_identity(status.locked_by)
            hosts.setdefault(host, []).append(HostStarts(began, began))
    strips = [HostStrip(host, day, hours) for host, hours in hosts.items()]
    return sorted(strips, key=attrgetter("last_start"), reverse=True)
