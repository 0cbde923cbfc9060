"""What the lists of the admin can be filtered by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import pgettext_lazy

from django_shedlock.console.admin.attention import attention_of, names_of
from django_shedlock.console.admin.labels import (
    ACTIONS,
    KINDS,
    OUTCOMES,
    RESULTS,
    STATES,
)
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRun

RECENT = 1000
"""Number of rows searched for hosts: searching all of them would take long."""


class ChoiceFilter(admin.SimpleListFilter):
    """Filters by a column; a value that is not offered finds nothing."""

    column: ClassVar[str]
    labels: ClassVar[Mapping[Any, Any]]

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        """Return the choices in the order of their urgency."""
        return [(str(choice), label) for choice, label in self.labels.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows of the choice; all rows if there is none."""
        choice = self.value()
        if not choice:
            return queryset
        if choice not in dict(self.lookup_choices):
            return queryset.none()
        return self.chosen(queryset, choice)

    def chosen(self, rows: Any, choice: str) -> QuerySet[Any]:
        """Return the rows of this choice."""
        found: QuerySet[Any] = rows.filter(**{self.column: choice})
        return found


class StateFilter(ChoiceFilter):
    """Filters locks by their state, by the database's clock."""

    title = pgettext_lazy("shedlock", "state")
    parameter_name = "state"
    column = "state"
    labels = STATES


class LastOutcomeFilter(ChoiceFilter):
    """Filters locks by the outcome of their last ended run."""

    title = pgettext_lazy("shedlock", "last run")
    parameter_name = "last"
    column = "last_outcome"
    labels = {o: label for o, label in OUTCOMES.items() if o.is_end}

    def chosen(self, rows: Any, choice: str) -> QuerySet[Any]:
        """Return the locks of this choice; the last run is looked up for few."""
        outcome = RunOutcome(choice)
        if outcome.is_bad:
            runs = LockRun.objects.using(rows.db).may_have(outcome)
            rows = rows.filter(pk__in=runs.values("name"))
        return super().chosen(rows, choice)


class AttentionFilter(ChoiceFilter):
    """Filters locks by what somebody should look at, as ``shedlock check`` finds it."""

    title = pgettext_lazy("shedlock", "attention")
    parameter_name = "attention"
    labels = {"any": pgettext_lazy("shedlock", "any"), **KINDS}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """See ChoiceFilter; what needs attention is searched once for a request."""
        self.attention = attention_of(request)
        return super().queryset(request, queryset)

    def chosen(self, rows: Any, choice: str) -> QuerySet[Any]:
        """Return the locks with this finding."""
        found: QuerySet[Any] = rows.filter(pk__in=names_of(self.attention, choice))
        return found


class OutcomeFilter(ChoiceFilter):
    """Filters runs by their outcome."""

    title = pgettext_lazy("shedlock", "outcome")
    parameter_name = "outcome"
    labels = OUTCOMES

    def chosen(self, rows: Any, choice: str) -> QuerySet[Any]:
        """Return the runs with this outcome."""
        found: QuerySet[Any] = rows.of_outcome(RunOutcome(choice))
        return found


class RecentFilter(ChoiceFilter):
    """Filters by a column; offers the values of the newest rows."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        """Return the values in their alphabetical order."""
        rows = model_admin.get_queryset(request).order_by("-pk").values(self.column)
        found = {row[self.column] for row in rows[:RECENT]} - {""}
        # The chosen one stays on offer, even if there is none of it lately.
        if chosen := self.value():
            found.add(chosen)
        return [(value, value) for value in sorted(found)]


class HostFilter(RecentFilter):
    """Filters runs by host."""

    title = pgettext_lazy("shedlock", "host")
    parameter_name = "host"
    column = "host"


class OperatorFilter(RecentFilter):
    """Filters what operators did by operator."""

    title = pgettext_lazy("shedlock", "operator")
    parameter_name = "operator"
    column = "operator"


class KindFilter(ChoiceFilter):
    """Filters what operators did by what it was."""

    title = pgettext_lazy("shedlock", "action")
    parameter_name = "kind"
    column = "kind"
    labels = ACTIONS


class ResultFilter(ChoiceFilter):
    """Filters what operators did by its result."""

    title = pgettext_lazy("shedlock", "result")
    parameter_name = "result"
    column = "result"
    labels = RESULTS
