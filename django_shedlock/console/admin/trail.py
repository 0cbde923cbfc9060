"""What operators did: the admin's list of it, and the lines on a lock's page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_shedlock.console.admin.base import LargeTableAdmin
from django_shedlock.console.admin.filters import (
    HistoryFilter,
    KindFilter,
    OperatorFilter,
    ResultFilter,
    admin_provider,
    database_providers,
    history_database,
    query_of,
)
from django_shedlock.console.admin.labels import (
    ACTIONS,
    NOTHING,
    RESULTS,
    badge,
    column,
    instant,
)
from django_shedlock.models import LockAction, LockRecord

SHOWN = 5
"""Number of actions on a lock's page."""
EXCERPT = 200
"""Characters of a reason, or of a detail, in a list."""


def trail_of(request: HttpRequest, name: str) -> Sequence[dict[str, Any]]:
    """Return what operators did to the lock lately, the newest first."""
    provider = admin_provider(request)
    actions = LockAction.objects.using(provider.using).of_lock(name, provider.alias)
    return [_line(action) for action in actions.order_by("-pk")[:SHOWN]]


def _line(action: LockAction) -> dict[str, Any]:
    return {
        "began": instant(action.began),
        "kind": kind_label(action),
        "result": result_badge(action),
        "operator": action.operator,
        "reason": action.reason,
        "detail": action.detail,
    }


def kind_label(action: LockAction) -> str:
    """Return what the operator did; what another version wrote as it is."""
    known = {kind.value: label for kind, label in ACTIONS.items()}
    return str(known.get(action.kind, action.kind))


def result_badge(action: LockAction) -> SafeString:
    """Return the result's label in its colour."""
    known = {result.value: label for result, label in RESULTS.items()}
    return badge(action.result, str(known.get(action.result, action.result)))


def lock_link(site: admin.AdminSite, name: str, provider: str) -> SafeString:
    """Return the lock's name, as a link where the site shows that lock."""
    if not name:  # of a catch-up, which is for no single lock
        return NOTHING
    if not site.is_registered(LockRecord) or provider not in database_providers():
        return format_html("<bdi>{}</bdi>", name)
    page = reverse(
        "admin:django_shedlock_lockrecord_change",
        args=[quote(name)],
        current_app=site.name,
    )
    return format_html(
        '<a href="{}{}"><bdi>{}</bdi></a>', page, query_of(provider), name
    )


@admin.register(LockAction)
class LockActionAdmin(LargeTableAdmin):
    """A read-only view of what operators did, whether here or by the command."""

    list_display = (
        "began_at",
        "what",
        "lock",
        "came_of_it",
        "operator_name",
        "why",
        "in_words",
    )
    list_display_links = ("began_at",)
    list_filter = (HistoryFilter, KindFilter, ResultFilter, OperatorFilter)
    search_fields = ("name", "operator", "reason")
    search_help_text = gettext_lazy("Search by lock, operator or reason")
    change_list_template = "admin/django_shedlock/wide_list.html"
    fields = readonly_fields = (
        "lock",
        "what",
        "came_of_it",
        "detail",
        "operator",
        "reason",
        "began_at",
        "ended_at",
        "locked_by",
        "provider",
    )

    began_at = column(
        pgettext_lazy("shedlock", "when"), lambda action: instant(action.began)
    )
    ended_at = column(
        pgettext_lazy("shedlock", "ended"), lambda action: instant(action.ended)
    )

    @admin.display(description=pgettext_lazy("shedlock", "action"))
    def what(self, action: Any) -> str:
        """Return what the operator did."""
        return kind_label(action)

    @admin.display(description=pgettext_lazy("shedlock", "lock"))
    def lock(self, action: Any) -> SafeString:
        """Return the lock's name, as a link where the site shows locks."""
        return lock_link(self.admin_site, action.name, action.provider)

    @admin.display(description=pgettext_lazy("shedlock", "result"))
    def came_of_it(self, action: Any) -> SafeString:
        """Return the result's label."""
        return result_badge(action)

    @admin.display(description=pgettext_lazy("shedlock", "operator"))
    def operator_name(self, action: Any) -> SafeString:
        """Return who it was, whatever the direction of the name's script."""
        return _beginning(action.operator)

    @admin.display(description=pgettext_lazy("shedlock", "reason"))
    def why(self, action: Any) -> SafeString:
        """Return the beginning of the reason."""
        return _beginning(action.reason)

    @admin.display(description=pgettext_lazy("shedlock", "detail"))
    def in_words(self, action: Any) -> SafeString:
        """Return the beginning of what came of it, in words."""
        return _beginning(action.detail)

    def get_queryset(self, request: HttpRequest) -> QuerySet[LockAction]:
        """Return the actions, from the provider's database."""
        return LockAction.objects.using(history_database(request))


def _beginning(text: str) -> SafeString:
    if not text:
        return NOTHING
    return format_html("<bdi>{}</bdi>", Truncator(text).chars(EXCERPT))
