"""The admin's list of runs."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy

from django_shedlock.admin.filters import HostFilter, OutcomeFilter
from django_shedlock.admin.labels import (
    NOTHING,
    admin_provider,
    holder,
    instant_column,
    length,
    outcome_badge,
)
from django_shedlock.admin.large_tables import CappedPaginator, SpannedRunQuerySet
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRecord, LockRun, LockRunQuerySet

EXCERPT = 80
"""Characters of an exception's message in the list."""


@admin.register(LockRun)
class LockRunAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """A read-only view of the runs, quick even with a million of them."""

    list_display = (
        "started_at",
        "lock",
        "how_it_ended",
        "took",
        "worker",
        "exception",
    )
    list_display_links = ("started_at",)
    list_filter = (OutcomeFilter, HostFilter, "started")
    list_per_page = 50
    date_hierarchy = "started"
    search_fields = ("name", "exception_type", "locked_by")
    search_help_text = gettext_lazy("Search by lock, exception or holder")
    ordering = ("-pk",)
    sortable_by = ()
    actions = None
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    change_list_template = "admin/django_shedlock/lockrun/change_list.html"
    fields = readonly_fields = (
        "lock",
        "how_it_ended",
        "exception_type",
        "exception_message",
        "started_at",
        "finished_at",
        "took",
        "host",
        "pid",
        "locked_by",
        "provider",
        "fencing_token",
        "skips",
    )

    started_at = instant_column("started", gettext_lazy("started"))
    finished_at = instant_column("finished", gettext_lazy("finished"))

    class Media:
        css = {"all": ("django_shedlock/console.css",)}

    @admin.display(description=gettext_lazy("lock"))
    def lock(self, run: Any) -> SafeString:
        """Return the lock's name, as a link where the site shows locks."""
        if not self.admin_site.is_registered(LockRecord):
            return format_html("<bdi>{}</bdi>", run.name)
        page = reverse(
            "admin:django_shedlock_lockrecord_change",
            args=[quote(run.name)],
            current_app=self.admin_site.name,
        )
        return format_html('<a href="{}"><bdi>{}</bdi></a>', page, run.name)

    @admin.display(description=gettext_lazy("outcome"))
    def how_it_ended(self, run: Any) -> SafeString:
        """Return the outcome's label."""
        return outcome_badge(RunOutcome(run.current_outcome))

    @admin.display(description=gettext_lazy("duration"))
    def took(self, run: Any) -> str:
        """Return how long the run took."""
        return length(run.duration)

    @admin.display(description=gettext_lazy("host"))
    def worker(self, run: Any) -> SafeString:
        """Return the host and the process of the run."""
        return holder(run.locked_by, run.host, run.pid)

    @admin.display(description=gettext_lazy("exception"))
    def exception(self, run: Any) -> str | SafeString:
        """Return the exception's type and the beginning of its message."""
        if not run.exception_type:
            return NOTHING
        return format_html(
            '<bdi title="{}">{}</bdi> {}',
            run.exception_type,
            run.exception_type.rpartition(".")[2],
            Truncator(run.exception_message).chars(EXCERPT),
        )

    def get_queryset(self, request: HttpRequest) -> LockRunQuerySet:
        """Return the runs with their outcomes, from the provider's database."""
        runs = SpannedRunQuerySet(LockRun, using=admin_provider().using)
        return runs.with_outcome()

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: a run is recorded when its job starts."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: nobody rewrites history."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: ``shedlock prune`` deletes old runs."""
        return False
