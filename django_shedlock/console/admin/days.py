"""The last 24 hours of locks and of hosts, as the history and the audit log know it."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from operator import attrgetter

from django.db import connections
from django.db.models import Count, Max, Min, QuerySet, Subquery
from django.db.models.functions import Coalesce, TruncHour
from django.utils import timezone
from django.utils.translation import ngettext, pgettext

from django_shedlock.admin import OUTCOME_LABELS
from django_shedlock.clocks import aware
from django_shedlock.console.admin.charts import Line
from django_shedlock.console.monitoring.evidence import Past, PausedTime
from django_shedlock.durations import format_measured
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRun
from django_shedlock.providers.base import LockProvider

DAY = timedelta(days=1)
SINGLE_RUN_LIMIT = 60
"""A job with at most so many runs in a day has a mark for each on the timeline."""
HOST_RUN_LIMIT = 100_000
"""Only so many of the newest runs are read for the hosts: a busy day has many."""
LONGEST_JOINED_BREAK = timedelta(minutes=20)
"""A longer break separates the marks of adjacent hours."""
KEY_SAMPLE_RUN_COUNT = 500
"""The day's smallest key is among the keys of its first so many runs."""
GRID_HOURS = 6
"""A line stands at each of these hours of the reader's day."""

# Note [The runs of an hour]
# A job that runs every minute has 1,440 runs a day, and a page shows up to a hundred
# jobs. So the database counts the runs of each lock that ended in the same hour with
# the same outcome, and says when the first began and the last ended. The strip has one
# mark from the former to the latter. A gap between two hours is exact; a gap within an
# hour is not visible. For jobs with few runs a day, the timeline reads each run.
#
# No index covers the runs of given locks within a day. But rows are written roughly in
# the order in which runs end, so the smallest key of a day belongs to one of its first
# runs. The row of a lost or abandoned run is written again when its body ends. Such a
# row does not count for the smallest key, and is missing here if it was first written
# before the day.


@dataclass(frozen=True)
class Span:
    """A run, or the runs of an hour that ended alike, from first start to last end."""

    outcome: str
    began: datetime
    ended: datetime
    runs: int = 1
    key: int | None = None
    """The primary key of a single run."""
    host: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether somebody should have a look."""
        return self.outcome != RunOutcome.SUCCEEDED

    @property
    def last_began(self) -> datetime:
        """When its last run began; counted runs began at the latest when they ended."""
        return self.began if self.runs == 1 else self.ended

    def is_adjacent(self, later: "Span") -> bool:
        """Return whether both are hours of runs, with little time between them."""
        is_counted = self.key is None and later.key is None
        return is_counted and later.began - self.ended <= LONGEST_JOINED_BREAK

    def with_later(self, later: "Span") -> "Span":
        """Return both as one."""
        ended = max(self.ended, later.ended)
        return replace(self, ended=ended, runs=self.runs + later.runs)

    @property
    def title(self) -> str:
        """When it was, how many runs it has, and how they ended."""
        label = OUTCOME_LABELS.get(self.outcome, self.outcome)
        values = {"began": clock_text(self.began), "ended": clock_text(self.ended)}
        if self.key is None:
            text = ngettext(
                "%(began)s-%(ended)s: %(runs)s run, %(outcome)s",
                "%(began)s-%(ended)s: %(runs)s runs, %(outcome)s",
                self.runs,
            )
            return text % {**values, "runs": self.runs, "outcome": label}
        text = pgettext("shedlock", "%(began)s: %(outcome)s after %(duration)s")
        if self.host:
            text = pgettext(
                "shedlock", "%(began)s: %(outcome)s after %(duration)s on %(host)s"
            )
        duration = format_measured(self.ended - self.began)
        return text % {
            **values,
            "outcome": label,
            "duration": duration,
            "host": self.host,
        }


@dataclass(frozen=True)
class HostStarts:
    """How many runs a host started in an hour, and when the first and the last."""

    first: datetime
    last: datetime
    runs: int = 1


def clock_text(moment: datetime) -> str:
    """Return the time of the day, in the reader's zone."""
    shown = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return shown.strftime("%H:%M")


@dataclass(frozen=True)
class Day:
    """
    The last 24 hours before ``until``, an instant of the store's clock.

    ``spans`` and ``pauses`` are by the name of their lock, in order.
    """

    until: datetime
    grace: timedelta
    spans: dict[str, list[Span]] = field(default_factory=dict)
    pauses: dict[str, list[PausedTime]] = field(default_factory=dict)
    hosts: dict[str, list[HostStarts]] = field(default_factory=dict)

    @property
    def since(self) -> datetime:
        """The instant at the left edge."""
        return self.until - DAY

    def place(self, moment: datetime) -> float:
        """Return where the instant is, in percent from the left edge."""
        share = (aware(moment) - self.since) / DAY
        return 100 * min(max(share, 0.0), 1.0)

    def hours(self) -> list[Line]:
        """Return a line with its hour for each sixth hour of the reader's day."""
        moment = timezone.localtime(self.until).replace(minute=0, second=0)
        lines = []
        while aware(moment) > self.since:
            if moment.hour % GRID_HOURS == 0:
                lines.append(Line("grid", self.place(moment), clock_text(moment)))
            moment -= timedelta(hours=1)
        return lines[::-1]

    def grid(self) -> list[Line]:
        """Return the same lines without their labels."""
        return [replace(line, text="") for line in self.hours()]


