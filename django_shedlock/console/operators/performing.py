"""What each action of operators does to a lock, and what is said of it."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from django.utils.functional import Promise
from django.utils.translation import gettext

from django_shedlock import conf
from django_shedlock.clocks import Backoff, local_text
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.operators.audit import AuditedAction
from django_shedlock.durations import format_left
from django_shedlock.execution.operators import (
    condition,
    details,
    end_of_pause,
    force_extend,
    force_release,
    reason_of_refusal,
)
from django_shedlock.history.recording import record_forced_release, write_abandoned
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Start, Trigger

Look = Callable[[], LockStatus | None]
"""Reads the lock as it is after the action; ``None`` if it can't be read."""


def release(
    asked: AuditedAction, before: LockStatus | None, *, running: bool = False
) -> bool:
    """Release the lock; if its job may run, only where ``running`` says so."""
    if before is None or not (running or before.state is LockState.HELD_AT_LEAST):
        return False
    return force_release(asked, before)


def extend(
    asked: AuditedAction, before: LockStatus | None, *, lock_at_most_for: timedelta
) -> bool:
    """Extend the lease of the lock."""
    return before is not None and force_extend(asked, lock_at_most_for, before)


def replaced(
    asked: AuditedAction,
    before: LockStatus,
    lasting: timedelta,
    *,
    locked_by: str | None = None,
) -> bool:
    """
    Release the lock, or replace a pause; return whether that was done.

    A run that was open is accounted for with that, so it is written to the history.
    """
    if not asked.provider.replace(before, lasting, locked_by=locked_by):
        return False
    record_forced_release(action=asked, before=before)
    return True


def pause(
    asked: AuditedAction,
    before: LockStatus | None,
    *,
    lasting: timedelta = FOREVER,
    wait: timedelta = ZERO,
) -> bool:
    """
    Hold the lock by an acquisition of the operator's own, so its job does not run.

    A job that runs is not stopped; with ``wait``, wait so long for its end. A pause
    with another reason or end is replaced. A lock without a record gets one.
    """
    start = Start(Trigger.OPERATOR)
    configuration = LockConfiguration(asked.name, lasting, start=start)
    lock = Lock(asked.provider, configuration, opens_run=False)
    lock.locked_by = str(asked.locked_by)
    if before and before.pause:
        wanted = Pause.parse(lock.locked_by)
        is_endless = before.is_endless and lasting == FOREVER
        if is_endless and wanted and wanted.reason == before.pause.reason:
            return False
        if replaced(asked, before, lasting, locked_by=lock.locked_by):
            return True
    backoff = Backoff(wait)
    while asked.provider.acquire(lock) is not None:
        if backoff.is_over:
            return False
        time.sleep(backoff.pause())
    if lock.abandoned is not None and conf.HISTORY.value:
        write_abandoned(asked.provider, asked.name, lock.abandoned)
    return True


def of_findings(asked: AuditedAction, before: LockStatus | None) -> Sequence[str]:
    """Return the facts of all findings that the lock has now."""
    found = Search(acknowledged=True).of_locks(asked.provider, [asked.name])
    return [finding.fact for finding in found.get(asked.name, ())]


def refused(
    text: Promise | str, name: str, locked_by: str | None, after: LockStatus | None
) -> str:
    """Fill in ``text`` why the action on the acquisition ``locked_by`` was not done."""
    why = reason_of_refusal(locked_by, after)
    return str(text) % {"name": repr(name), "why": why}


def unknown(text: Promise | str, name: str, after: LockStatus | None) -> str:
    """Say that the store's answer was lost, and in what state the lock is now."""
    outcome = str(text) % {"name": repr(name)}
    told = gettext("%(outcome)s: the store did not answer, and can't be read.")
    if after is not None:
        told = gettext(
            "%(outcome)s: the store did not answer. A moment later: %(why)s. It may "
            "still happen, so look again."
        )
    return told % {"outcome": outcome, "why": condition(after)}


def released(asked: AuditedAction, before: LockStatus, look: Look) -> str:
    """Say that a lock is released; what it is now need not be read."""
    told = gettext("Lock %(name)s is released. %(holder)s held it.")
    if before.state.may_still_run:
        told += " " + gettext("Its job was not stopped, and may still run.")
    return told % {"name": repr(asked.name), "holder": before.locked_by}


def extended(asked: AuditedAction, before: LockStatus, look: Look) -> str:
    """Say for how long an extended lock is held now."""
    after = look()
    if after is None or not after.state.is_held:
        return gettext("Lock %(name)s was extended.") % {"name": repr(asked.name)}
    told = gettext("Lock %(name)s is held for %(left)s more at the most.")
    if before.lock_until == after.lock_until:
        told += " " + gettext("Its lease was longer than that already.")
    return told % {"name": repr(asked.name), "left": format_left(after.remaining)}


def paused(asked: AuditedAction, before: LockStatus | None, look: Look) -> str:
    """Say how long a job is paused, and what the pause replaces."""
    after = look()
    facts = {"name": repr(asked.name), "end": end_of_pause(after) if after else ""}
    told = gettext("The job of lock %(name)s is paused %(end)s.") % facts
    if before and before.pause:
        text = gettext("This replaces the pause by %(operator)s, because: %(reason)s.")
        return f"{told} {text % details(before)}"
    if before and before.state is LockState.EXPIRED:
        text = gettext("Its last run, as %(holder)s, may still go on.")
        return f"{told} {text % details(before)}"
    return told


def notes_of_resume(provider: LockProvider) -> Sequence[str]:
    """Return what becomes of the ticks that came during the pause."""
    return [gettext("Ticks that came during the pause are not run.")]


def resumed(asked: AuditedAction, before: LockStatus, look: Look) -> str:
    """Say whose pause has ended, and when the job runs next."""
    text = gettext(
        "The job of lock %(name)s is resumed. %(operator)s had paused it, because: "
        "%(reason)s."
    )
    told = text % {"name": repr(asked.name), **details(before)}
    after = look()
    return f"{told} {_ticks(after)}" if after and after.schedule else told


def _ticks(status: LockStatus) -> str:
    moment = status.next_tick
    text = gettext(
        "Ticks that came during the pause are not run; the next one is at %(tick)s."
    )
    return text % {"tick": moment and local_text(moment)}
