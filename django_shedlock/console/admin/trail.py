"""What operators did: the admin's list of it, and the lines on a lock's page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_shedlock.console.admin import filters, labels
from django_shedlock.console.admin.base import LargeTableAdmin
from django_shedlock.models import LockAction, LockRecord

SHOWN = 5
"""Number of actions on a lock's page."""
EXCERPT = 200
"""Characters of a reason, or of a detail, in a list."""


def trail_of(request: HttpRequest, name: str) -> Sequence[dict[str, Any]]:
    """Return what operators did to the lock lately, the newest first."""
    provider = filters.admin_provider(request)
    actions = LockAction.objects.using(provider.using).of_lock(name, provider.alias)
    return [
        {
            "action": action,
            "began": labels.instant(action.began),
            "kind": labels.ACTIONS.get(action.kind, action.kind),
            "result": _result(action),
        }
        for action in actions.order_by("-pk")[:SHOWN]
    ]


def _result(action: Any) -> SafeString:
    # What another version has written is shown as it is.
    return labels.badge(
        action.result, str(labels.RESULTS.get(action.result, action.result))
    )


def _text_column(field: str, description: Any) -> Any:
    def beginning(action: Any) -> SafeString:
        text = Truncator(getattr(action, field)).chars(EXCERPT)
        return labels.shown("text", text=text) if text else labels.NOTHING

    return labels.column(description, beginning)


def lock_link(site: admin.AdminSite, name: str, provider: str) -> SafeString:
    """Return the lock's name, as a link where the site shows that lock."""
    if not name:  # of a catch-up, which is for no single lock
        return labels.NOTHING
    address = ""
    if site.is_registered(LockRecord) and provider in filters.database_providers():
        page = "admin:django_shedlock_lockrecord_change"
        address = reverse(page, args=[quote(name)], current_app=site.name)
        address += filters.query_of(provider)
    return labels.shown("lock_link", name=name, page=address)


@admin.register(LockAction)
class LockActionAdmin(LargeTableAdmin):
    """A read-only view of what operators did, whether here or by the command."""

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
    list_filter = (
        filters.HistoryFilter,
        filters.KindFilter,
        filters.ResultFilter,
        filters.OperatorFilter,
    )
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

    began_at = labels.column(
        pgettext_lazy("shedlock", "when"), lambda action: labels.instant(action.began)
    )
    ended_at = labels.column(
        pgettext_lazy("shedlock", "ended"), lambda action: labels.instant(action.ended)
    )
    shown_kind = labels.column(
        pgettext_lazy("shedlock", "action"),
        lambda action: labels.ACTIONS.get(action.kind, action.kind),
    )
    shown_result = labels.column(pgettext_lazy("shedlock", "result"), _result)
    shown_operator = _text_column("operator", pgettext_lazy("shedlock", "operator"))
    shown_reason = _text_column("reason", pgettext_lazy("shedlock", "reason"))
    shown_detail = _text_column("detail", pgettext_lazy("shedlock", "detail"))

    @admin.display(description=pgettext_lazy("shedlock", "lock"))
    def lock(self, action: Any) -> SafeString:
        """Return the lock's name, as a link where the site shows locks."""
        return lock_link(self.admin_site, action.name, action.provider)

    def get_queryset(self, request: HttpRequest) -> QuerySet[LockAction]:
        """Return the actions, from the provider's database."""
        return LockAction.objects.using(filters.history_database(request))
