"""What an operator can do to locks, and the page that asks for confirmation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import timedelta
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
from django.utils.translation import gettext, gettext_lazy

from django_shedlock.admin.labels import admin_provider, instant
from django_shedlock.durations import format_duration, parse_duration
from django_shedlock.exceptions import ShedLockError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.states import LockState
from django_shedlock.models import LockRecord
from django_shedlock.operators import OperatorAction

LONGEST_LEASE = timedelta(days=365)

TEMPLATE = "admin/django_shedlock/lockrecord/confirmation.html"
CONFIRMED = "confirmed"
HOLDER = "locked_by"
MOST_LOCKS = 200
"""Nobody reads a longer page, and Django refuses forms with a thousand fields."""


class ReasonForm(forms.Form):
    """Why an operator intervenes."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
        help_text=gettext_lazy("It is written to the admin's log."),
    )


class LeaseForm(ReasonForm):
    """For how long, and why."""

    lock_at_most_for = forms.CharField(
        label=gettext_lazy("Lease from now"),
        max_length=30,
        initial="30m",
        help_text=gettext_lazy("For example 30m or 1h30m. It never becomes shorter."),
    )
    field_order = ("lock_at_most_for", "reason")

    def clean_lock_at_most_for(self) -> timedelta:
        """Return the lease; refuse anything else, and more than a year."""
        try:
            lease = parse_duration(self.cleaned_data["lock_at_most_for"])
        except (ValueError, OverflowError):
            lease = timedelta(0)
        if not timedelta(0) < lease <= LONGEST_LEASE:
            raise forms.ValidationError(
                gettext("Enter a duration of at most a year, such as 30m or 1h30m.")
            )
        return lease


class Confirmation(ABC):
    """
    One action on some locks, which the operator has to confirm.

    The page names the acquisitions that it shows, and the action is for these only: if
    another holder has acquired a lock since, the operator gets the refusal.
    """

    action: str
    form_class: type[ReasonForm] = ReasonForm
    title: Promise
    button: Promise
    question: Promise
    success: Promise
    refusal: Promise

    def __init__(self, model_admin: ModelAdmin[Any], request: HttpRequest):
        self.model_admin = model_admin
        self.request = request

    def respond(self, selected: QuerySet[LockRecord]) -> TemplateResponse | None:
        """Ask, or do what was confirmed; ``None`` leads back to the list."""
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

    def applies_to(self, state: LockState) -> bool:
        """Whether there is something to do with a lock in this state."""
        return state.is_held

    @abstractmethod
    def act(self, action: OperatorAction, data: dict[str, Any]) -> bool:
        """Do it; return whether the acquisition still held the lock."""

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
            admin_provider(),
            name,
            locked_by,
            operator=self.request.user.get_username(),
            reason=data["reason"],
        )
        try:
            succeeded = self.act(action, data)
        except ShedLockError as error:
            self._tell(str(error), messages.ERROR)
            return
        if not succeeded:
            self._refuse(name, locked_by)
            return
        lease = format_duration(data.get("lock_at_most_for", ZERO))
        done = self.success % {"name": name, "holder": locked_by, "lease": lease}
        reason = gettext("Reason: %(reason)s") % data
        record = LockRecord(name=name)
        self.model_admin.log_change(self.request, record, f"{done} {reason}")
        self._tell(done, messages.SUCCESS)

    def _refuse(self, name: str, locked_by: str) -> None:
        refusal = self.refusal % {"name": name, "holder": locked_by}
        self._tell(refusal, messages.WARNING)

    def _tell(self, text: str, level: int) -> None:
        self.model_admin.message_user(self.request, text, level)

    def _ask(self, records: list[Any], form: ReasonForm) -> TemplateResponse | None:
        held = [r for r in records if self.applies_to(LockState(r.state))]
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


class ReleaseConfirmation(Confirmation):
    """Releases locks, even if their jobs still run."""

    action = "release_selected"
    title = gettext_lazy("Release locks?")
    button = gettext_lazy("Release")
    question = gettext_lazy(
        "Another worker can acquire a released lock at once. A job that still runs "
        "under it is not stopped: make sure that it is dead, or it will run twice."
    )
    success = gettext_lazy("Lock “%(name)s” is released; %(holder)s held it.")
    refusal = gettext_lazy(
        "Lock “%(name)s” is not released: %(holder)s does not hold it any more."
    )

    def applies_to(self, state: LockState) -> bool:
        """Of an expired lock nobody knows whether its job still runs."""
        return state is not LockState.FREE

    def act(self, action: OperatorAction, data: dict[str, Any]) -> bool:
        """See Confirmation.act()."""
        return action.release(running=True)


class ExtendConfirmation(Confirmation):
    """Extends the leases of held locks."""

    action = "extend_selected"
    form_class = LeaseForm
    title = gettext_lazy("Extend locks?")
    button = gettext_lazy("Extend")
    question = gettext_lazy(
        "An extended lock stays held for longer, even if its worker is dead. A worker "
        "learns of its longer lease when it asks the next time."
    )
    success = gettext_lazy(
        "Lock “%(name)s” is extended to %(lease)s from now; %(holder)s holds it."
    )
    refusal = gettext_lazy(
        "Lock “%(name)s” is not extended: %(holder)s does not hold it any more."
    )

    def act(self, action: OperatorAction, data: dict[str, Any]) -> bool:
        """See Confirmation.act()."""
        return action.extend(data["lock_at_most_for"])


def _described(record: Any) -> dict[str, Any]:
    host, pid = split_identity(record.locked_by)
    return {
        "record": record,
        "host": host,
        "pid": pid,
        "since": instant(record.locked_at),
        "until": instant(record.lock_until),
        "may_run": LockState(record.state).may_run,
    }
