"""What the lists of the admin can be filtered by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from django_shedlock import conf
from django_shedlock.admin.labels import OUTCOMES, STATES
from django_shedlock.models import LockRecord, LockRunQuerySet
from django_shedlock.options import default_duration
from django_shedlock.outcomes import RunOutcome
from django_shedlock.states import LockState

OVERDUE = "overdue"
MOST_NAMES = 10_000
"""SQLite takes no statement with very many parameters."""
RECENT = 1000
"""The hosts of so many runs are offered; all of them would be a long search."""


class StateFilter(admin.SimpleListFilter):
    """Filters locks by the state that the database's clock gives each of them."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        """Return the states in the order of their urgency."""
        return [(state.value, label) for state, label in STATES.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the locks in the chosen state; none if there is no such state."""
        chosen = self.value()
        if not chosen:
            return queryset
        known = chosen in set(LockState)
        return queryset.filter(state=chosen) if known else queryset.none()


class LastOutcomeFilter(admin.SimpleListFilter):
    """Filters locks by how their last run ended."""

    title = gettext_lazy("last run")
    parameter_name = "last"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        """Return the outcomes of runs that ended."""
        return [(o.value, label) for o, label in OUTCOMES.items() if o.is_end]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the locks whose last run ended so; none if there is no such end."""
        chosen = self.value()
        if not chosen:
            return queryset
        known = chosen in set(RunOutcome)
        return queryset.filter(last_outcome=chosen) if known else queryset.none()


class ScheduleFilter(admin.SimpleListFilter):
    """Leaves the locks whose job is overdue, with one more statement."""

    title = gettext_lazy("schedule")
    parameter_name = "schedule"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        """Return the only choice."""
        return [(OVERDUE, gettext_lazy("overdue"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the overdue locks; none if something else is asked for."""
        chosen = self.value()
        if not chosen:
            return queryset
        if chosen != OVERDUE:
            return queryset.none()
        names = islice(_overdue(queryset.db), MOST_NAMES)
        return queryset.filter(pk__in=list(names))


def _overdue(using: str) -> Iterator[str]:
    # No database knows cron, so it is counted here.
    records = LockRecord.objects.using(using).exclude(schedule=None)
    grace = default_duration(conf.GRACE)
    for record in records.with_status().with_clock().order_by("pk"):
        if record.status.overdue_since(grace) is not None:
            yield record.pk


class OutcomeFilter(admin.SimpleListFilter):
    """Filters runs by their outcome."""

    title = gettext_lazy("outcome")
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        """Return the outcomes in the order of their urgency."""
        return [(outcome.value, label) for outcome, label in OUTCOMES.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the runs with the chosen outcome; none if there is no such outcome."""
        chosen = self.value()
        runs: LockRunQuerySet = queryset  # type: ignore[assignment]
        if not chosen:
            return runs
        known = chosen in set(RunOutcome)
        return runs.of_outcome(RunOutcome(chosen)) if known else runs.none()


class HostFilter(admin.SimpleListFilter):
    """Filters runs by the host that ran them; offers the hosts of the newest runs."""

    title = gettext_lazy("host")
    parameter_name = "host"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        """Return the hosts in the order of their names."""
        newest = model_admin.get_queryset(request).order_by("-pk").values("host")
        hosts = {run["host"] for run in newest[:RECENT]}
        # A host that has been chosen is offered still when it has run nothing lately.
        chosen = self.value()
        return [(host, host) for host in sorted(hosts | {chosen} if chosen else hosts)]

    def has_output(self) -> bool:
        """Return whether there is a choice, also if it is of one host."""
        return bool(self.lookup_choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the runs of the chosen host."""
        chosen = self.value()
        if not chosen:
            return queryset
        # PostgreSQL takes no NUL, so no host has one.
        return queryset.none() if "\0" in chosen else queryset.filter(host=chosen)
