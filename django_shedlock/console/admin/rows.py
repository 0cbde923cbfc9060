"""What the console shows of locks: rows of their list, and facts of a lock's page."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.admin.templatetags.admin_list import result_headers, results
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.db import models
from django.db.models import Case, Count, Q, QuerySet, Value, When
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import pgettext

from django_shedlock.admin import STATE_LABELS
from django_shedlock.clocks import aware, host_now
from django_shedlock.console.admin import filters, labels
from django_shedlock.console.admin.base import is_refresh
from django_shedlock.console.admin.days import DayReader
from django_shedlock.console.admin.headline import Headline, NextRun, headline_of
from django_shedlock.console.admin.strips import SHORTEST_LISTED_GAP, Strip
from django_shedlock.console.monitoring.briefs import Brief
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.inspection import is_unusual
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import Attention, Search, default_grace
from django_shedlock.console.operators import Action
from django_shedlock.console.operators.requests import request_of
from django_shedlock.durations import format_left, format_rough
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers.base import LockProvider
from django_shedlock.sql.fields import DatabaseNow

SHOWN_FIELD = "shedlock_shown"
"""The field of a refresh that has the names of the locks which its page shows."""
WHOLE_REFRESH_LOCK_LIMIT = 5000

# Note [Refresh of many locks]
# The search for what needs attention reads the table of locks once, and no index can
# help: it would be written with each acquisition. To sort and to count all locks reads
# it twice more. So the page of a long list asks only for what needs attention, and for
# the locks that it shows already: they are found by their names.


@dataclass(frozen=True)
class Button:
    """A button for an action on one lock."""

    name: str
    label: str
    remark: str
    is_dangerous: bool


def buttons(actions: Collection[type[Action]], status: LockStatus) -> list[Button]:
    """Return the buttons for these actions on this lock."""
    return [
        Button(each.name, each.label, each.remark(status), each.is_dangerous)
        for each in actions
    ]


@dataclass(frozen=True)
class FindingLine:
    """A finding as one line of the list, at an instant of the store's ``clock``."""

    finding: Finding
    clock: datetime

    @property
    def label(self) -> str:
        """What it is."""
        return labels.finding_label(self.finding)

    @property
    def brief(self) -> Brief:
        """Who, and what it means."""
        return self.finding.brief

    @property
    def since(self) -> SafeString | str:
        """For how long, or how long ago, with the instant as a tooltip."""
        since = self.finding.brief.since
        if since is None:
            return ""
        text = pgettext("shedlock", "%(age)s ago")
        if self.finding.kind.is_lasting:
            text = pgettext("shedlock", "for %(age)s")
        return labels.distance(text, aware(self.clock) - aware(since), since)


def finding_lines(findings: Iterable[Finding], clock: datetime) -> list[FindingLine]:
    """Return a line for each finding."""
    return [FindingLine(finding, clock) for finding in findings]


