"""What an operator can do to locks, and the page that asks for confirmation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import django
from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy, pgettext, pgettext_lazy

from django_shedlock.console.admin.filters import admin_provider, query_of, subtitle_of
from django_shedlock.console.admin.labels import instant
from django_shedlock.console.operators import Answer, OperatorAction, texts
from django_shedlock.exceptions import ShedLockError
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.states import LockState
from django_shedlock.models import ActionResult, LockRecord

TEMPLATE = "admin/django_shedlock/lockrecord/confirmation.html"
CONFIRMED = "confirmed"
HOLDER = "locked_by"
MOST_LOCKS = 200
"""Nobody reads a longer page, and Django refuses forms with a thousand fields."""


class ReasonForm(forms.Form):
    """Why an operator intervenes."""

    reason = forms.CharField(
        label=pgettext_lazy("shedlock", "Reason"),
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
        help_text=gettext_lazy("It is written to the admin's log."),
    )


class Confirmation(ABC):
    """
    One action on some locks, which the operator has to confirm.

    The page names the acquisitions that it shows, and the action is for these only: if
    another holder has acquired a lock since, the operator gets the refusal.
    """

    action: str
    states: frozenset[LockState]
    """The states of the locks with which there is something to do."""
    form_class: type[ReasonForm] = ReasonForm
    title: Promise
    button: Promise
    question: Promise
    refusal: Promise
    nothing: Promise = gettext_lazy("None of these locks is held.")
    is_dangerous: bool = False
    """Whether its buttons are red."""

    def __init__(self, model_admin: ModelAdmin[Any], request: HttpRequest):
        self.model_admin = model_admin
        self.request = request

    def respond(self, selected: QuerySet[LockRecord]) -> TemplateResponse | None:
        """Ask, or do what was confirmed; ``None`` leads back to the list."""
        if not self.request.POST.get(CONFIRMED):
            return self._ask(list(selected[: MOST_LOCKS + 1]), self.form_class())
        form = self.form_class(self.request.POST)
        if not form.is_valid():
            records = self._as_seen()
            return self._ask(records, form) if records else None
        known = self._known()
        for name, locked_by in self._seen():
            if name in known and self._may_act_on(known[name]):
                self._act(name, locked_by, form.cleaned_data)
            else:
                self._refuse(name, locked_by)
        return None

    def obstacle(self, record: Any) -> str | None:
        """Return why there is nothing to do with this lock; ``None`` if there is."""
        if LockState(record.state) in self.states:
            return None
        return texts.condition(record.status)

    @property
    def notes(self) -> list[str]:
        """What else the operator should know before the confirmation."""
        return []

    @abstractmethod
    def act(self, action: OperatorAction, data: dict[str, Any]) -> Answer:
        """Do it."""

    def _may_act_on(self, record: Any) -> bool:
        # Whoever may not resume a job must not end its pause by another action.
        is_paused = LockState(record.state) is LockState.PAUSED
        return not is_paused or LockState.PAUSED in self.states

    def _seen(self) -> Iterator[tuple[str, str]]:
        names = self.request.POST.getlist(ACTION_CHECKBOX_NAME)
        return zip(names, self.request.POST.getlist(HOLDER), strict=False)

    def _known(self) -> dict[str, Any]:
        # Not by the list's filters, but only what a subclass lets this user see.
        names = [name for name, _ in self._seen()]
        records = self.model_admin.get_queryset(self.request).filter(pk__in=names)
        return {record.name: record for record in records}

    def _as_seen(self) -> list[Any]:
        # The page asks again, and the operator may not notice a new holder there.
        known = self._known()
        same = []
        for name, locked_by in self._seen():
            if name in known and known[name].locked_by == locked_by:
                same.append(known[name])
            else:
                self._refuse(name, locked_by)
        return same

    def _act(self, name: str, locked_by: str, data: dict[str, Any]) -> None:
        action = OperatorAction(
            admin_provider(self.request),
            name,
            locked_by,
            operator=self.request.user.get_username(),
            reason=data["reason"],
        )
        try:
            answer = self.act(action, data)
        except ShedLockError as error:
            self._tell(str(error), messages.ERROR)
            return
        told = answer.tell()
        if answer.result is ActionResult.REFUSED:
            self._tell(told, messages.WARNING)
            return
        reason = pgettext("shedlock", "Reason: %(reason)s") % data
        record = LockRecord(name=name)
        self.model_admin.log_change(self.request, record, f"{told} {reason}")
        is_known = answer.result is not ActionResult.STARTED
        self._tell(told, messages.SUCCESS if is_known else messages.ERROR)

    def _refuse(self, name: str, locked_by: str) -> None:
        refusal = self.refusal % {"name": name, "holder": locked_by}
        self._tell(refusal, messages.WARNING)

    def _tell(self, text: str, level: int) -> None:
        self.model_admin.message_user(self.request, text, level)

    def _ask(self, records: list[Any], form: ReasonForm) -> TemplateResponse | None:
        if len(records) > MOST_LOCKS:
            self._tell(gettext("Select fewer locks at a time."), messages.WARNING)
            return None
        obstacles = [(record, self.obstacle(record)) for record in records]
        held = [record for record, why in obstacles if why is None]
        others = [(record, why) for record, why in obstacles if why is not None]
        if not held:
            why = "".join(f" {record.name}: {why}." for record, why in others[:1])
            self._tell(f"{self.nothing}{why}", messages.WARNING)
            return None
        context = {
            **self.model_admin.admin_site.each_context(self.request),
            "title": self.title,
            "subtitle": subtitle_of(self.request),
            "shedlock_provider": query_of(admin_provider(self.request).alias),
            "opts": self.model_admin.opts,
            "shedlock_breadcrumbs_are_list": django.VERSION >= (6, 1),
            "confirmation": self,
            "form": form,
            "held": [_described(record) for record in held],
            "others": others,
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
        "may_run": LockState(record.state).may_run,
        "is_free": LockState(record.state) is LockState.FREE,
        "pause": record.status.pause,
    }
