"""A lock's past: the admin's lists of runs, and of what operators did."""

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib.admin import ListFilter
from django.db.models import Model, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_shedlock.admin import OUTCOME_LABELS
from django_shedlock.console.admin import filters, labels
from django_shedlock.console.admin.base import LargeTableAdmin
from django_shedlock.console.models import ActionKind, ActionResult, LockAction
from django_shedlock.console.operators import remark_on
from django_shedlock.models import LockRun

STATISTICS_RUN_LIMIT = 100
SHOWN_ACTION_LIMIT = 5
SEARCHED_RUN_LIMIT = 5000
"""No index finds a part of a text: of two million runs such a search took 13 s."""
ACTION_LABELS, RESULT_LABELS = dict(ActionKind.choices), dict(ActionResult.choices)


def shown(runs: QuerySet[LockRun]) -> QuerySet[LockRun]:
    """Add what lists show of each run; leave long texts to its own page."""
    # One character more shows that a message is longer.
    length = labels.LISTED_MESSAGE_MAX_LENGTH + 1
    found = runs.annotate(excerpt=Left("exception_message", length))
    return found.defer("exception_message", "exception_traceback")


def last_runs(request: HttpRequest, name: str) -> Sequence[LockRun]:
    """Return at most ``STATISTICS_RUN_LIMIT`` runs of the lock, the newest first."""
    provider = filters.admin_provider(request)
    runs = LockRun.objects.using(provider.using).of_lock(name, provider.alias)
    return list(shown(runs).order_by("-pk")[:STATISTICS_RUN_LIMIT])


def _outcome_of(run: LockRun) -> str:
    return labels.outcome_badge(run.outcome)


def _duration_of(run: LockRun) -> str:
    return labels.length(run.duration)


def _worker_of(run: LockRun) -> str:
    return labels.holder(run.locked_by, run.host, run.pid)


