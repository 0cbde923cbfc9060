"""The admin's list of locks, from which an operator releases them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext, gettext_lazy

from django_shedlock.durations import format_seconds
from django_shedlock.models import LockRecord, LockRecordQuerySet
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.states import LockState

LABELS = {
    LockState.RUNNING: gettext_lazy("running"),
    LockState.HELD_AT_LEAST: gettext_lazy("held at least"),
    LockState.EXPIRED: gettext_lazy("expired"),
    LockState.FREE: gettext_lazy("free"),
}


class StateFilter(admin.SimpleListFilter):
    """Filters by the state that the database's clock gives each lock."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        """Return the states in the order of their urgency."""
        return [(state.value, label) for state, label in LABELS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the records in the chosen state."""
        return queryset.filter(state=self.value()) if self.value() else queryset


@admin.register(LockRecord)
class LockRecordAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """
    A read-only view of the locks, with an action to release them.

    Releasing needs the permission ``release_lockrecord``; only locks that nobody holds
    can be deleted.
    """

    list_display = (
        "name",
        "current_state",
        "locked_by",
        "locked_at",
        "lock_until",
        "remaining_lease",
    )
    list_filter = (StateFilter,)
    search_fields = ("name", "locked_by")
    ordering = ("name",)
    actions = ("release_selected",)
    fields = (
        "name",
        "current_state",
        "remaining_lease",
        "locked_by",
        "locked_at",
        "lock_until",
        "lock_at_least_until",
        "released_at",
        "fencing_token",
    )
    readonly_fields = ("current_state", "remaining_lease")

    @admin.display(description=gettext_lazy("state"), ordering="state")
    def current_state(self, record: Any) -> str:
        """Return the state's label."""
        return str(LABELS[LockState(record.state)])

    @admin.display(description=gettext_lazy("remaining"), ordering="lock_until")
    def remaining_lease(self, record: Any) -> str:
        """Return how long the lock stays held at the most."""
        is_held = LockState(record.state).is_held
        return format_seconds(record.remaining) if is_held else "-"

    def get_queryset(self, request: HttpRequest) -> LockRecordQuerySet:
        """Return the records with their states, from the provider's database."""
        return LockRecord.objects.using(shown_provider().using).with_status()

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

    def delete_model(self, request: HttpRequest, obj: LockRecord) -> None:
        """Delete the record unless somebody took the lock in between."""
        self.delete_queryset(request, self.get_queryset(request).filter(pk=obj.pk))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete the records of those locks that nobody holds."""
        records = LockRecord.objects.using(queryset.db)
        records.filter(
            pk__in=list(queryset.values_list("pk", flat=True))
        ).acquirable().delete()

    @admin.action(
        description=gettext_lazy("Release selected locks"), permissions=["release"]
    )
    def release_selected(
        self, request: HttpRequest, queryset: LockRecordQuerySet
    ) -> TemplateResponse | None:
        """Ask for confirmation, then free each lock as the operator saw it."""
        if not request.POST.get("confirmed"):
            return self._confirmation(request, queryset)
        seen_holders = request.POST.getlist("locked_by")
        seen = dict(
            zip(request.POST.getlist(ACTION_CHECKBOX_NAME), seen_holders, strict=False)
        )
        for record in queryset:
            self._release(request, record, locked_by=seen.get(record.name, ""))
        return None

    def _confirmation(
        self, request: HttpRequest, queryset: LockRecordQuerySet
    ) -> TemplateResponse:
        records: Iterable[Any] = queryset
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Release locks?"),
            "opts": self.opts,
            "media": self.media,
            "records": [(r, self.current_state(r), r.state) for r in records],
            "running": LockState.RUNNING,
            "checkbox_name": ACTION_CHECKBOX_NAME,
        }
        template = "admin/django_shedlock/lockrecord/release_confirmation.html"
        return TemplateResponse(request, template, context)

    def _release(
        self, request: HttpRequest, record: LockRecord, *, locked_by: str
    ) -> None:
        released = shown_provider().force_release(
            record.name, running=True, locked_by=locked_by
        )
        details = {"name": record.name, "holder": locked_by}
        if released:
            self.log_change(
                request, record, gettext("Released, held by %(holder)s.") % details
            )
            self.message_user(
                request, gettext("Lock “%(name)s” is released.") % details
            )
        else:
            self.message_user(
                request,
                gettext(
                    "Lock “%(name)s” is not released: %(holder)s does not hold it any "
                    "more."
                )
                % details,
                messages.WARNING,
            )


def shown_provider() -> DatabaseLockProvider:
    """Return the provider whose table the admin shows: the first with a database."""
    for alias in provider_aliases():
        provider = get_provider(alias)
        if isinstance(provider, DatabaseLockProvider):
            return provider
    return DatabaseLockProvider("default")
