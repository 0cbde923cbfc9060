"""The page that asks an operator whether, and why."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import django
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.functional import Promise
from django.utils.translation import gettext

from django_shedlock.admin.forms import ReasonForm
from django_shedlock.admin.labels import instant
from django_shedlock.admin.shown import shown_provider
from django_shedlock.exceptions import ShedLockError
from django_shedlock.identities import split_identity
from django_shedlock.interventions import Intervention
from django_shedlock.models import LockRecord
from django_shedlock.states import LockState

TEMPLATE = "admin/django_shedlock/lockrecord/confirmation.html"
CONFIRMED = "confirmed"
HOLDER = "locked_by"
MOST_LOCKS = 200
"""Nobody reads a longer page, and Django refuses a form with a thousand fields."""


class Confirmation(ABC):
    """
    One action on some locks, each as the operator saw it held.

    The page has the acquisitions that it shows. What is done is done to these only: if
    another holder came in between, nothing happens to its lock, and that is said.
    """

    action: str
    form_class: type[ReasonForm] = ReasonForm
    title: str | Promise
    button: str | Promise
    question: str | Promise
    refusal: str | Promise

    def __init__(self, model_admin: ModelAdmin[Any], request: HttpRequest):
        self.model_admin = model_admin
        self.request = request

    def respond(self, selected: QuerySet[LockRecord]) -> TemplateResponse | None:
        """Ask, or do what was confirmed; ``None`` is the way back to the list."""
        if not self.request.POST.get(CONFIRMED):
            return self._ask(list(selected), self.form_class())
        form = self.form_class(self.request.POST)
        if not form.is_valid():
            records = self._as_seen()
            return self._ask(records, form) if records else None
        known = self._known()
        for name, locked_by in self._seen():
            if name in known:
                self._act(name, locked_by, form.cleaned_data)
            else:
                self._refuse(name, locked_by)
        return None

    @abstractmethod
    def act(self, intervention: Intervention, data: dict[str, Any]) -> bool:
        """Do it; return whether the lock was still the acquisition's."""

    @abstractmethod
    def done(self, intervention: Intervention, data: dict[str, Any]) -> str:
        """Return what the operator and the admin's log are told of a success."""

    def _seen(self) -> Iterator[tuple[str, str]]:
        names = self.request.POST.getlist(ACTION_CHECKBOX_NAME)
        return zip(names, self.request.POST.getlist(HOLDER), strict=False)

    def _known(self) -> dict[str, Any]:
        # Without the list's filters, but not beyond what a subclass lets somebody see.
        names = [name for name, _ in self._seen()]
        records = self.model_admin.get_queryset(self.request).filter(pk__in=names)
        return {record.name: record for record in records}

    def _as_seen(self) -> list[Any]:
        # Asked again, the operator may not notice that another holder came in between.
        known = self._known()
        same = []
        for name, locked_by in self._seen():
            if name in known and known[name].locked_by == locked_by:
                same.append(known[name])
            else:
                self._refuse(name, locked_by)
        return same

    def _act(self, name: str, locked_by: str, data: dict[str, Any]) -> None:
        intervention = Intervention(
            shown_provider(),
            name,
            locked_by,
            operator=self.request.user.get_username(),
            reason=data["reason"],
        )
        try:
            succeeded = self.act(intervention, data)
        except ShedLockError as error:
            self._tell(str(error), messages.ERROR)
            return
        if not succeeded:
            self._refuse(name, locked_by)
            return
        done = self.done(intervention, data)
        reason = gettext("Reason: %(reason)s") % {"reason": intervention.reason}
        self.model_admin.log_change(
            self.request, LockRecord(name=name), f"{done} {reason}"
        )
        self._tell(done, messages.SUCCESS)

    def _refuse(self, name: str, locked_by: str) -> None:
        refusal = str(self.refusal) % {"name": name, "holder": locked_by}
        self._tell(refusal, messages.WARNING)

    def _tell(self, text: str, level: int) -> None:
        self.model_admin.message_user(self.request, text, level)

    def _ask(self, records: list[Any], form: ReasonForm) -> TemplateResponse | None:
        held = [r for r in records if LockState(r.state).is_held]
        if not held:
            self._tell(gettext("None of these locks is held."), messages.WARNING)
            return None
        if len(held) > MOST_LOCKS:
            self._tell(gettext("Select fewer locks at a time."), messages.WARNING)
            return None
        context = {
            **self.model_admin.admin_site.each_context(self.request),
            "title": self.title,
            "opts": self.model_admin.opts,
            "shedlock_breadcrumbs_are_list": django.VERSION >= (6, 1),
            "media": self.model_admin.media + form.media,
            "confirmation": self,
            "form": form,
            "held": [_described(record) for record in held],
            "others": [r for r in records if r not in held],
            "back": self.request.get_full_path(),
            "checkbox_name": ACTION_CHECKBOX_NAME,
            "holder_name": HOLDER,
            "confirmed_name": CONFIRMED,
        }
        return TemplateResponse(self.request, TEMPLATE, context)


def _described(record: Any) -> dict[str, Any]:
    host, pid = split_identity(record.locked_by)
    return {
        "record": record,
        "host": host,
        "pid": pid,
        "since": instant(record.locked_at),
        "until": instant(record.lock_until),
        "is_running": record.state == LockState.RUNNING,
    }
