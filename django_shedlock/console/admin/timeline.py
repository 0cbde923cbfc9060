"""The timeline: a strip for each host and for each lock, below each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext, pgettext

from django_shedlock.admin import OUTCOME_LABELS, STATE_LABELS
from django_shedlock.console.admin import filters, labels
from django_shedlock.console.admin.addresses import Addresses
from django_shedlock.console.admin.charts import Chart, Mark
from django_shedlock.console.admin.days import Day, DayReader
from django_shedlock.console.admin.duration_chart import MISSED
from django_shedlock.console.admin.rows import LockList
from django_shedlock.console.admin.strips import SHOWN_HOST_LIMIT, Strip, host_strips
from django_shedlock.console.monitoring.search import default_grace
from django_shedlock.locks.status import LockState, RunOutcome


@dataclass(frozen=True)
class TimelineRow:
    """A strip with the name of its lock or host, and what it shows in words."""

    key: str
    name: SafeString
    chart: Chart
    text: str
    page: str = ""
    runs_page: str = ""
    kinds: Sequence[str] = ()
    """The labels of the lock's findings."""


@dataclass(frozen=True)
class TimelinePart:
    """The strips of all hosts, or of the locks of a page."""

    kind: str
    title: str
    head: str
    axis: Chart
    rows: Sequence[TimelineRow]
    left_out: str = ""
    """Says how many rows are not shown; empty if all are."""


@dataclass(frozen=True)
class Sample:
    """A mark, and what such a mark means."""

    chart: Chart
    text: str


def timeline_of(
    request: HttpRequest, changelist: LockList, site: str
) -> dict[str, object]:
    """Return what the timeline's template shows of the locks of this page."""
    provider = filters.admin_provider(request)
    records = changelist.records
    reader = DayReader(provider, changelist.clock, default_grace())
    # A subclass shows only some of the locks.
    is_whole = not changelist.locks.query.where
    names = [record.name for record in records]
    day = reader.detailed_day(names, all_hosts=is_whole)
    addresses = Addresses(site, provider.alias)
    statuses = [record.status for record in records]
    strips = [Strip(status, day, addresses) for status in statuses]
    parts = [
        _hosts(day, strips),
        _locks(day, strips, changelist, addresses),
    ]
    return {
        "shedlock_timeline": [part for part in parts if part.rows],
        "shedlock_legend": legend(),
    }


def _axis(day: Day) -> Chart:
    return Chart("axis", gettext("The hours of the day"), columns=day.hours())


def _hosts(day: Day, strips: Sequence[Strip]) -> TimelinePart:
    found = host_strips(day, [strip.status for strip in strips])
    rows = [
        TimelineRow(
            f"host {strip.host}",
            labels.isolated(strip.host),
            strip.chart(),
            strip.last_text,
        )
        for strip in found[:SHOWN_HOST_LIMIT]
    ]
    left_out = ""
    more = len(found) - SHOWN_HOST_LIMIT
    if more > 0:
        text = ngettext(
            "%(count)s more host has started no run since the hosts above.",
            "%(count)s more hosts have started no run since the hosts above.",
            more,
        )
        left_out = text % {"count": more}
    title, head = gettext("Hosts: when they started runs"), pgettext("shedlock", "Host")
    return TimelinePart("hosts", title, head, _axis(day), rows, left_out)


def _locks(
    day: Day, strips: Sequence[Strip], changelist: LockList, addresses: Addresses
) -> TimelinePart:
    rows = []
    for strip in strips:
        name = strip.status.name
        findings = changelist.attention.findings.get(name, [])
        row = TimelineRow(
            f"lock {name}",
            labels.lock_name(name),
            strip.chart("timeline"),
            strip.summary,
            addresses.lock(name),
            addresses.runs(name),
            [labels.finding_label(finding) for finding in findings],
        )
        rows.append(row)
    title, head = pgettext("shedlock", "Jobs"), pgettext("shedlock", "Lock")
    return TimelinePart("locks", title, head, _axis(day), rows)


def legend() -> list[Sample]:
    """Return a sample of each mark, with its meaning."""
    outcomes = (
        *(RunOutcome.SUCCEEDED, RunOutcome.FAILED, RunOutcome.TIMED_OUT),
        *(RunOutcome.LOST, RunOutcome.ABANDONED),
    )
    states = (LockState.RUNNING, LockState.EXPIRED, LockState.PAUSED)
    meanings = [
        *((outcome.value, OUTCOME_LABELS[outcome]) for outcome in outcomes),
        *((state.value, STATE_LABELS[state]) for state in states),
        (MISSED, gettext("ticks without a run")),
    ]
    samples = []
    for kind, text in meanings:
        is_good = kind == RunOutcome.SUCCEEDED
        mark = Mark(
            kind, str(text), 0, 100, 45 if is_good else 0, 55 if is_good else 100
        )
        samples.append(Sample(Chart("sample", str(text), [mark]), str(text)))
    return samples
