"""What the lists of the admin can be filtered by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from django_shedlock import conf
from django_shedlock.admin.labels import OUTCOMES, STATES
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.states import RunOutcome

RECENT = 1000
"""Number of runs searched for hosts: searching all of them would take long."""


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

    title = gettext_lazy("state")
    parameter_name = "state"
    column = "state"
    labels = STATES


class LastOutcomeFilter(ChoiceFilter):
    """Filters locks by the outcome of their last ended run."""

    title = gettext_lazy("last run")
    parameter_name = "last"
    column = "last_outcome"
    labels = {o: label for o, label in OUTCOMES.items() if o.is_end}


class ScheduleFilter(ChoiceFilter):
    """Shows only the locks whose job is overdue."""

    title = gettext_lazy("schedule")
    parameter_name = "schedule"
    labels = {"overdue": gettext_lazy("overdue")}

    def chosen(self, rows: Any, choice: str) -> QuerySet[Any]:
        """Return the overdue locks."""
        overdue: QuerySet[Any] = rows.overdue(default_duration(conf.GRACE))
        return overdue


class OutcomeFilter(ChoiceFilter):
    """Filters runs by their outcome."""

    title = gettext_lazy("outcome")
    parameter_name = "outcome"
    labels = OUTCOMES

    def chosen(self, rows: Any, choice: str) -> QuerySet[Any]:
        """Return the runs with this outcome."""
        found: QuerySet[Any] = rows.of_outcome(RunOutcome(choice))
        return found


class HostFilter(ChoiceFilter):
    """Filters runs by host; offers the hosts of the newest runs."""

    title = gettext_lazy("host")
    parameter_name = "host"
    column = "host"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        """Return the hosts in the order of their names."""
        newest = model_admin.get_queryset(request).order_by("-pk").values("host")
        hosts = {run["host"] for run in newest[:RECENT]}
        # The chosen host stays on offer, even if it has run nothing lately. No host
        # has a NUL, which PostgreSQL refuses.
        chosen = self.value()
        if chosen and "\0" not in chosen:
            hosts.add(chosen)
        return [(host, host) for host in sorted(hosts)]
