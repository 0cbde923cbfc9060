"""The admin's list of runs, and the page of one of them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_shedlock.console.admin.choice import HistoryFilter, history_database
from django_shedlock.console.admin.filters import HostFilter, OutcomeFilter
from django_shedlock.console.admin.labels import (
    NOTHING,
    holder,
    instant_column,
    outcome_badge,
)
from django_shedlock.console.admin.large_tables import (
    LargeTableAdmin,
    SpannedRunQuerySet,
)
from django_shedlock.console.admin.last_runs import (
    excerpt,
    started_by,
    took,
    with_excerpts,
)
from django_shedlock.console.admin.trail import lock_link
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRun, LockRunQuerySet


@admin.register(LockRun)
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
    list_display_links = ("started_at",)
    list_filter = (HistoryFilter, OutcomeFilter, HostFilter, "started")
    date_hierarchy = "started"
    search_fields = ("name", "exception_type", "locked_by")
    search_help_text = gettext_lazy("Search by lock, exception or holder")
    change_list_template = "admin/django_shedlock/lockrun/change_list.html"
    details = ("host", "pid", "locked_by", "provider", "fencing_token", "skips")
    exception_fields = ("exception_type", "message", "traceback")
    readonly_fields = (
        "lock",
        "how_it_ended",
        "took",
        "started_at",
        "finished_at",
        "worker",
        "cause",
        "why",
        *exception_fields,
        *details,
    )

    started_at = instant_column("started", pgettext_lazy("shedlock", "started"))
    finished_at = instant_column("finished", pgettext_lazy("shedlock", "finished"))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return what everybody asks first; the exception if any; the rest folded."""
        has_exception = obj is not None and obj.exception_type
        has_reason = obj is not None and obj.reason
        first = [
            name
            for name in self.readonly_fields
            if name not in {*self.exception_fields, *self.details}
            and (name != "why" or has_reason)
        ]
        exception = (
            pgettext_lazy("shedlock", "Exception"),
            {"fields": self.exception_fields},
        )
        details = (
            pgettext_lazy("shedlock", "Details"),
            {"fields": self.details, "classes": ["collapse"]},
        )
        return [
            (None, {"fields": first}),
            *([exception] if has_exception else []),
            details,
        ]

    @admin.display(description=pgettext_lazy("shedlock", "lock"))
    def lock(self, run: Any) -> SafeString:
        """Return the lock's name, as a link where the site shows locks."""
        return lock_link(self.admin_site, run.name, run.provider)

    @admin.display(description=pgettext_lazy("shedlock", "outcome"))
    def how_it_ended(self, run: Any) -> SafeString:
        """Return the outcome's label."""
        return outcome_badge(RunOutcome(run.current_outcome))

    @admin.display(description=pgettext_lazy("shedlock", "duration"))
    def took(self, run: Any) -> str | SafeString:
        """Return how long the run took or, if it goes on, has taken so far."""
        return took(run)

    @admin.display(description=pgettext_lazy("shedlock", "host"))
    def worker(self, run: Any) -> SafeString:
        """Return the host and the process of the run."""
        return holder(run.locked_by, run.host, run.pid)

    @admin.display(description=pgettext_lazy("shedlock", "started by"))
    def cause(self, run: Any) -> SafeString:
        """Return what started the run and, if a person did, who."""
        return started_by(run)

    @admin.display(description=pgettext_lazy("shedlock", "reason"))
    def why(self, run: Any) -> SafeString:
        """Return why somebody started the run."""
        return format_html("<bdi>{}</bdi>", run.reason)

    @admin.display(description=pgettext_lazy("shedlock", "exception"))
    def exception(self, run: Any) -> SafeString:
        """Return the exception's type and the beginning of its message."""
        return excerpt(run)

    @admin.display(description=pgettext_lazy("shedlock", "message"))
    def message(self, run: Any) -> SafeString:
        """Return the whole message, with its lines."""
        return format_html(
            '<div class="shedlock-message" dir="auto">{}</div>', run.exception_message
        )

    @admin.display(description=pgettext_lazy("shedlock", "traceback"))
    def traceback(self, run: Any) -> SafeString:
        """Return the traceback with its causes, in a box that scrolls."""
        if not run.exception_traceback:
            return NOTHING
        return format_html(
            '<details class="shedlock-traceback" open><summary>{}</summary>'
            '<pre dir="ltr" tabindex="0">{}</pre></details>',
            pgettext_lazy("shedlock", "The last call comes last"),
            run.exception_traceback,
        )

    def get_queryset(self, request: HttpRequest) -> LockRunQuerySet:
        """Return the runs with their outcomes, from the provider's database."""
        runs = SpannedRunQuerySet(LockRun, using=history_database(request))
        return with_excerpts(runs.with_outcome().with_elapsed())
