"""Delete the records of locks that nobody holds, and say which ones stay."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin import actions
from django.contrib.admin.utils import quote, unquote
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy, ngettext

from django_shedlock.console.admin.actions import MOST_LOCKS
from django_shedlock.console.admin.choice import admin_provider, query_of
from django_shedlock.console.operators.trail import Trail
from django_shedlock.locks.states import LockState
from django_shedlock.models import ActionKind, ActionResult, LockRecord, LockRun


class StillHeld(Exception):
    """A lock was not deleted, since somebody holds it by now."""


class LockDeletion(admin.ModelAdmin):  # type: ignore[type-arg]
    """
    An admin that deletes a lock only while nobody holds it.

    The database decides, by one statement for each lock. What stays is told with its
    holder, and only what was deleted is logged.
    """

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse for a held lock, whose job would lose its protection."""
        return not _is_held(obj) and super().has_delete_permission(request, obj)

    def delete_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Delete a lock, or lead to its page and say who holds it."""
        name = unquote(object_id)
        is_held = _is_held(self.get_object(request, name))
        if not is_held or not self.has_delete_permission(request):
            with suppress(StillHeld):
                return super().delete_view(request, object_id, extra_context)
        self._tell_held(request, self.get_queryset(request).filter(pk=name))
        page = reverse(
            "admin:django_shedlock_lockrecord_change",
            args=[quote(name)],
            current_app=self.admin_site.name,
        )
        return HttpResponseRedirect(page + query_of(admin_provider(request).alias))

    def delete_model(self, request: HttpRequest, obj: LockRecord) -> None:
        """Delete the record; raise ``StillHeld`` if somebody holds the lock by now."""
        if self._delete(request, [obj]):
            raise StillHeld(f"Lock {obj.name!r} is held.")

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete the records of those locks that nobody holds."""
        self._delete(request, queryset)

    @admin.action(
        description=gettext_lazy("Delete selected locks…"), permissions=["delete"]
    )
    def delete_selected(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> HttpResponse | None:
        """Ask, or delete what was confirmed; ``None`` leads back to the list."""
        records = list(queryset[: MOST_LOCKS + 1])
        if len(records) > MOST_LOCKS:
            text = gettext("Select fewer locks at a time.")
            self.message_user(request, text, messages.WARNING)
            return None
        held = [record for record in records if _is_held(record)]
        self._tell_held(request, held)
        free = [record for record in records if record not in held]
        if free and not request.POST.get("post"):
            chosen = queryset.filter(pk__in=[record.pk for record in free])
            return actions.delete_selected(self, request, chosen)
        kept = self._delete(request, free)
        self._tell_held(request, kept)
        if done := len(free) - len(kept):
            text = ngettext(
                "%(count)d lock is deleted.", "%(count)d locks are deleted.", done
            )
            self.message_user(request, text % {"count": done}, messages.SUCCESS)
        return None

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Log nothing yet: Django calls it before the database has decided."""
        return []

    def _delete(self, request: HttpRequest, records: Iterable[Any]) -> list[Any]:
        """Delete and log the records of free locks; return those that are held."""
        known = {record.pk: record for record in records}
        stored = self.get_queryset(request)
        # Without the record nobody can tell that a run is abandoned.
        LockRun.objects.using(stored.db).filter(name__in=known).record_abandoned()
        deleted = [record for record in known.values() if _delete_one(request, record)]
        if deleted:
            super().log_deletions(request, deleted)  # type: ignore[arg-type]
        names = known.keys() - {record.name for record in deleted}
        return list(stored.filter(pk__in=names)) if names else []

    def _tell_held(self, request: HttpRequest, records: Iterable[Any]) -> None:
        for record in records:
            text = gettext("Lock “%(name)s” is not deleted: %(holder)s holds it.")
            details = {"name": record.name, "holder": record.locked_by}
            self.message_user(request, text % details, messages.WARNING)


def _delete_one(request: HttpRequest, record: Any) -> bool:
    """Delete the record unless somebody holds its lock; write it into the trail."""
    provider = admin_provider(request)
    trail = Trail(provider)
    row = trail.begin(
        ActionKind.DELETE,
        record.name,
        operator=request.user.get_username(),
        reason="",
        locked_by=record.locked_by,
    )
    found = LockRecord.objects.using(provider.using).filter(pk=record.name)
    if found.acquirable().delete_at_once():
        text = f"The record of lock {record.name!r} is deleted."
        ended = (row, record.name, ActionResult.DONE, text)
        # Rolled back, the request would leave the record; the trail is no part of it.
        transaction.on_commit(lambda: trail.end(*ended), using=provider.using)
        return True
    text = f"The record of lock {record.name!r} is not deleted: somebody holds it."
    trail.end(row, record.name, ActionResult.REFUSED, text)
    return False


def _is_held(record: Any) -> bool:
    return record is not None and LockState(record.state).is_held
