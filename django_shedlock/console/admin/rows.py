"""What the console shows of locks: rows of their list, and facts of a lock's page."""

from collections import Counter
from collections.abc import Collection, Sequence

from django.contrib.admin.templatetags.admin_list import result_headers, results
from django.contrib.admin.views.main import ChangeList
from django.db import models
from django.db.models import Case, Count, F, QuerySet, Value, When
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import pgettext

from django_shedlock.admin import STATE_LABELS
from django_shedlock.clocks import aware
from django_shedlock.console.admin import filters, labels
from django_shedlock.console.models import ActionKind
from django_shedlock.console.monitoring.findings import Finding, Kind, is_unusual
from django_shedlock.console.monitoring.search import Attention, Search
from django_shedlock.console.monitoring.traces import traces_of
from django_shedlock.console.operators.acting import Action
from django_shedlock.console.operators.requests import request_of
from django_shedlock.durations import format_left, format_rough
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers.database import DatabaseLockProvider


class LockList(ChangeList):
    """The list of locks: those that need attention come first, and are counted."""

    def get_queryset(
        self, request: HttpRequest, *arguments: list[str | None] | None
    ) -> QuerySet[LockRecord]:
        """Return the filtered records with their ``urgency``."""
        self.attention: Attention = filters.attention_of(request)
        self.locks: QuerySet[LockRecord] = self.root_queryset
        ranks: dict[int, list[str]] = {}
        for name, (first, *_) in self.attention.findings.items():
            ranks.setdefault(first.kind.rank, []).append(name)
        states = enumerate(LockState, start=len(Kind))
        urgency = Case(
            *(When(pk__in=names, then=Value(rank)) for rank, names in ranks.items()),
            *(When(state=state.value, then=Value(rank)) for rank, state in states),
            output_field=models.IntegerField(),
        )
        self.root_queryset = self.locks.annotate(urgency=urgency)
        self.chosen: QuerySet[LockRecord] = super().get_queryset(request, *arguments)
        self.chosen.count = self._count_chosen  # type: ignore[method-assign]
        return self.chosen

    def _count_chosen(self) -> int:
        return sum(row[-1] for row in self.tally if row[2])

    @cached_property
    def tally(self) -> list[tuple[str, str, int, int]]:
        """How many locks are in a state, have findings (by name), and are chosen."""
        is_all = self.chosen.query.where == self.root_queryset.query.where
        shown = When(pk__in=self.chosen.order_by().values("pk"), then=Value(1))
        found = When(pk__in=list(self.attention.findings), then=F("pk"))
        locks = self.locks.order_by().values_list(
            "state",
            Case(found, default=Value(""), output_field=models.CharField()),
            Case(
                *[] if is_all else [shown],
                default=Value(int(is_all)),
                output_field=models.IntegerField(),  # MySQL can't cast to a boolean
            ),
        )
        return list(locks.annotate(Count("pk")))

    def counts(self) -> dict[str, list[tuple[str, labels.ShownText, int]]]:
        """Return how many locks need attention, all and by kind; and of each state."""
        in_state: Counter[str] = Counter()
        for state, _, _, locks in self.tally:
            in_state[state] += locks
        known = {name for _, name, *_ in self.tally}
        kinds = {filters.ANY_FINDING: "", **labels.FINDING_LABELS}
        attention = [
            (str(kind), label, len(known & {*filters.names_of(self.attention, kind)}))
            for kind, label in kinds.items()
        ]
        states = [
            (state.value, label, in_state[state])
            for state, label in STATE_LABELS.items()
            if state is not LockState.EXPIRED  # which needs attention, so is counted
        ]
        return {
            "shedlock_attention": [each for each in attention if each[-1]],
            "shedlock_states": [each for each in states if each[-1]],
        }

    def heads(self) -> list[dict[str, int | str | None]]:
        """Return the heads of the columns."""
        return list(result_headers(self))

    def rows(
        self, request: HttpRequest, offered: Collection[Action], *, has_runs: bool
    ) -> list[dict[str, object]]:
        """Return the rows of the page: cells, findings, and actions that help."""
        provider, rows = filters.admin_provider(request), []
        records, found = list(self.result_list), self.attention.findings
        if not self.attention.is_complete:
            found = Search().of_locks(provider, [record.pk for record in records])
        bad_runs = {
            record.pk: bad_run_of(record.status, found.get(record.pk, []))
            for record in records
            if has_runs
        }
        keys = keys_of(provider, [run for run in bad_runs.values() if run])
        for record, cells in zip(records, results(self), strict=True):
            findings = found.get(record.pk, [])
            kinds = {finding.kind for finding in findings}
            helpful = {each.kind for each in offered if each.cures & kinds}
            # If the job may still run, a run now is no help.
            if any(kind.may_still_run for kind in kinds):
                helpful -= {ActionKind.RUN}
            asked = request_of(record.status)
            helpful |= {ActionKind.WITHDRAW} if asked else set()
            rows.append(
                {
                    "name": record.pk,
                    "cells": cells,
                    "findings": findings,
                    "cures": [
                        each
                        for each in offered
                        if each.kind in helpful and record.state in each.states
                    ],
                    "bad_run": keys.get(bad_runs.get(record.pk, "")),
                    "request": asked,
                }
            )
        return rows


def bad_run_of(status: LockStatus, findings: Sequence[Finding]) -> str:
    """Return which run with a bad end the findings are about; empty without one."""
    told = {str(finding.kind) for finding in findings}
    bad = (run.locked_by for run in traces_of(status) if str(run.outcome) in told)
    return next(bad, "")


def keys_of(provider: DatabaseLockProvider, runs: Collection[str]) -> dict[str, int]:
    """Return the keys of the rows of these runs, as far as the history has them."""
    if not runs:
        return {}
    rows = LockRun.objects.using(provider.using).filter(locked_by__in=runs)
    return dict(rows.values_list("locked_by", "pk"))


def name(record: LockRecord) -> SafeString:
    """Return the lock's name, shortened if it is an entry of ``CRONJOBS``."""
    return labels.lock_name(record.name)


def state(record: LockRecord) -> SafeString:
    """Return the lock's state in its colour."""
    return labels.state_badge(record.status.state)


def worker(record: LockRecord) -> SafeString:
    """Return where the lock was acquired last; of a pause, who and why."""
    if not record.locked_by:
        return labels.EMPTY_CELL
    pause = record.status.pause
    if pause is not None:
        return labels.shown("pause", pause=pause, locked_by=record.locked_by)
    return labels.holder_of(record.locked_by)


def since(record: LockRecord) -> SafeString:
    """Return how long ago the lock was acquired, and when."""
    if not record.locked_by:
        return labels.EMPTY_CELL
    age = aware(record.status.clock) - aware(record.locked_at)
    return labels.ago(age, record.locked_at)


def lease(record: LockRecord) -> SafeString:
    """Return how much of the lease is used, and how long the lock stays held."""
    status = record.status
    if not status.state.is_held:
        return labels.EMPTY_CELL
    if status.is_endless:
        return labels.filled_in(pgettext("shedlock", "until it is resumed"))
    text = pgettext("shedlock", "%(remaining)s left")
    left = labels.filled_in(text, remaining=format_rough(status.remaining))
    return format_html(
        "{} <span>{}</span>", labels.lease_meter(record.lease_used), left
    )


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
    """Return how far away the next tick is, and when it is."""
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
    clock, late = aware(status.clock), status.overdue_since(Search().grace)
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
        "next_tick": next_expected(record),
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
