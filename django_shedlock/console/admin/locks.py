"""The admin's list of locks, and the page of one of them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy

from django_shedlock.console.admin.actions import Confirmation
from django_shedlock.console.admin.attention import (
    LockList,
    attention_counters,
    state_counters,
)
from django_shedlock.console.admin.base import ConsoleAdmin
from django_shedlock.console.admin.choice import ProviderFilter, admin_provider, others
from django_shedlock.console.admin.columns import LockColumns, TickColumns
from django_shedlock.console.admin.confirmations import (
    ExtendConfirmation,
    PauseConfirmation,
    ReleaseConfirmation,
    ResumeConfirmation,
    RunConfirmation,
)
from django_shedlock.console.admin.failures import tells_failure
from django_shedlock.console.admin.filters import (
    AttentionFilter,
    LastOutcomeFilter,
    StateFilter,
)
from django_shedlock.console.admin.last_runs import last_runs
from django_shedlock.console.admin.pages import PAGE, context_of
from django_shedlock.console.admin.refreshing import with_parts
from django_shedlock.console.admin.rows import CURE, make_table, with_cure
from django_shedlock.console.admin.trail import trail_of
from django_shedlock.models import (
    LockAction,
    LockRecord,
    LockRecordQuerySet,
    LockRun,
    with_last_run,
)
from django_shedlock.providers import provider_aliases

TEMPLATES = "admin/django_shedlock/lockrecord"
LIST_PARTS = tuple(
    f"{TEMPLATES}/{part}.html" for part in ("counters", "locks", "pages")
)
"""What the list refreshes."""


@admin.register(LockRecord)
class LockRecordAdmin(LockColumns, TickColumns, ConsoleAdmin):
    """
    A view of the locks, where operators release and extend them, and run jobs.

    Each action has a permission of its own.
    """

    list_display = (
        "shown_name",
        "current_state",
        "worker",
        "since",
        "lease",
        "last_run",
        "next_expected",
    )
    list_filter = (ProviderFilter, AttentionFilter, StateFilter, LastOutcomeFilter)
    list_per_page = 50
    search_fields = ("name", "locked_by")
    search_help_text = gettext_lazy("Search by lock or holder")
    actions = (
        "release_selected",
        "extend_selected",
        "pause_selected",
        "resume_selected",
        "run_selected",
    )
    change_list_template = "admin/django_shedlock/lockrecord/change_list.html"
    change_form_template = "admin/django_shedlock/lockrecord/change_form.html"

    class Media:
        js = ("django_shedlock/refresh.js", "django_shedlock/selection.js")

    def get_ordering(self, request: HttpRequest) -> Any:
        """Return the order: Django's check lets ``ordering`` name no annotation."""
        return super().get_ordering(request) or ("urgency", "name")

    def get_queryset(self, request: HttpRequest) -> LockRecordQuerySet:
        """Return the records with their states, from the provider's database."""
        provider = admin_provider(request)
        records = LockRecord.objects.using(provider.using).with_status().with_clock()
        return with_last_run(records, provider.alias)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[LockList]:
        """Return the list that shows first what needs somebody."""
        return LockList

    @tells_failure
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list below the numbers of locks that it can be filtered by."""
        if CURE in request.POST:
            request.POST = with_cure(request.POST)
        response = super().changelist_view(request, extra_context)
        context = getattr(response, "context_data", None)
        if context and "cl" in context:
            context |= self._list_context(request, context["cl"])
        return with_parts(request, response, *LIST_PARTS)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return none: a lock's page has answers instead of fields."""
        return []

    @tells_failure
    def change_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show a lock's page, see render_change_form()."""
        return super().change_view(request, *args, **kwargs)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Show what the page of a lock tells."""
        page = context_of(
            request,
            obj,
            offered=self._offered(request),
            runs=last_runs(request, obj.name) if self._shows_runs(request) else None,
            trail=trail_of(request, obj.name) if self._shows_trail(request) else None,
            all_actions=self.admin_site.is_registered(LockAction),
            site=self.admin_site.name,
        )
        response = super().render_change_form(
            request, {**context, **page}, add, change, form_url, obj
        )
        return with_parts(request, response, PAGE)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: a lock is made when a job acquires it."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: only providers write locks."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: ``shedlock prune`` deletes records that nobody needs any more."""
        return False

    def has_release_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may release locks."""
        return bool(request.user.has_perm("django_shedlock.release_lockrecord"))

    def has_extend_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may extend leases."""
        return bool(request.user.has_perm("django_shedlock.extend_lockrecord"))

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may pause and resume jobs."""
        return bool(request.user.has_perm("django_shedlock.pause_lockrecord"))

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may ask for runs of jobs."""
        return bool(request.user.has_perm("django_shedlock.run_lockrecord"))

    @admin.action(
        description=gettext_lazy("Release selected locks…"), permissions=["release"]
    )
    def release_selected(
        self, request: HttpRequest, queryset: LockRecordQuerySet
    ) -> TemplateResponse | None:
        """Ask for a reason, then release each lock as the operator saw it."""
        return ReleaseConfirmation(self, request).respond(queryset)

    @admin.action(
        description=gettext_lazy("Extend selected locks…"), permissions=["extend"]
    )
    def extend_selected(
        self, request: HttpRequest, queryset: LockRecordQuerySet
    ) -> TemplateResponse | None:
        """Ask for a lease and a reason, then extend each lock as it was seen."""
        return ExtendConfirmation(self, request).respond(queryset)

    @admin.action(
        description=gettext_lazy("Pause jobs of selected locks…"),
        permissions=["pause"],
    )
    def pause_selected(
        self, request: HttpRequest, queryset: LockRecordQuerySet
    ) -> TemplateResponse | None:
        """Ask for a reason and an end, then hold each lock so its job does not run."""
        return PauseConfirmation(self, request).respond(queryset)

    @admin.action(
        description=gettext_lazy("Resume jobs of selected locks…"),
        permissions=["pause"],
    )
    def resume_selected(
        self, request: HttpRequest, queryset: LockRecordQuerySet
    ) -> TemplateResponse | None:
        """Ask for a reason, then end the pause of each lock as it was seen."""
        return ResumeConfirmation(self, request).respond(queryset)

    @admin.action(
        description=gettext_lazy("Run jobs of selected locks now…"),
        permissions=["run"],
    )
    def run_selected(
        self, request: HttpRequest, queryset: LockRecordQuerySet
    ) -> TemplateResponse | None:
        """Ask for a reason, then ask a worker to run each job."""
        return RunConfirmation(self, request).respond(queryset)

    def _list_context(
        self, request: HttpRequest, changelist: LockList
    ) -> dict[str, Any]:
        records = self.get_queryset(request)
        has_runs = self._shows_runs(request)
        offered = self._offered(request)
        return {
            "shedlock_attention": attention_counters(request, changelist, records),
            "shedlock_states": state_counters(changelist, records),
            "shedlock_others": others(),
            "shedlock_is_database": len(others()) < len(provider_aliases()),
            **make_table(request, changelist, offered, has_runs=has_runs),
        }

    def _offered(self, request: HttpRequest) -> list[Confirmation]:
        offered: list[Confirmation] = []
        if self.has_release_permission(request):
            offered.append(ReleaseConfirmation(self, request))
        if self.has_extend_permission(request):
            offered.append(ExtendConfirmation(self, request))
        if self.has_pause_permission(request):
            offered.append(PauseConfirmation(self, request))
            offered.append(ResumeConfirmation(self, request))
        if self.has_run_permission(request):
            offered.append(RunConfirmation(self, request))
        return offered

    def _shows_runs(self, request: HttpRequest) -> bool:
        # The runs link to their pages, which another admin site may not have.
        has_pages = self.admin_site.is_registered(LockRun)
        return has_pages and request.user.has_perm("django_shedlock.view_lockrun")

    def _shows_trail(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("django_shedlock.view_lockaction"))
