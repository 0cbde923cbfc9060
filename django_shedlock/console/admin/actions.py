"""The admin's menu, buttons and confirmations, by the table of operators' actions."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import django
from django.contrib import messages
from django.contrib.admin import helpers
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IS_POPUP_VAR
from django.db import Error
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext, pgettext

from django_shedlock.console.admin.base import ConsoleAdmin, Told, has_nul
from django_shedlock.console.admin.confirmations import ActionForm, ConfirmedLock
from django_shedlock.console.admin.filters import admin_provider, query_of, subtitle_of
from django_shedlock.console.models import ActionResult
from django_shedlock.console.operators import ACTIONS, Action, AuditedAction
from django_shedlock.exceptions import ShedLockError
from django_shedlock.execution.operators import condition, reason_of_refusal
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord
from django_shedlock.signals import logger

CONFIRMED_FIELD = "confirmed"
HOLDER_FIELD = "locked_by"
FACT_FIELD = "fact"
"""Followed by the place of the lock on the page; a line for each of its facts."""
SELECTED_LOCK_LIMIT = 200
"""Nobody reads a longer page, and Django refuses forms with a thousand fields."""


class MenuForm(helpers.ActionForm):
    """The list's menu of actions, which also works with django-unfold."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        # The page of django-unfold shows its Run button once this variable is set.
        self.fields["action"].widget.attrs["x-model"] = "action"


