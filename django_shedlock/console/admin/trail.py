"""The actions of operators: the admin's list, and the lines on a lock's page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_shedlock.console.admin import filters, labels
from django_shedlock.console.admin.base import LargeTableAdmin
from django_shedlock.models import ActionKind, ActionResult, LockAction

SHOWN = 5
"""Number of actions on a lock's page."""
EXCERPT = 200
"""Characters of a reason, or of a detail, in a list."""


def trail_of(request: HttpRequest, name: str) -> Sequence[dict[str, Any]]:
    """Return the last actions of operators on the lock, the newest first."""
    provider = filters.admin_provider(request)
    actions = LockAction.objects.using(provider.using).of_lock(name, provider.alias)
    columns = ("began_at", "shown_kind", "shown_result")
    return LockActionAdmin.cells(actions.order_by("-pk")[:SHOWN], columns)


def _result(action: Any) -> SafeString:
    # What another version has written is shown as it is.
    label = ResultFilter.labels.get(action.result, action.result)
    return labels.badge(action.result, str(label))


def _text_column(field: str, description: Any) -> Any:
    def beginning(action: Any) -> SafeString:
        text = Truncator(getattr(action, field)).chars(EXCERPT)
        return labels.shown("text", text=text) if text else labels.NOTHING

    return labels.column(description, beginning)


class OperatorFilter(filters.RecentFilter):
    """Filters actions by their operator."""

    title = pgettext_lazy("shedlock", "operator")
    parameter_name = column = "operator"


class KindFilter(filters.ChoiceFilter):
    """Filters actions by their kind."""

    title = pgettext_lazy("shedlock", "action")
    parameter_name = column = "kind"
    labels = dict(ActionKind.choices)


class ResultFilter(filters.ChoiceFilter):
    """Filters actions by their result."""

    title = pgettext_lazy("shedlock", "result")
    parameter_name = column = "result"
    labels = dict(ActionResult.choices)


class LockActionAdmin(LargeTableAdmin):
    """A read-only view of operators' actions, in the admin and by the command."""

    list_display = (
        "began_at",
        "shown_kind",
        "lock",
        "shown_result",
        "shown_operator",
        "shown_reason",
        "shown_detail",
    )
    list_display_links = ("began_at",)
    list_filter = (filters.HistoryFilter, KindFilter, ResultFilter, OperatorFilter)
    search_fields = ("name", "operator", "reason")
    search_help_text = gettext_lazy("Search by lock, operator or reason")
    change_list_template = "admin/django_shedlock/wide_list.html"
    fields = readonly_fields = (
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

    began_at = labels.instant_column("began", pgettext_lazy("shedlock", "when"))
    ended_at = labels.instant_column("ended", pgettext_lazy("shedlock", "ended"))
    shown_kind = labels.column(
        pgettext_lazy("shedlock", "action"),
        lambda action: KindFilter.labels.get(action.kind, action.kind),
    )
    shown_result = labels.column(pgettext_lazy("shedlock", "result"), _result)
    shown_operator = _text_column("operator", pgettext_lazy("shedlock", "operator"))
    shown_reason = _text_column("reason", pgettext_lazy("shedlock", "reason"))
    shown_detail = _text_column("detail", pgettext_lazy("shedlock", "detail"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[LockAction]:
        return LockAction.objects.using(filters.history_database(request))