class DayReader:
    """Reads what the history and the audit log say of the last 24 hours of locks."""

    def __init__(self, provider: LockProvider, until: datetime, grace: timedelta):
        self._provider = provider
        self._past = Past(provider)
        self._day = Day(aware(until), grace)

    def day(self, names: Collection[str]) -> Day:
        """Return the day of these locks, with three statements."""
        if names:
            self._read_runs(names)
            pauses = self._past.pauses(names, self._day.since)
            self._day.pauses.update(pauses)
        return self._day

    def detailed_day(self, names: Collection[str], *, all_hosts: bool = True) -> Day:
        """
        Return the day of these locks with single runs, and with hosts.

        The hosts are those of all locks, or only of these, five statements at most.
        """
        self.day(names)
        counts = {
            name: sum(span.runs for span in spans)
            for name, spans in self._day.spans.items()
        }
        few = [name for name, runs in counts.items() if runs <= SINGLE_RUN_LIMIT]
        self._read_single_runs(few)
        self._read_hosts(None if all_hosts else names)
        return self._day

    @property
    def _runs(self) -> QuerySet[LockRun]:
        """The runs that ended since then. Their keys limit what an index reads."""
        since = self._day.since
        runs = LockRun.objects.filter(ended__gte=since, provider=self._provider.alias)
        return runs.filter(pk__gte=self._first_key)

    @cached_property
    def _first_key(self) -> int:
        # See Note [The runs of an hour].
        runs = LockRun.objects.filter(ended__gte=self._day.since, lost_at=None)
        first = runs.exclude(outcome=RunOutcome.ABANDONED.value).order_by("ended")
        keys = first.values_list("pk", flat=True)[:KEY_SAMPLE_RUN_COUNT]
        return min(self._past.read(keys), default=0)

    def _hour_of(self, column: str) -> TruncHour:
        """Return the hour of an instant, in the zone in which its column is read."""
        using = self._provider.history_database
        zone = None if using is None else connections[using].timezone
        return TruncHour(column, tzinfo=zone)

    def _read_runs(self, names: Collection[str]) -> None:
        # See Note [The runs of an hour].
        found = (
            self._runs.filter(name__in=names)
            .annotate(hour=self._hour_of("ended"))
            .values_list("name", "outcome", "hour")
            .annotate(
                first_start=Min(Coalesce("started", "ended")),
                last_end=Max("ended"),
                runs=Count("pk"),
                first_key=Min("pk"),
            )
            .order_by()
        )
        for name, outcome, _, began, ended, runs, key in self._past.read(found):
            single = key if runs == 1 else None
            span = Span(outcome, aware(began), aware(ended), runs, single)
            self._day.spans.setdefault(name, []).append(span)
        for spans in self._day.spans.values():
            spans.sort(key=attrgetter("began"))

    def _read_single_runs(self, names: Collection[str]) -> None:
        if not names:
            return
        columns = ("name", "outcome", "started", "ended", "pk", "host")
        found = self._runs.filter(name__in=names).values_list(*columns)
        single: dict[str, list[Span]] = {}
        for name, outcome, began, ended, key, host in self._past.read(found):
            first, last = aware(began or ended), aware(ended)
            span = Span(outcome, first, last, 1, key, host)
            single.setdefault(name, []).append(span)
        for name, spans in single.items():
            self._day.spans[name] = sorted(spans, key=attrgetter("began"))

    def _read_hosts(self, names: Collection[str] | None) -> None:
        newest = Subquery(LockRun.objects.order_by("-pk").values("pk")[:1])
        runs = self._runs if names is None else self._runs.filter(name__in=names)
        found = (
            runs.filter(pk__gt=newest - HOST_RUN_LIMIT, started__gte=self._day.since)
            .annotate(hour=self._hour_of("started"))
            .values_list("host", "hour")
            .annotate(
                first_start=Min("started"), last_start=Max("started"), runs=Count("pk")
            )
            .order_by()
        )
        for host, _, first, last, runs in self._past.read(found):
            starts = HostStarts(aware(first), aware(last), runs)
            self._day.hosts.setdefault(host, []).append(starts)
        for hours in self._day.hosts.values():
            hours.sort(key=attrgetter("first"))