class LockList(ChangeList):
    """The list of locks: those that need attention come first, and are counted."""

    def get_queryset(
        self, request: HttpRequest, *arguments: list[str | None] | None
    ) -> QuerySet[LockRecord]:
        """Return the filtered records with their ``urgency``."""
        self.attention: Attention = filters.attention_of(request)
        self.locks: QuerySet[LockRecord] = self.root_queryset
        self.is_partial: bool = is_refresh(request) and request.method == "POST"
        ranks: dict[int, list[str]] = {}
        for name, (first, *_) in self.attention.findings.items():
            ranks.setdefault(first.rank, []).append(name)
        states = enumerate(LockState, start=2 * len(Kind))
        urgency = Case(
            *(When(pk__in=names, then=Value(rank)) for rank, names in ranks.items()),
            *(When(state=state.value, then=Value(rank)) for rank, state in states),
            output_field=models.IntegerField(),
        )
        self.root_queryset = self.locks.annotate(urgency=urgency)
        self.chosen: QuerySet[LockRecord] = super().get_queryset(request, *arguments)
        if self.is_partial:
            # See Note [Refresh of many locks].
            names = request.POST.getlist(SHOWN_FIELD)[: self.list_max_show_all]
            if self.page_num == 1 and ORDER_VAR not in self.params:
                names += self.attention.findings
            self.page_num = 1
            return self.chosen.filter(pk__in=names)
        self.chosen.count = self._count_chosen  # type: ignore[method-assign]
        return self.chosen

    def _count_chosen(self) -> int:
        return sum(locks for _, is_chosen, locks in self.tally if is_chosen)

    @cached_property
    def tally(self) -> list[tuple[str, int, int]]:
        """Rows of a state, whether the filters choose these locks, and how many."""
        is_all = self.chosen.query.where == self.root_queryset.query.where
        chosen = When(pk__in=self.chosen.order_by().values("pk"), then=Value(1))
        locks = self.locks.order_by().values_list(
            "state",
            Case(
                *[] if is_all else [chosen],
                default=Value(int(is_all)),
                output_field=models.IntegerField(),  # MySQL can't cast to a boolean
            ),
        )
        return list(locks.annotate(Count("pk")))

    @property
    def is_long(self) -> bool:
        """Whether a refresh asks for a part; see Note [Refresh of many locks]."""
        return sum(locks for *_, locks in self.tally) > WHOLE_REFRESH_LOCK_LIMIT

    @cached_property
    def in_trouble(self) -> set[str]:
        """The names of this list's locks that have findings."""
        names = set(self.attention.findings)
        if not self.locks.query.where:
            return names
        # A subclass shows only some of the locks.
        return set(self.locks.filter(pk__in=names).values_list("pk", flat=True))

    def headline(self) -> Headline:
        """
        Return what is wrong with the locks of this list, and how many are well.

        The locks of a long list are not counted, and no next run is looked for.
        """
        mine = {
            name: findings
            for name, findings in self.attention.findings.items()
            if name in self.in_trouble
        }
        is_counted = not self.is_partial and not self.is_long
        total = sum(locks for *_, locks in self.tally) if is_counted else None
        acknowledged = self.attention.acknowledged
        is_well = not (mine or self.attention.of_store or self.attention.acknowledged)
        next_run = self._next_run() if is_well and is_counted else None
        return headline_of(self.attention.of_store, mine, total, acknowledged, next_run)

    def _next_run(self) -> NextRun | None:
        owed = self.locks.filter(due_at__gt=DatabaseNow())
        owed = owed.exclude(Q(state=LockState.PAUSED.value))
        for record in owed.order_by("due_at", "name")[:1]:
            return NextRun(record.name, record.due_at, record.status.clock)
        return None

    def state_counts(self) -> list[tuple[str, labels.ShownText, int]]:
        """
        Return how many locks of this list are in each state.

        Expired locks with that finding are left out: the headline has them.
        """
        in_state: Counter[str] = Counter()
        for state, _, locks in self.tally:
            in_state[state] += locks
        expired = {
            name
            for name, findings in self.attention.findings.items()
            for each in findings
            # A lock that was taken since is in another state.
            if each.kind is Kind.EXPIRED and not each.params["is_taken"]
        }
        in_state[LockState.EXPIRED] -= len(self.in_trouble & expired)
        return [
            (state.value, label, in_state[state])
            for state, label in STATE_LABELS.items()
            if in_state[state] > 0
        ]

    def heads(self) -> list[dict[str, int | str | None]]:
        """Return the heads of the columns."""
        return list(result_headers(self))

    def rows(
        self, request: HttpRequest, offered: Collection[type[Action]], *, has_runs: bool
    ) -> list[dict[str, object]]:
        """Return the rows of the page: cells, findings, and actions that help."""
        provider, shown_rows = filters.admin_provider(request), []
        records, found = self.records, dict(self.attention.findings)
        others = [record.pk for record in records if record.pk not in found]
        if not self.attention.is_complete:
            found |= Search().of_locks(provider, others)
        helpful = {
            record.pk: [
                each
                for each in offered
                if each.helps(record.status, found.get(record.pk, []))
            ]
            for record in records
        }
        # The store is asked only about actions that help with a lock.
        useless = {
            each
            for each in set().union(*helpful.values())
            if each.command_instead(provider, "")
        }
        if has_runs:
            self._read_strips(provider)
        for record in records:
            record.is_holder_told = any(  # type: ignore[attr-defined]
                finding.kind.names_holder
                for finding in found.get(record.pk, [])
                if not finding.params.get("is_taken")  # by another service
            )
        for record, cells in zip(records, results(self), strict=True):
            findings = found.get(record.pk, [])
            cures = [each for each in helpful[record.pk] if each not in useless]
            row_keys = (finding.params.get("row_key") for finding in findings)
            shown_rows.append(
                {
                    "name": record.pk,
                    "cells": cells,
                    "lines": finding_lines(findings, record.status.clock),
                    "cures": buttons(cures, record.status),
                    "bad_run": next(filter(None, row_keys), None) if has_runs else None,
                    "request": self._request_of(record, findings),
                }
            )
        return shown_rows

    @property
    def records(self) -> list[LockRecord]:
        """The locks of this page."""
        return list(self.result_list)

    @property
    def clock(self) -> datetime:
        """The store's clock when the page's locks were read."""
        return next((record.status.clock for record in self.records), host_now())

    def _read_strips(self, provider: LockProvider) -> None:
        """Give each lock of this page its last 24 hours."""
        # Django reads the rows once, and makes the cells from these same objects.
        records = self.records
        names = [record.name for record in records]
        day = DayReader(provider, self.clock, default_grace()).day(names)
        for record in records:
            strip = Strip(record.status, day, shortest_gap=SHORTEST_LISTED_GAP)
            record.strip = strip  # type: ignore[attr-defined]

    def _request_of(self, record: LockRecord, findings: Sequence[Finding]) -> str:
        """Return who asks for a run, unless a finding says so."""
        is_found = any(finding.kind is Kind.REQUEST for finding in findings)
        return "" if is_found else request_of(record.status)