class LockRunAdmin(LargeTableAdmin):
    """A read-only view of the runs, quick even with a million of them."""

    list_display: tuple[str, ...] = (
        "ended_at",
        "lock",
        "how_it_ended",
        "took",
        "cause",
        "worker",
        "exception",
    )
    of_lock: tuple[str, ...] = tuple(each for each in list_display if each != "lock")
    """The columns on a lock's page."""
    list_display_links: tuple[str, ...] = ("ended_at",)
    by_outcome: type[ListFilter] = filters.ChoiceFilter.of(
        LockRun, "outcome", OUTCOME_LABELS
    )
    by_host: type[ListFilter] = filters.RecentFilter.of(LockRun, "host")
    list_filter: ClassVar[tuple[str | type[ListFilter], ...]] = (
        filters.HistoryFilter,
        by_outcome,
        by_host,
        filters.DayFilter,
    )
    search_fields: ClassVar[tuple[str, ...]] = ("name", "exception_type", "locked_by")
    search_help_text: ClassVar[labels.ShownText] = gettext_lazy(
        "Search by lock, exception or holder"
    )
    change_list_template: ClassVar[str] = (
        "admin/shedlock_console/lockrun/change_list.html"
    )
    first: tuple[str, ...] = (
        "lock",
        "how_it_ended",
        "took",
        "started_at",
        "lock_lost_at",
        "ended_at",
        "worker",
        "cause",
    )
    exception_fields: tuple[str, ...] = ("exception_type", "message", "traceback")
    details: tuple[str, ...] = (
        "host",
        "pid",
        "locked_by",
        "provider",
        "fencing_token",
    )
    readonly_fields: ClassVar[tuple[str, ...]] = (
        *first,
        "why",
        *exception_fields,
        *details,
    )

    started_at: labels.Column[Model] = labels.instant_column(
        "started", pgettext_lazy("shedlock", "started")
    )
    ended_at: labels.Column[Model] = labels.instant_column(
        "ended", pgettext_lazy("shedlock", "ended")
    )
    lock_lost_at: labels.Column[Model] = labels.instant_column(
        "lost_at", pgettext_lazy("shedlock", "lost at")
    )
    how_it_ended: labels.Column[LockRun] = labels.column(
        pgettext_lazy("shedlock", "outcome"),
        _outcome_of,
    )
    took: labels.Column[LockRun] = labels.column(
        pgettext_lazy("shedlock", "duration"), _duration_of
    )
    worker: labels.Column[LockRun] = labels.column(
        pgettext_lazy("shedlock", "host"),
        _worker_of,
    )
    cause: labels.Column[LockRun] = labels.column(
        pgettext_lazy("shedlock", "started by"), labels.started_by
    )
    why: labels.Column[Model] = labels.text_column(LockRun, "reason")
    exception: labels.Column[LockRun] = labels.column(
        pgettext_lazy("shedlock", "exception"), labels.excerpt
    )
    message: labels.Column[Model] = labels.text_column(
        LockRun, "exception_message", "message"
    )
    traceback: labels.Column[Model] = labels.text_column(
        LockRun, "exception_traceback", "traceback"
    )

    def get_fieldsets(self, request: HttpRequest, obj: LockRun | None = None) -> Any:
        reason: Sequence[str] = ("why",) if obj is not None and obj.reason else ()
        fieldsets: list[Any] = [(None, {"fields": (*self.first, *reason)})]
        if obj is not None and obj.exception_type:
            title = pgettext_lazy("shedlock", "Exception")
            fieldsets.append((title, {"fields": self.exception_fields}))
        folded = {"fields": self.details, "classes": ["collapse"]}
        return [*fieldsets, (pgettext_lazy("shedlock", "Details"), folded)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[LockRun]:
        return shown(super().get_queryset(request))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, and say how far its search goes."""
        context = {**(extra_context or {}), "shedlock_searched": SEARCHED_RUN_LIMIT}
        return super().changelist_view(request, context)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Return the order in which an index has the wanted runs, the newest first."""
        is_of_day = filters.DayFilter.parameter_name in request.GET
        return ("-ended", "-pk") if is_of_day else self.ordering

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find the runs of this very lock or holder, or else search in the newest."""
        if not search_term.strip():
            return queryset, False
        of_name = queryset.filter(name=search_term.strip())
        of_lock = filters.of_known_providers(of_name)
        of_holder = queryset.filter(locked_by=search_term.strip())
        for found in (of_lock, of_holder):
            if found.exists():
                return found, False
        column = self.get_ordering(request)[0].removeprefix("-")
        last = slice(SEARCHED_RUN_LIMIT - 1, SEARCHED_RUN_LIMIT)
        for edge in queryset.values_list(column, flat=True)[last]:
            queryset = queryset.filter(**{f"{column}__gte": edge})
        return super().get_search_results(request, queryset, search_term)


def audit_log_of(request: HttpRequest, name: str) -> Sequence[dict[str, object]]:
    """Return the last actions of operators on the lock, the newest first."""
    provider = filters.admin_provider(request)
    actions = LockAction.objects.using(provider.using).of_lock(name, provider.alias)
    columns = ("began_at", "shown_kind", "shown_result")
    return LockActionAdmin.cells(actions.order_by("-pk")[:SHOWN_ACTION_LIMIT], columns)


# What another version has written is shown as it is.
def _kind_of(action: LockAction) -> labels.ShownText:
    label, remark = ACTION_LABELS.get(action.kind, action.kind), remark_on(action)
    return f"{label}, {remark}" if remark else label


def _result_of(action: LockAction) -> str:
    label = str(RESULT_LABELS.get(action.result, action.result))
    return labels.badge(action.result, label)


class LockActionAdmin(LargeTableAdmin):
    """A read-only view of operators' actions, in the admin and by the command."""

    list_display: tuple[str, ...] = (
        "began_at",
        "shown_kind",
        "lock",
        "shown_result",
        "shown_operator",
        "shown_reason",
        "shown_detail",
    )
    list_display_links: tuple[str, ...] = ("began_at",)
    list_filter: ClassVar[tuple[str | type[ListFilter], ...]] = (
        filters.HistoryFilter,
        filters.ChoiceFilter.of(LockAction, "kind", ACTION_LABELS),
        filters.ChoiceFilter.of(LockAction, "result", RESULT_LABELS),
        filters.RecentFilter.of(LockAction, "operator"),
    )
    search_fields: ClassVar[tuple[str, ...]] = ("name", "operator", "reason")
    search_help_text: ClassVar[labels.ShownText] = gettext_lazy(
        "Search by lock, operator or reason"
    )
    change_list_template: ClassVar[str] = "admin/shedlock_console/wide_list.html"
    fields: ClassVar[tuple[str, ...]] = (
        "lock",
        "shown_kind",
        "shown_result",
        "detail",
        "operator",
        "reason",
        "began_at",
        "ended_at",
        "locked_by",
        "provider",
    )
    readonly_fields: ClassVar[tuple[str, ...]] = fields

    began_at: labels.Column[Model] = labels.instant_column(
        "began", pgettext_lazy("shedlock", "when")
    )
    ended_at: labels.Column[Model] = labels.instant_column(
        "ended", pgettext_lazy("shedlock", "ended")
    )
    shown_kind: labels.Column[LockAction] = labels.column(
        pgettext_lazy("shedlock", "action"),
        _kind_of,
    )
    shown_result: labels.Column[LockAction] = labels.column(
        pgettext_lazy("shedlock", "result"),
        _result_of,
    )
    shown_operator: labels.Column[Model] = labels.text_column(
        LockAction, "operator", is_cut=True
    )
    shown_reason: labels.Column[Model] = labels.text_column(
        LockAction, "reason", is_cut=True
    )
    shown_detail: labels.Column[Model] = labels.text_column(
        LockAction, "detail", is_cut=True
    )