class OperatorActions(ConsoleAdmin):
    """
    An admin of locks, with all actions that the user has the permission for.

    Each is confirmed on a page, and is only for the acquisitions that this page shows:
    if another holder has acquired a lock since, it is refused.
    """

    action_form = MenuForm

    def offered(self, request: HttpRequest) -> Mapping[str, type[Action]]:
        """Return the actions that the user may do, by name; dangerous ones last."""
        mine = [
            action
            for action in ACTIONS.values()
            if request.user.has_perm(action.permission)
        ]
        calm = {action.name: action for action in mine if not action.is_dangerous}
        return calm | {action.name: action for action in mine}

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> Any:
        # Since Django 6.1 the page of an object may have actions of its own, too.
        where = {} if action_location is None else {"action_location": action_location}
        found: dict[str, Any] = super().get_actions(request, **where)
        is_list = getattr(action_location, "name", "CHANGE_LIST") == "CHANGE_LIST"
        if self.actions is None or IS_POPUP_VAR in request.GET or not is_list:
            return found
        for name, action in self.offered(request).items():
            ask = partial(type(self).ask, action=action)
            found[name] = (ask, name, f"{action.label}…")
        return found

    def carry_out_confirmed(self, request: HttpRequest) -> HttpResponse | None:
        """Carry out a confirmed action, or say why it can't even be asked for."""
        if not self.has_view_permission(request):
            return None
        back, wrong = HttpResponseRedirect(request.get_full_path()), ""
        chosen = request.POST.get("action", "")
        known = {each.name: each for each in ACTIONS.values()}
        if request.method == "POST" and has_nul(request):
            wrong = gettext("Nothing was done: a posted text has a NUL character.")
        elif chosen in known and chosen not in self.offered(request):
            permission = known[chosen].permission
            wrong = gettext(
                "Nothing was done: “%(action)s” needs the permission %(permission)s, "
                "which you don't have."
            ) % {"action": known[chosen].label, "permission": permission}
        if wrong:
            self.message_user(request, wrong, messages.ERROR)
            return back
        if CONFIRMED_FIELD not in request.POST:
            return None
        if chosen not in self.get_actions(request):
            return None
        action = known[chosen]
        names = request.POST.getlist(ACTION_CHECKBOX_NAME)
        seen = dict(zip(names, request.POST.getlist(HOLDER_FIELD), strict=False))
        # Without the list's filters, but with the limits of a subclass's queryset.
        found: dict[str, Any] = self.get_queryset(request).in_bulk(list(seen))
        provider, operator = admin_provider(request), request.user.get_username()
        # The records decide what must be assured: a form may be old or forged.
        statuses = [
            record.status
            for name, record in found.items()
            if record.locked_by == seen.get(name)
        ]
        form = ActionForm(action, statuses, request.POST)
        same, told = [], list[Told]()
        for place, (name, locked_by) in enumerate(seen.items()):
            record = found.get(name)
            if not form.is_valid() and record and record.locked_by == locked_by:
                same.append(record)
                continue
            # The page must not turn to another holder unnoticed. And users who may not
            # resume a job must not end its pause by another action.
            is_paused = record and record.state == LockState.PAUSED
            is_blocked = is_paused and LockState.PAUSED not in action.states
            if record is None or is_blocked or not form.is_valid():
                status = record and record.status
                why = reason_of_refusal(locked_by, status)
                text = action.not_done(name, status, why)
                told.append((ActionResult.REFUSED, name, text))
                continue
            reason = form.cleaned_data["reason"]
            facts = request.POST.get(f"{FACT_FIELD}-{place}", "").splitlines()
            # It takes secrets out of the reason.
            asked = AuditedAction(provider, name, locked_by, operator, reason, facts)
            try:
                answer = action(**form.options).carry_out(asked, record.status)
            except ShedLockError as error:
                told.append((ActionResult.FAILED, name, str(error)))
                continue
            text = answer.tell()
            told.append((answer.result, name, text))
            if answer.result is not ActionResult.REFUSED:
                self._log(request, asked, text)
        self.tell(request, action.label, told)
        page = self.ask(request, same, action=action, form=form) if same else None
        return page or back

    def _log(self, request: HttpRequest, asked: AuditedAction, text: str) -> None:
        """Write to the admin's log what was done; a failure stops no other lock."""
        why = pgettext("shedlock", "Reason: %(reason)s") % {"reason": asked.reason}
        try:
            self.log_change(request, LockRecord(name=asked.name), f"{text} {why}")
        except Error as error:
            warning = "Lock %r: the admin's log can't be written: %s"
            logger.warning(warning, asked.name, error)

    def ask(
        self,
        request: HttpRequest,
        chosen: Any,
        action: type[Action],
        form: ActionForm | None = None,
    ) -> HttpResponse | None:
        """Ask for a reason and a confirmation; ``None`` leads back to the list."""
        records = list(chosen[: SELECTED_LOCK_LIMIT + 1])
        if len(records) > SELECTED_LOCK_LIMIT:
            text = gettext("Select fewer locks at a time.")
            self.message_user(request, text, messages.WARNING)
            return None
        provider = admin_provider(request)
        meant, others = [], []
        names = [each.name for each in records if each.state in action.states]
        obstacles = action.obstacles(provider, names)
        found = action.findings(provider, names)
        for record in records:
            why = obstacles.get(record.name)
            if record.state not in action.states:
                why = condition(record.status)
            if why:
                others.append((record, why))
                continue
            meant.append(ConfirmedLock(record, action, found.get(record.name, ())))
        if not meant:
            for record, why in others[:1]:
                told = action.not_done(record.name, record.status, why)
                self.message_user(request, told, messages.WARNING)
            return None
        form = form or ActionForm(action, [each.status for each in meant])
        form.leave_out_needless([each for known in found.values() for each in known])
        context = {
            **self.admin_site.each_context(request),
            "title": action.label,
            "subtitle": subtitle_of(request),
            "shedlock_provider": query_of(provider.alias),
            "opts": self.opts,
            "shedlock_breadcrumbs_are_list": django.VERSION >= (6, 1),
            "action": action,
            "notes": action.notes(provider),
            "form": form,
            "meant": meant,
            "others": others,
            "back": request.get_full_path(),
            "checkbox_name": ACTION_CHECKBOX_NAME,
            "holder_name": HOLDER_FIELD,
            "fact_name": FACT_FIELD,
            "confirmed_name": CONFIRMED_FIELD,
        }
        page = "admin/shedlock_console/lockrecord/confirmation.html"
        return TemplateResponse(request, page, context)