def name(record: LockRecord) -> SafeString:
    """Return the lock's name, which may break after each dot."""
    return labels.lock_name(record.name)


def state(record: LockRecord) -> SafeString:
    """Return the lock's state in its colour."""
    return labels.state_badge(record.status.state)


def last_day(record: LockRecord) -> SafeString:
    """Return the lock's last 24 hours and, unless it is free, who holds it."""
    strip: Strip | None = getattr(record, "strip", None)
    picture = labels.EMPTY_CELL if strip is None else strip.chart().drawn()
    if record.status.state is LockState.FREE:
        return picture
    told = (
        lease(record) if getattr(record, "is_holder_told", False) else holding(record)
    )
    if not told:
        return picture
    html = '<div class="shedlock-holding">{}</div>{}'
    return format_html(html, told, picture if strip is not None else "")


def holding(record: LockRecord) -> SafeString:
    """Return who holds the lock, for how long, and what is left of the lease."""
    status = record.status
    if status.state is LockState.HELD_AT_LEAST:
        text = pgettext("shedlock", "kept for %(time)s by lock_at_least_for")
        return labels.filled_in(text, time=format_left(status.remaining))
    if status.state is LockState.EXPIRED:
        over = aware(status.clock) - aware(status.lock_until)
        text = pgettext("shedlock", "%(holder)s, lease over for %(time)s")
        holder, time = labels.holder_of(status.locked_by), format_rough(over)
        return labels.filled_in(text, holder=holder, time=time)
    if status.pause is not None:
        until = labels.filled_in(pgettext("shedlock", "until it is resumed"))
        left = until if status.is_endless else _left(status)
        return format_html("{}, {}", worker(record), left)
    text = pgettext("shedlock", "%(holder)s for %(time)s")
    holder = labels.holder_of(status.locked_by)
    held = labels.filled_in(text, holder=holder, time=format_rough(status.held_for))
    return format_html("{}, {}", held, lease(record))


def lease(record: LockRecord) -> SafeString:
    """Return how much of the lease of a running job is used; empty for others."""
    if record.status.state is not LockState.RUNNING:
        return mark_safe("")
    meter = labels.lease_meter(record.lease_used)
    return format_html("{} {}", meter, _left(record.status))


