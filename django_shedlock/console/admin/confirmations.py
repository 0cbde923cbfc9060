"""The page that asks for a confirmation: its form, and what it says of each lock."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy, pgettext_lazy

from django_shedlock.clocks import aware
from django_shedlock.console.admin.labels import (
    filled_in,
    holder_of,
    instant,
    isolated,
)
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.sentences import command_to_look, where_to_look
from django_shedlock.console.operators import Action
from django_shedlock.console.operators.acting import Option, unstopped_runs
from django_shedlock.console.operators.requests import request_of
from django_shedlock.durations import (
    format_measured,
    format_rough,
    lacks_unit,
    parse_duration,
)
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.status import LockStatus
from django_shedlock.models import LockRecord


class DurationField(forms.CharField):
    """A duration of at most a year; an option with a default may be left empty."""

    def __init__(self, option: Option):
        self.default: timedelta | bool | None = option.default
        texts: Any = {"label": option.label, "help_text": option.hint}
        is_required = option.default is None
        super().__init__(
            max_length=30, initial=option.initial, required=is_required, **texts
        )

    def clean(self, value: object) -> timedelta | bool | None:
        text = super().clean(value)
        if not text:
            return self.default
        if lacks_unit(text):
            wrong = gettext("%(value)s has no unit: write %(seconds)s or %(minutes)s.")
            values = {"seconds": f"{text}s", "minutes": f"{text}m"}
            raise forms.ValidationError(wrong % {"value": repr(text), **values})
        try:
            duration = parse_duration(text)
        except ValueError:
            duration = ZERO
        if not ZERO < duration <= timedelta(days=365):
            wrong = gettext(
                "Enter a duration of at most a year, such as 30m or 1h30m, instead of "
                "%(value)s."
            )
            raise forms.ValidationError(wrong % {"value": repr(text)})
        return duration


class SwitchField(forms.BooleanField):
    """A check box; if its option is required, only a ticked one is valid."""

    def __init__(self, option: Option):
        texts: Any = {
            "label": option.label,
            "help_text": option.hint,
            "error_messages": {
                "required": gettext_lazy("Look first. Then tick this box.")
            },
        }
        super().__init__(required=option.is_required, **texts)


class ActionForm(forms.Form):
    """The options of an action, the operator's reason, and what to confirm."""

    reason: forms.CharField = forms.CharField(
        label=pgettext_lazy("shedlock", "Reason"),
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
        help_text=gettext_lazy("It is written to the admin's log."),
    )

    def __init__(
        self,
        action: type[Action],
        statuses: Iterable[LockStatus],
        data: Mapping[str, Any] | None = None,
    ):
        super().__init__(data)
        self.action = action
        self.fields: dict[str, forms.Field] = {
            **_fields(action.options),
            **self.fields,
            **_fields(action.assurances(statuses)),
        }

    def leave_out_needless(self, findings: Sequence[Finding]) -> None:
        """Remove the options that make no sense for locks with these findings."""
        for option in self.action.options:
            if option not in self.action.options_for(findings):
                del self.fields[option.name]

    @property
    def options(self) -> dict[str, Any]:
        """The values of the action's options."""
        return {each.name: self.cleaned_data[each.name] for each in self.action.options}


def _fields(options: Iterable[Option]) -> dict[str, forms.Field]:
    return {
        option.name: (
            SwitchField(option) if option.default is False else DurationField(option)
        )
        for option in options
    }


@dataclass(frozen=True)
class UnstoppedRun:
    """A run that may still go on, and how an operator finds its process."""

    locked_by: str
    is_holder: bool

    @property
    def identity(self) -> SafeString:
        """The identity of its acquisition."""
        return isolated(self.locked_by)

    @property
    def where(self) -> SafeString:
        """On which host to look, with a colon if there is a ``command``."""
        host, _ = split_identity(self.locked_by)
        shown = format_html("<bdi>{}</bdi>", host)
        return filled_in(where_to_look(self.locked_by), host=shown)

    @property
    def command(self) -> str:
        """The line to copy into a shell of that host; empty if there is none."""
        return command_to_look(self.locked_by)


@dataclass(frozen=True)
class ConfirmedLock:
    """A lock on the page that asks for a confirmation of an action."""

    record: LockRecord
    action: type[Action]
    findings: Sequence[Finding]

    @property
    def status(self) -> LockStatus:
        """The lock's status when the page was made."""
        return self.record.status

    @property
    def holder(self) -> SafeString:
        """Where the lock was acquired last."""
        return holder_of(self.record.locked_by)

    @property
    def since(self) -> SafeString:
        """When the lock was acquired."""
        return instant(self.record.locked_at)

    @property
    def until(self) -> SafeString:
        """When the lease ends."""
        return instant(self.record.lock_until)

    @property
    def pause(self) -> SafeString:
        """Who paused its job, and why; empty if nobody did."""
        pause = self.status.pause
        if pause is None:
            return SafeString()
        text = gettext("%(operator)s paused its job, because: %(reason)s")
        values = {"operator": pause.operator, "reason": pause.reason}
        return filled_in(text, **{key: _text(each) for key, each in values.items()})

    @property
    def request(self) -> str:
        """Who asks for a run of its job; empty if nobody does."""
        return request_of(self.status)

    @property
    def unstopped_runs(self) -> list[UnstoppedRun]:
        """The runs of its job that may still go on."""
        holder = self.record.locked_by if self.status.state.may_still_run else None
        return [
            UnstoppedRun(run, is_holder=run == holder)
            for run in unstopped_runs(self.status)
        ]

    @property
    def runs_for(self) -> SafeString:
        """For how long its holder has run, and how long a run usually takes."""
        status = self.status
        if status.state.is_held:
            age = status.held_for
            text = gettext("runs for %(time)s")
            with_usual = gettext("runs for %(time)s, usually %(usual)s")
        else:
            age = aware(status.clock) - aware(status.locked_at)
            text = gettext("began %(time)s ago")
            with_usual = gettext("began %(time)s ago, usually takes %(usual)s")
        time, usual = format_rough(age), status.job.usual_duration
        if usual is None:
            return filled_in(text, time=time)
        return filled_in(with_usual, time=time, usual=format_measured(usual))

    @property
    def heartbeat(self) -> str:
        """When its holder last extended the lease, if ever."""
        heartbeat_at = self.status.heartbeat_at
        if heartbeat_at is None:
            return gettext("no heartbeat: its lease was not extended")
        age = aware(self.status.clock) - aware(heartbeat_at)
        return filled_in(gettext("last heartbeat %(age)s ago"), age=format_rough(age))

    @property
    def facts(self) -> str:
        """What the confirmation is bound to, a line for each fact."""
        return "\n".join(self.action.facts(self.status, self.findings))


def _text(written: str) -> SafeString:
    """Return what somebody wrote, in its own direction; it may have several lines."""
    return format_html("<bdi>{}</bdi>", written)
