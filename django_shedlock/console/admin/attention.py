"""What needs somebody: asked once for a request, first in the list, and counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.admin.views.main import ChangeList
from django.db.models import Case, Count, IntegerField, Q, QuerySet, Value, When
from django.http import HttpRequest
from django.utils.functional import Promise

from django_shedlock import conf
from django_shedlock.console.admin.choice import admin_provider
from django_shedlock.console.admin.labels import KINDS, STATES
from django_shedlock.console.monitoring.findings import Attention, Finding, Search
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.states import LockState

ANY = "any"
"""The choice of all locks that need somebody."""
FOUND = "shedlock_attention"


def attention_of(request: HttpRequest) -> Attention:
    """Return the most urgent findings; the store is asked once for a request."""
    if not hasattr(request, FOUND):
        setattr(request, FOUND, search().attention(admin_provider(request)))
    found: Attention = getattr(request, FOUND)
    return found


def findings_of(request: HttpRequest, names: list[str]) -> dict[str, list[Finding]]:
    """Return the findings of these locks."""
    attention = attention_of(request)
    if attention.is_complete:
        return attention.findings
    return search().of_locks(admin_provider(request), names)


def names_of(attention: Attention, choice: str) -> list[str]:
    """Return the names of the locks with a finding of this kind, or with any."""
    return [
        name
        for name, findings in attention.findings.items()
        if choice == ANY or any(finding.kind == choice for finding in findings)
    ]


def search() -> Search:
    """Return what the admin looks for in the locks."""
    return Search(default_duration(conf.GRACE))


class LockList(ChangeList):
    """The list of locks: those that need somebody come first."""

    def get_queryset(self, request: HttpRequest, *arguments: Any) -> QuerySet[Any]:
        """Return the filtered records with their ``urgency``."""
        urgency = _urgency(attention_of(request))
        self.root_queryset = self.root_queryset.annotate(urgency=urgency)
        return super().get_queryset(request, *arguments)


def _urgency(attention: Attention) -> Case:
    # The names are known, so no record costs a look into its runs.
    ranks: dict[int, list[str]] = {}
    for name, (first, *_) in attention.findings.items():
        ranks.setdefault(first.kind.rank, []).append(name)
    urgent = [When(Q(pk__in=names), then=Value(r)) for r, names in ranks.items()]
    after = len(KINDS) + 1
    states = [
        When(state=state.value, then=Value(after + rank))
        for rank, state in enumerate(STATES)
    ]
    return Case(*urgent, *states, output_field=IntegerField())


@dataclass(frozen=True)
class Counter:
    """How many locks a filter finds; its link sets the filter, or clears it."""

    choice: str
    label: str | Promise
    locks: int
    link: str
    is_chosen: bool
    is_complete: bool = True

    @property
    def css(self) -> str:
        """The name of its colour."""
        return self.choice.replace(" ", "-")


def attention_counters(
    request: HttpRequest, changelist: ChangeList, records: QuerySet[Any]
) -> list[Counter]:
    """Return how many of these locks need somebody, first all and then by kind."""
    attention = attention_of(request)
    found = list(attention.findings)
    shown = set(records.filter(pk__in=found).order_by().values_list("pk", flat=True))
    labels: dict[str, Promise | str] = {
        ANY: "",
        **{str(kind): label for kind, label in KINDS.items()},
    }
    return [
        _counter(changelist, "attention", choice, label, locks, attention.is_complete)
        for choice, label in labels.items()
        if (locks := len(shown.intersection(names_of(attention, choice))))
    ]


def state_counters(changelist: ChangeList, records: QuerySet[Any]) -> list[Counter]:
    """Return how many of these locks are in each state; expired ones need somebody."""
    counted = records.order_by().values_list("state").annotate(Count("pk"))
    numbers = dict(counted)
    return [
        _counter(changelist, "state", state.value, label, numbers[state])
        for state, label in STATES.items()
        if state in numbers and state is not LockState.EXPIRED
    ]


def _counter(
    changelist: ChangeList,
    parameter: str,
    choice: str,
    label: str | Promise,
    locks: int,
    is_complete: bool = True,
) -> Counter:
    is_chosen = changelist.params.get(parameter) == choice
    link = changelist.get_query_string(
        {parameter: None if is_chosen else choice, "p": None},
        ["state" if parameter == "attention" else "attention"],
    )
    return Counter(str(choice), label, locks, link, is_chosen, is_complete)
