"""What the trail, the command line and the admin say of an action."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy

from django_shedlock import conf
from django_shedlock.durations import format_left
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.states import LockState, LockStatus
from django_shedlock.models.console import ActionKind

REFUSED: dict[ActionKind, Promise] = {
    ActionKind.RELEASE: gettext_lazy("Lock %(name)s is not released: %(why)s."),
    ActionKind.EXTEND: gettext_lazy("Lock %(name)s is not extended: %(why)s."),
    ActionKind.PAUSE: gettext_lazy("The job of lock %(name)s is not paused: %(why)s."),
    ActionKind.RESUME: gettext_lazy("Lock %(name)s is not resumed: %(why)s."),
    ActionKind.RUN: gettext_lazy("The job of lock %(name)s was not started: %(why)s."),
}
UNKNOWN: dict[ActionKind, Promise] = {
    ActionKind.RELEASE: gettext_lazy("Nobody knows whether lock %(name)s is released"),
    ActionKind.EXTEND: gettext_lazy("Nobody knows whether lock %(name)s is extended"),
    ActionKind.PAUSE: gettext_lazy("Nobody knows whether lock %(name)s is paused"),
    ActionKind.RESUME: gettext_lazy("Nobody knows whether lock %(name)s is resumed"),
}
HELD = {ActionKind.RELEASE, ActionKind.EXTEND}
"""What is done to locks that are held."""


def done(
    kind: ActionKind, name: str, before: LockStatus | None, after: LockStatus | None
) -> str:
    """Say that the action was done, and what is true now."""
    told = {
        ActionKind.RELEASE: _released,
        ActionKind.EXTEND: _extended,
        ActionKind.PAUSE: _paused,
        ActionKind.RESUME: _resumed,
    }
    return told[kind](name, before, after)


def refused(
    kind: ActionKind,
    name: str,
    locked_by: str | None,
    after: LockStatus | None,
    before: LockStatus | None = None,
) -> str:
    """Say that the action was not done, and why."""
    if after and after.pause and kind is ActionKind.PAUSE:
        text = gettext("The job of lock %(name)s is paused already: %(why)s.")
        return text % {"name": repr(name), "why": condition(after)}
    is_same = locked_by in {None, after and after.locked_by} or _is_own(kind, locked_by)
    if is_same and after and after.state is LockState.FREE and kind in HELD:
        return gettext("Lock %(name)s is not held.") % {"name": repr(name)}
    why = condition(after)
    if not is_same and kind in HELD:
        text = gettext("%(holder)s does not hold it any more; %(why)s")
        why = text % {"holder": locked_by, "why": why}
    elif not is_same:
        text = gettext("somebody has acquired it since you looked; %(why)s")
        why = text % {"holder": locked_by, "why": why}
    said = str(REFUSED[kind]) % {"name": repr(name), "why": why}
    if kind is ActionKind.PAUSE and before and before.pause and after:
        # It ended by itself, or by somebody else, since it was read.
        text = gettext("The pause by %(operator)s has ended: %(reason)s.")
        return f"{said} {text % _facts(before)}"
    return said


def _is_own(kind: ActionKind, locked_by: str | None) -> bool:
    # A pause that was refused has its own identity, not that of an acquisition seen.
    return kind is ActionKind.PAUSE and Pause.parse(locked_by or "") is not None


def unknown(kind: ActionKind, name: str, after: LockStatus | None) -> str:
    """Say that the store's answer was lost, and what is true now as far as we know."""
    outcome = str(UNKNOWN[kind]) % {"name": repr(name)}
    if after is None:
        text = gettext("%(outcome)s: the store did not answer, and can't be read.")
        return text % {"outcome": outcome}
    text = gettext(
        "%(outcome)s: the store did not answer. A moment later: %(why)s. It may still "
        "happen, so look again."
    )
    return text % {"outcome": outcome, "why": condition(after)}


