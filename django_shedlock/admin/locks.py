"""The admin's list of locks, and the page of one of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.db.models import (
    Case,
    CharField,
    Count,
    ExpressionWrapper,
    F,
    OrderBy,
    QuerySet,
    Value,
    When,
)
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from django_shedlock.admin.charts import make_chart
from django_shedlock.admin.confirmations import (
    Confirmation,
    ExtendConfirmation,
    ReleaseConfirmation,
)
from django_shedlock.admin.filters import LastOutcomeFilter, StateFilter
from django_shedlock.admin.labels import (
    NOTHING,
    STATES,
    holder,
    instant,
    length,
    outcome_badge,
    rough_length,
    short_instant,
    state_badge,
)
from django_shedlock.admin.shown import shown_provider
from django_shedlock.durations import format_seconds
from django_shedlock.models import (
    LockRecord,
    LockRecordQuerySet,
    LockRun,
    split_holder,
)
from django_shedlock.outcomes import RunOutcome
from django_shedlock.states import LockState, is_unusual

RUNS = 30
"""So many of a lock's last runs are on its page."""


def _by(annotation: str) -> OrderBy:
    # Django lets no annotation be an order by its plain name.
    return ExpressionWrapper(F(annotation), output_field=CharField()).asc()


@admin.register(LockRecord)
class LockRecordAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """
    A view of the locks, from which an operator releases and extends them.

    These need the permissions ``release_lockrecord`` and ``extend_lockrecord``; only
    locks that nobody holds can be deleted.
    """

    list_display = (
        "shown_name",
        "current_state",
        "worker",
        "since",
        "lease",
        "last_run",
    )
    list_filter = (StateFilter, LastOutcomeFilter)
    list_per_page = 50
    search_fields = ("name", "locked_by")
    search_help_text = gettext_lazy("Search by lock or holder")
    ordering = (_by("urgency"), _by("name"))
    actions = ("release_selected", "extend_selected")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    change_list_template = "admin/django_shedlock/lockrecord/change_list.html"
    change_form_template = "admin/django_shedlock/lockrecord/change_form.html"
    fields = (
        ("current_state", "lease"),
        ("worker", "locked_by"),
        ("taken", "ends"),
        ("kept", "given_back"),
        ("last_run", "fencing_token"),
    )
    readonly_fields = (
        "current_state",
        "lease",
        "worker",
        "taken",
        "ends",
        "kept",
        "given_back",
        "last_run",
    )

    class Media:
        css = {"all": ("django_shedlock/console.css",)}
        js = ("django_shedlock/refresh.js",)

    @admin.display(description=gettext_lazy("name"), ordering="name")
    def shown_name(self, record: Any) -> SafeString:
        """Return the name, whatever the direction of its script."""
        return format_html("<bdi>{}</bdi>", record.name)

    @admin.display(description=gettext_lazy("state"), ordering="urgency")
    def current_state(self, record: Any) -> SafeString:
        """Return the state's label, and whether the job takes longer than usual."""
        badge = state_badge(LockState(record.state))
        if not _takes_long(record):
            return badge
        return format_html(
            '{} <span class="shedlock-warning">{}</span>',
            badge,
            gettext("longer than usual"),
        )

    @admin.display(description=gettext_lazy("host"), ordering="locked_by")
    def worker(self, record: Any) -> SafeString:
        """Return the host and the process that took the lock last."""
        return holder(record.locked_by, *split_holder(record.locked_by))

    @admin.display(description=gettext_lazy("since"), ordering="locked_at")
    def since(self, record: Any) -> SafeString:
        """Return how long ago the lock was taken, and when."""
        age = _age(record)
        return format_html(
            '<span class="shedlock-nowrap">{}</span> '
            '<span class="shedlock-nowrap shedlock-quiet">{}</span>',
            gettext("%(age)s ago") % {"age": rough_length(age)},
            short_instant(record.locked_at, age),
        )

    @admin.display(description=gettext_lazy("since"))
    def taken(self, record: Any) -> SafeString:
        """Return when the lock was taken, and how long ago."""
        ago = gettext("%(age)s ago") % {"age": rough_length(_age(record))}
        return format_html("{} ({})", instant(record.locked_at), ago)

    @admin.display(description=gettext_lazy("lock until"))
    def ends(self, record: Any) -> str:
        """Return when the lease ends, or ended."""
        return instant(record.lock_until)

    @admin.display(description=gettext_lazy("lock at least until"))
    def kept(self, record: Any) -> str:
        """Return how long the lock is kept after a short run."""
        return instant(record.lock_at_least_until)

    @admin.display(description=gettext_lazy("released at"))
    def given_back(self, record: Any) -> str:
        """Return when the holder, or an operator, gave the lock back."""
        return instant(record.released_at)

    @admin.display(description=gettext_lazy("lease"), ordering="lock_until")
    def lease(self, record: Any) -> str | SafeString:
        """Return how much of the lease is used, and how long the lock stays held."""
        if not LockState(record.state).is_held:
            return NOTHING
        whole = record.lock_until - record.locked_at
        used = round(100 * (1 - record.remaining / whole)) if whole else 100
        left = gettext("%(remaining)s left") % {
            "remaining": format_seconds(record.remaining)
        }
        return format_html(
            '<meter class="shedlock-lease" min="0" max="100" high="80" value="{}" '
            'aria-label="{}">{}</meter> <span class="shedlock-nowrap">{}</span>',
            used,
            gettext("%(percent)s %% of the lease is used") % {"percent": used},
            f"{used} %",
            left,
        )

    @admin.display(description=gettext_lazy("last run"))
    def last_run(self, record: Any) -> str | SafeString:
        """Return how the last run that ended ended, and how long it took."""
        if record.last_outcome is None:
            return NOTHING
        return format_html(
            '{} <span class="shedlock-nowrap">{}</span>',
            outcome_badge(RunOutcome(record.last_outcome)),
            "" if record.last_duration is None else length(record.last_duration),
        )

    def get_queryset(self, request: HttpRequest) -> LockRecordQuerySet:
        """Return the records with their states, from the provider's database."""
        provider = shown_provider()
        records = LockRecord.objects.using(provider.using).with_status()
        urgency = [
            When(state=state.value, then=Value(rank))
            for rank, state in enumerate(STATES)
        ]
        return records.with_last_run(provider.alias).annotate(urgency=Case(*urgency))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list under a line that counts the states."""
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
            "shedlock_held_states": [s.value for s in LockState if s.is_held],
            "shedlock_checkbox": ACTION_CHECKBOX_NAME,
            **self._runs(request, unquote(object_id)),
            **(extra_context or {}),
        }
        return super().change_view(request, object_id, form_url, context)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: a lock is made by taking it."""
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
        """Return whether the user may free locks."""
        return bool(request.user.has_perm("django_shedlock.release_lockrecord"))

    def has_extend_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may lengthen leases."""
        return bool(request.user.has_perm("django_shedlock.extend_lockrecord"))

    def delete_model(self, request: HttpRequest, obj: LockRecord) -> None:
        """Delete the record unless somebody took the lock in between."""
        self.delete_queryset(request, self.get_queryset(request).filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete the records of those locks that nobody holds."""
        names = list(queryset.values_list("pk", flat=True))
        # Without its record nobody could tell that a run is abandoned.
        LockRun.objects.using(queryset.db).filter(name__in=names).record_deserted()
        records = LockRecord.objects.using(queryset.db)
        records.filter(pk__in=names).acquirable().delete_at_once()

    @admin.action(
        description=gettext_lazy("Release selected locks…"), permissions=["release"]
    )
    def release_selected(
        self, request: HttpRequest, queryset: LockRecordQuerySet
    ) -> TemplateResponse | None:
        """Ask for a reason, then free each lock as the operator saw it."""
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
        records = LockRecord.objects.using(shown_provider().using).with_status()
        states: QuerySet[Any, Any] = records.order_by().values("state")  # type: ignore[misc]
        counted = states.annotate(locks=Count("pk"))
        numbers = {LockState(row["state"]): row["locks"] for row in counted}
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

    def _runs(self, request: HttpRequest, name: str) -> dict[str, Any]:
        # The runs link to their pages, which a site of the project's own may not have.
        shows_runs = self.admin_site.is_registered(LockRun)
        if not shows_runs or not request.user.has_perm("django_shedlock.view_lockrun"):
            return {}
        provider = shown_provider()
        runs = LockRun.objects.using(provider.using).of_lock(name, provider.alias)
        last: list[Any] = list(runs.with_outcome().order_by("-pk")[:RUNS])
        rows = [
            {
                "run": run,
                "outcome": outcome_badge(RunOutcome(run.current_outcome)),
                "started": instant(run.started),
                "duration": length(run.duration),
                "worker": holder(run.locked_by, run.host, run.pid),
            }
            for run in last
        ]
        return {"shedlock_runs": rows, "shedlock_chart": make_chart(last)}


def _age(record: Any) -> timedelta:
    age: timedelta = record.lock_until - record.locked_at - record.remaining
    return age


def _takes_long(record: Any) -> bool:
    return is_unusual(LockState(record.state), _age(record), record.usual_duration)
