"""The admin's list of locks, and the page of one of them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import flatten, unquote
from django.db.models import Case, Count, QuerySet, When
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy

from django_shedlock.admin.actions import (
    Confirmation,
    ExtendConfirmation,
    ReleaseConfirmation,
)
from django_shedlock.admin.charts import last_runs
from django_shedlock.admin.columns import LockColumns, TickColumns
from django_shedlock.admin.filters import LastOutcomeFilter, ScheduleFilter, StateFilter
from django_shedlock.admin.labels import STATES, admin_provider, state_badge
from django_shedlock.locks.states import LockState
from django_shedlock.models import (
    LockRecord,
    LockRecordQuerySet,
    LockRun,
    with_last_run,
)


@admin.register(LockRecord)
class LockRecordAdmin(LockColumns, TickColumns, admin.ModelAdmin):  # type: ignore[type-arg]
    """
    A view of the locks, where operators release and extend them.

    They need the permissions ``release_lockrecord`` and ``extend_lockrecord``; only
    locks that nobody holds can be deleted.
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
    list_filter = (StateFilter, LastOutcomeFilter, ScheduleFilter)
    list_per_page = 50
    search_fields = ("name", "locked_by")
    search_help_text = gettext_lazy("Search by lock or holder")
    actions = ("release_selected", "extend_selected")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    change_list_template = "admin/django_shedlock/lockrecord/change_list.html"
    change_form_template = "admin/django_shedlock/lockrecord/change_form.html"
    fields = LockColumns.lock_fields
    readonly_fields = flatten(LockColumns.lock_fields + TickColumns.tick_fields)

    class Media:
        css = {"all": ("django_shedlock/console.css",)}
        js = ("django_shedlock/refresh.js",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields of a lock, with its ticks if it has a schedule."""
        has_schedule = obj is not None and obj.schedule is not None
        return (*self.fields, *(self.tick_fields if has_schedule else ()))

    def get_ordering(self, request: HttpRequest) -> Any:
        """Return the order: Django's check lets ``ordering`` name no annotation."""
        return super().get_ordering(request) or ("urgency", "name")

    def get_queryset(self, request: HttpRequest) -> LockRecordQuerySet:
        """Return the records with their states, from the provider's database."""
        provider = admin_provider()
        records = LockRecord.objects.using(provider.using).with_status().with_clock()
        ranks = [When(state=s.value, then=rank) for rank, s in enumerate(STATES)]
        return with_last_run(records, provider.alias).annotate(urgency=Case(*ranks))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list below the number of locks in each state."""
        response = super().changelist_view(request, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data:
            response.context_data.setdefault("shedlock_counts", self._counts(request))
        return response

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a lock with its last runs."""
        context = {
            "shedlock_name": unquote(object_id),
            "shedlock_actions": self._offered(request),
            "shedlock_held_states": [
                s.value for s in LockState if s is not LockState.FREE
            ],
            "shedlock_checkbox": ACTION_CHECKBOX_NAME,
            **(last_runs(unquote(object_id)) if self._shows_runs(request) else {}),
            **(extra_context or {}),
        }
        return super().change_view(request, object_id, form_url, context)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: a lock is made when a job acquires it."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: only providers write locks."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse for a held lock, whose job would lose its protection."""
        if obj is not None and LockState(obj.state).is_held:
            return False
        return super().has_delete_permission(request, obj)

    def has_release_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may release locks."""
        return bool(request.user.has_perm("django_shedlock.release_lockrecord"))

    def has_extend_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may extend leases."""
        return bool(request.user.has_perm("django_shedlock.extend_lockrecord"))

    def delete_model(self, request: HttpRequest, obj: LockRecord) -> None:
        """Delete the record unless somebody has acquired the lock since."""
        self.delete_queryset(request, self.get_queryset(request).filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete the records of those locks that nobody holds."""
        names = list(queryset.values_list("pk", flat=True))
        # Without the record nobody can tell that a run is abandoned.
        LockRun.objects.using(queryset.db).filter(name__in=names).record_abandoned()
        records = LockRecord.objects.using(queryset.db)
        records.filter(pk__in=names).acquirable().delete_at_once()

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

    def _counts(self, request: HttpRequest) -> list[dict[str, Any]]:
        records: Any = LockRecord.objects.using(admin_provider().using).with_status()
        numbers = dict(records.order_by().values_list("state").annotate(Count("pk")))
        return [
            {"state": state.value, "badge": state_badge(state), "locks": numbers[state]}
            for state in STATES
            if state in numbers
        ]

    def _offered(self, request: HttpRequest) -> list[Confirmation]:
        offered: list[Confirmation] = []
        if self.has_release_permission(request):
            offered.append(ReleaseConfirmation(self, request))
        if self.has_extend_permission(request):
            offered.append(ExtendConfirmation(self, request))
        return offered

    def _shows_runs(self, request: HttpRequest) -> bool:
        # The runs link to their pages, which another admin site may not have.
        has_pages = self.admin_site.is_registered(LockRun)
        return has_pages and request.user.has_perm("django_shedlock.view_lockrun")
