"""The rows of the list of locks, what is found in them, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.templatetags.admin_list import results
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ChangeList
from django.db.models import Case, Count, IntegerField, QuerySet, Value, When
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.translation import pgettext

from django_shedlock.clocks import aware
from django_shedlock.console.admin.filters import (
    ANY,
    admin_provider,
    attention_of,
    names_of,
    query_of,
    search,
)
from django_shedlock.console.admin.labels import (
    KINDS,
    NOTHING,
    STATES,
    ago,
    filled_in,
    holder,
    lease_meter,
    length,
    outcome_badge,
    rough_length,
    shown,
    with_instant,
)
from django_shedlock.console.monitoring.findings import Finding, Kind
from django_shedlock.console.operators.acting import Action
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.states import LockState, RunOutcome

CURES = {
    Kind.OVERDUE: {"run_selected"},
    Kind.FAILED: {"run_selected"},
    Kind.EXPIRED: {"release_selected"},
    Kind.LONG: {"extend_selected", "release_selected"},
    Kind.ABANDONED: {"run_selected"},
}
"""The actions that help with a finding."""


@dataclass(frozen=True)
class LockCount:
    """How many locks a filter finds; its link sets the filter, or clears it."""

    choice: str
    label: str | Promise
    locks: int
    link: str
    is_chosen: bool


@dataclass(frozen=True)
class Row:
    """A lock of the list: the cells of its row, what is found, and what helps."""

    name: str
    cells: Sequence[SafeString]
    findings: Sequence[tuple[Promise, Finding]]
    cures: Sequence[Action]
    run: str | None
    """The address of a run that ended badly."""


class LockList(ChangeList):
    """The list of locks: those that need attention come first, and are counted."""

    def get_queryset(self, request: HttpRequest, *arguments: Any) -> QuerySet[Any]:
        """Return the filtered records with their ``urgency``."""
        self.attention, self.locks = attention_of(request), self.root_queryset
        # The names are known, so no record costs a look into its runs.
        ranks: dict[int, list[str]] = {}
        for name, (first, *_) in self.attention.findings.items():
            ranks.setdefault(first.kind.rank, []).append(name)
        states = enumerate(STATES, start=len(Kind))
        urgency = Case(
            *(When(pk__in=names, then=Value(rank)) for rank, names in ranks.items()),
            *(When(state=state.value, then=Value(rank)) for rank, state in states),
            output_field=IntegerField(),
        )
        self.root_queryset = self.locks.annotate(urgency=urgency)
        return super().get_queryset(request, *arguments)

    def counts(self) -> dict[str, Sequence[LockCount]]:
        """Return how many locks need attention, all and by kind; and of each state."""
        found, unordered = self.attention.findings, self.locks.order_by()
        known = set(unordered.filter(pk__in=list(found)).values_list("pk", flat=True))
        numbers = dict(unordered.values_list("state").annotate(Count("pk")))
        kinds = {ANY: "", **{str(kind): label for kind, label in KINDS.items()}}
        return {
            "shedlock_attention": [
                self._count("attention", "state", choice, label, locks)
                for choice, label in kinds.items()
                if (locks := len(known.intersection(names_of(self.attention, choice))))
            ],
            "shedlock_states": [  # an expired lock is among those that need attention
                self._count("state", "attention", state.value, label, numbers[state])
                for state, label in STATES.items()
                if state in numbers and state is not LockState.EXPIRED
            ],
        }

    def _count(
        self, parameter: str, other: str, choice: str, label: Any, locks: int
    ) -> LockCount:
        is_chosen = self.params.get(parameter) == choice
        chosen = {parameter: None if is_chosen else choice, "p": None}
        link = self.get_query_string(chosen, [other])
        return LockCount(choice, label, locks, link, is_chosen)

    def rows(
        self, request: HttpRequest, offered: Sequence[Action], *, has_runs: bool
    ) -> list[Row]:
        """Return the rows of the page, each with its findings and their cures."""
        provider, records = admin_provider(request), list(self.result_list)
        found = self.attention.findings
        if not self.attention.is_complete:
            found = search().of_locks(provider, [record.pk for record in records])
        rows = []
        for record, cells in zip(records, results(self), strict=True):
            findings, run = found.get(record.pk, []), None
            kinds = {finding.kind for finding in findings}
            helpful = set().union(*(CURES.get(kind, set()) for kind in kinds))
            if has_runs and kinds & {Kind.FAILED, Kind.LOST, Kind.ABANDONED}:
                run = reverse(
                    "admin:django_shedlock_lockrun_change",
                    args=[quote(str(record.last_run_pk))],
                    current_app=self.model_admin.admin_site.name,
                ) + query_of(provider.alias)
            told = [(KINDS[finding.kind], finding) for finding in findings]
            cures = [each for each in offered if each.name in helpful]
            rows.append(Row(record.pk, cells, told, cures, run))
        return rows


def worker(record: Any) -> SafeString:
    """Return where the lock was acquired last; of a pause, who and why."""
    if not record.locked_by:
        return NOTHING
    pause = record.status.pause
    if pause is not None:
        return shown("pause", pause=pause, locked_by=record.locked_by)
    return holder(record.locked_by, *split_identity(record.locked_by))


def since(record: Any) -> SafeString:
    """Return how long ago the lock was acquired, and when."""
    if not record.locked_by:
        return NOTHING
    age = record.lock_until - record.locked_at - record.remaining
    return ago(age, record.locked_at)


def lease(record: Any) -> SafeString:
    """Return how much of the lease is used, and how long the lock stays held."""
    if not LockState(record.state).is_held:
        return NOTHING
    if record.status.is_endless:
        return filled_in(pgettext("shedlock", "until it is resumed"))
    left = pgettext("shedlock", "%(remaining)s left")
    return shown(
        "lease",
        meter=lease_meter(record.lease_used),
        left=filled_in(left, remaining=rough_length(record.remaining)),
    )


def last_run(record: Any) -> SafeString:
    """Return how the last ended run ended, and how long it took."""
    if record.last_outcome is None:
        return NOTHING
    outcome, duration = RunOutcome(record.last_outcome), record.last_duration
    lasted = "" if duration is None else length(duration)
    return shown("last_run", badge=outcome_badge(outcome), lasted=lasted)


def next_expected(record: Any) -> SafeString:
    """Return how far away the next tick is, and when it is."""
    status = record.status
    if status.next_tick is None:
        return NOTHING
    until = status.next_tick - aware(status.clock)
    ahead = filled_in(pgettext("shedlock", "in %(time)s"), time=rough_length(until))
    return with_instant(ahead, status.next_tick, until)