def _left(status: LockStatus) -> SafeString:
    text = pgettext("shedlock", "%(remaining)s left")
    return labels.filled_in(text, remaining=format_rough(status.remaining))


def worker(record: LockRecord) -> SafeString:
    """Return where the lock was acquired last or, if it is paused, by whom and why."""
    if not record.locked_by:
        return labels.EMPTY_CELL
    pause = Pause.parse(record.locked_by)  # which may have ended
    if pause is not None:
        return labels.shown("pause", pause=pause, locked_by=record.locked_by)
    return labels.holder_of(record.locked_by)


def since(record: LockRecord) -> SafeString:
    """Return how long ago the lock was acquired, and when."""
    if not record.locked_by:
        return labels.EMPTY_CELL
    age = aware(record.status.clock) - aware(record.locked_at)
    return labels.ago(age, record.locked_at)


def last_run(record: LockRecord) -> SafeString:
    """Return how the last run ended, and how long it took."""
    job = record.status.job
    if job.outcome is None:
        return labels.EMPTY_CELL
    badge, duration = labels.outcome_badge(job.outcome), job.last_duration
    if duration is None:
        return badge
    return format_html("{} {}", badge, labels.isolated(labels.length(duration)))


def next_expected(record: LockRecord) -> SafeString:
    """Return how far away the next tick is, with the instant as a tooltip."""
    status = record.status
    if status.next_tick is None:
        return labels.EMPTY_CELL
    until = status.next_tick - aware(status.clock)
    text = pgettext("shedlock", "in %(time)s")
    return labels.distance(text, until, status.next_tick, "time")


def next_tick(record: LockRecord) -> SafeString:
    """Return how far away the next tick is, and when it is, for a lock's page."""
    status = record.status
    if status.next_tick is None:
        return labels.EMPTY_CELL
    until = status.next_tick - aware(status.clock)
    text = pgettext("shedlock", "in %(time)s")
    ahead = labels.filled_in(text, time=format_rough(until))
    return labels.with_instant(ahead, status.next_tick, until)


def facts_of(record: LockRecord, runs: Sequence[LockRun]) -> dict[str, object]:
    """
    Return what the page's template shows of a lock.

    ``record`` comes from the admin's queryset. ``runs`` are the last ones that the user
    may see.
    """
    status, job = record.status, record.status.job
    clock, late = aware(status.clock), status.overdue_since(default_grace())
    instants = (
        *("locked_at", "lock_until", "lock_at_least_until"),
        *("heartbeat_at", "released_at", "tick", "due_at"),
    )
    facts: dict[str, object] = {
        "instants": {each: labels.instant(getattr(record, each)) for each in instants},
        "state": labels.state_badge(status.state),
        "left": labels.isolated(format_left(status.remaining)),
        "holder": worker(record),
        "since": since(record),
        "held_for": labels.isolated(format_rough(status.held_for)),
        "over_for": labels.isolated(format_rough(clock - aware(record.lock_until))),
        "usual": labels.isolated(labels.length(job.usual_duration)),
        "is_unusual": is_unusual(status),
        "meter": labels.lease_meter(record.lease_used),
        "next_tick": next_tick(record),
        "overdue_since": None if late is None else labels.instant(late),
    }
    if record.heartbeat_at:
        age = clock - aware(record.heartbeat_at)
        facts["heartbeat"] = labels.isolated(format_rough(age))
    if job.outcome is not None:
        facts["outcome"] = labels.outcome_badge(job.outcome)
        # A lost run that is still going on has no known end.
        if ended := job.ended_at or job.lost_at:
            age = max(clock - aware(ended), ZERO)
            facts["ended"] = labels.ago(age, ended)
    if job.last_duration is not None:
        facts["took"] = labels.isolated(labels.length(job.last_duration))
    # Without a history its row is missing.
    if run := next((run for run in runs if run.locked_by == job.last_run), None):
        facts |= {"run": run, "failure": labels.excerpt(run)}
    return facts