def condition(status: LockStatus | None) -> str:
    """Say in what state the lock is, as the reason of a refusal."""
    if status is None:
        return gettext("it has no record")
    texts = {
        LockState.RUNNING: gettext("its job is running as %(holder)s"),
        LockState.PAUSED: gettext(
            "%(operator)s paused it, because: %(reason)s; %(end)s"
        ),
        LockState.HELD_AT_LEAST: gettext("lock_at_least_for keeps it for %(left)s"),
        LockState.EXPIRED: gettext(
            "its lease is over, but its job may still be running as %(holder)s"
        ),
        LockState.FREE: gettext("nobody holds it"),
    }
    return texts[status.state] % _facts(status)


def end_of_pause(status: LockStatus) -> str:
    """Say how long a pause lasts."""
    if status.is_endless:
        return gettext("until it is resumed")
    return gettext("for %(left)s more") % {"left": format_left(status.remaining)}


def _facts(status: LockStatus) -> dict[str, Any]:
    pause = status.pause or Pause("", "")
    return {
        "holder": status.locked_by,
        "operator": pause.operator,
        "reason": pause.reason,
        "end": end_of_pause(status),
        "left": format_left(status.remaining),
    }


def _released(name: str, before: LockStatus | None, after: LockStatus | None) -> str:
    facts = {"name": repr(name), "holder": before.locked_by if before else ""}
    said = gettext("Lock %(name)s is released. %(holder)s held it.") % facts
    if before and before.state.may_run:
        text = gettext("Its job was not stopped, and may still run.")
        return f"{said} {text}"
    return said


def _extended(name: str, before: LockStatus | None, after: LockStatus | None) -> str:
    if after is None or not after.state.is_held:
        return gettext("Lock %(name)s was extended.") % {"name": repr(name)}
    text = gettext("Lock %(name)s is held for %(left)s more at the most.")
    said = text % {"name": repr(name), "left": format_left(after.remaining)}
    if before and before.lock_until == after.lock_until:
        text = gettext("Its lease was longer than that already.")
        return f"{said} {text}"
    return said


def _paused(name: str, before: LockStatus | None, after: LockStatus | None) -> str:
    facts = {"name": repr(name), "end": end_of_pause(after) if after else ""}
    said = gettext("The job of lock %(name)s is paused %(end)s.") % facts
    if before and before.pause:
        text = gettext("This replaces the pause by %(operator)s, because: %(reason)s.")
        return f"{said} {text % _facts(before)}"
    if before and before.state is LockState.EXPIRED:
        text = gettext("Its last run, as %(holder)s, may still go on.")
        return f"{said} {text % _facts(before)}"
    return said


def _resumed(name: str, before: LockStatus | None, after: LockStatus | None) -> str:
    text = gettext("The job of lock %(name)s is resumed.")
    if before and before.pause:
        text = gettext(
            "The job of lock %(name)s is resumed. %(operator)s had paused it, because: "
            "%(reason)s."
        )
    facts = _facts(before) if before else {}
    said = text % {**facts, "name": repr(name)}
    return f"{said} {_ticks(after)}" if after and after.schedule else said


def _ticks(status: LockStatus) -> str:
    since = status.overdue_since(ZERO)
    if since is None:
        moment = status.next_tick
        text = gettext("No tick was missed; the next one is at %(tick)s.")
        return text % {"tick": moment and _local(moment)}
    if not status.may_catch_up(ZERO):
        text = gettext("Its tick of %(tick)s was missed, and is not caught up.")
    elif status.overdue_since(default_duration(conf.GRACE)) is None:
        text = gettext(
            "Its tick of %(tick)s was missed: `shedlock catch-up` runs the job once if "
            "it has not succeeded by the end of SHEDLOCK_GRACE."
        )
    else:
        text = gettext(
            "Its tick of %(tick)s was missed: the next `shedlock catch-up` runs the "
            "job once."
        )
    return text % {"tick": _local(since)}


def _local(moment: datetime) -> str:
    shown = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return shown.isoformat(sep=" ", timespec="minutes")
