"""The admin's list of runs, and the page of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_shedlock.console.admin import filters, labels
from django_shedlock.console.admin.base import LargeTableAdmin
from django_shedlock.console.admin.labels import OUTCOMES, column, instant_column
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRun, LockRunQuerySet

MIDNIGHT: Any = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}
COUNTED = 100
"""Number of runs from which the success rate and usual durations are computed."""


class OutcomeFilter(filters.ChoiceFilter):
    """Filters runs by their outcome."""

    title = pgettext_lazy("shedlock", "outcome")
    parameter_name = "outcome"
    labels = OUTCOMES

    def chosen(self, request: HttpRequest, rows: Any, choice: str) -> Any:
        return rows.of_outcome(RunOutcome(choice))


class HostFilter(filters.RecentFilter):
    """Filters runs by host."""

    title = pgettext_lazy("shedlock", "host")
    parameter_name = column = "host"


class SpannedRunQuerySet(LockRunQuerySet):
    """
    Runs that offer all dates from the first run to the last.

    Django reads the date of each row, which takes seconds for a million of them, and
    on MySQL needs tables of time zones. Rows are created as runs start, so the first
    and the last row are enough.
    """

    def aggregate(self, *args: Any, **expressions: Any) -> dict[str, Any]:
        if expressions.keys() == {"first", "last"}:
            return self._span
        return super().aggregate(*args, **expressions)

    def datetimes(self, field_name: str, kind: str, **options: Any) -> Any:  # type: ignore[override]
        first, last = self._span.values()
        if first is None or last is None:
            return []
        found, begin = [], labels.local(first)
        firsts = {"year": {"month": 1, "day": 1}, "month": {"day": 1}}
        part: Any = firsts.get(kind, {})
        step = timedelta(days={"year": 366, "month": 31, "day": 1}[kind])
        while (begin := begin.replace(**part, **MIDNIGHT)) <= labels.local(last):
            found.append(begin)
            begin += step
        return found

    @cached_property
    def _span(self) -> dict[str, datetime | None]:
        started = self.order_by("pk").values_list("started", flat=True)
        return {"first": started.first(), "last": started.last()}


def shown(runs: LockRunQuerySet) -> LockRunQuerySet:
    """Add what lists show of each run; leave long texts to its own page."""
    beginning = Left("exception_message", labels.EXCERPT)
    found = runs.with_outcome().with_elapsed().annotate(excerpt=beginning)
    return found.defer("exception_message", "exception_traceback")


def last_runs(request: HttpRequest, name: str) -> Sequence[Any]:
    """Return the newest runs of the lock, at most ``COUNTED``, the newest first."""
    provider = filters.admin_provider(request)
    runs = LockRun.objects.using(provider.using).of_lock(name, provider.alias)
    return list(shown(runs).order_by("-pk")[:COUNTED])


class LockRunAdmin(LargeTableAdmin):
    """A read-only view of the runs, quick even with a million of them."""

    list_display = (
        "started_at",
        "lock",
        "how_it_ended",
        "took",
        "cause",
        "worker",
        "exception",
    )
    of_lock = tuple(each for each in list_display if each != "lock")
    """The columns on a lock's page."""
    list_display_links = ("started_at",)
    list_filter = (filters.HistoryFilter, OutcomeFilter, HostFilter, "started")
    date_hierarchy = "started"
    search_fields = ("name", "exception_type", "locked_by")
    search_help_text = gettext_lazy("Search by lock, exception or holder")
    change_list_template = "admin/django_shedlock/lockrun/change_list.html"
    first = (
        "lock",
        "how_it_ended",
        "took",
        "started_at",
        "lock_lost_at",
        "finished_at",
        "worker",
        "cause",
    )
    exception_fields = ("exception_type", "message", "traceback")
    details = ("host", "pid", "locked_by", "provider", "fencing_token", "skips")
    readonly_fields = (*first, "why", *exception_fields, *details)

    started_at = instant_column("started", pgettext_lazy("shedlock", "started"))
    finished_at = instant_column("finished", pgettext_lazy("shedlock", "finished"))
    lock_lost_at = instant_column("lost_at", pgettext_lazy("shedlock", "lost at"))
    how_it_ended = column(
        pgettext_lazy("shedlock", "outcome"),
        lambda run: labels.outcome_badge(run.current_outcome),
    )
    took = column(pgettext_lazy("shedlock", "duration"), labels.took)
    worker = column(
        pgettext_lazy("shedlock", "host"),
        lambda run: labels.holder(run.locked_by, run.host, run.pid),
    )
    cause = column(pgettext_lazy("shedlock", "started by"), labels.started_by)
    why = column(
        pgettext_lazy("shedlock", "reason"),
        lambda run: labels.shown("text", text=run.reason),
    )
    exception = column(pgettext_lazy("shedlock", "exception"), labels.excerpt)
    message = column(
        pgettext_lazy("shedlock", "message"),
        lambda run: labels.shown("message", text=run.exception_message),
    )
    traceback = column(
        pgettext_lazy("shedlock", "traceback"),
        lambda run: labels.shown("traceback", text=run.exception_traceback),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        reason: Sequence[str] = ("why",) if obj is not None and obj.reason else ()
        fieldsets: list[Any] = [(None, {"fields": (*self.first, *reason)})]
        if obj is not None and obj.exception_type:
            title = pgettext_lazy("shedlock", "Exception")
            fieldsets.append((title, {"fields": self.exception_fields}))
        folded = {"fields": self.details, "classes": ["collapse"]}
        return [*fieldsets, (pgettext_lazy("shedlock", "Details"), folded)]

    def get_queryset(self, request: HttpRequest) -> LockRunQuerySet:
        using = filters.history_database(request)
        return shown(SpannedRunQuerySet(LockRun, using=using))
