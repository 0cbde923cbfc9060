"""What an operator does to the lock of another worker: release it, or extend it."""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from django.utils.translation import gettext

from django_shedlock.clocks import aware
from django_shedlock.durations import format_left
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO, check_durations
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider
from django_shedlock.scrubbing import scrubbed
from django_shedlock.signals import lock_force_extended, lock_force_released


@dataclass(frozen=True)
class OperatorAction:
    """
    One action on one lock: which lock, which operator, and why.

    With ``locked_by`` it is for that acquisition only, else for the one that the lock
    has when the action begins. ``operator`` is a name for people, ``reason`` any text;
    ``SHEDLOCK_HISTORY_SCRUB`` takes secrets out of it.
    """

    provider: LockProvider
    name: str
    locked_by: str | None = None
    operator: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        # It goes to the log, the record, the history, the audit log, mails and chats.
        object.__setattr__(self, "reason", scrubbed(self.reason))

    def look(self) -> LockStatus | None:
        """Return the lock; ``None`` if it has no record, or if the store fails."""
        with suppress(LockProviderError):
            return self.provider.status(self.name)
        return None


def force_release(action: OperatorAction, before: LockStatus | None = None) -> bool:
    """
    Release the lock, whoever holds it; return whether that was done.

    ``before`` is the lock, if it was read already. A job that runs is not stopped, so
    another worker may run it at the same time. The signal ``lock_force_released`` has
    the ``action`` and the status ``before``. Return ``False`` if the lock is free, or
    if another acquisition than ``action.locked_by`` holds it. Raises
    ``LockProviderError`` if the store failed.

    Example::

        action = OperatorAction(get_provider(), "nightly", operator="on call")
        force_release(action)
    """
    before = before or action.provider.status(action.name)
    if before is None or not _is_meant(action, before):
        return False
    try:
        is_released = action.provider.replace(before, ZERO)
    except LockProviderError as error:
        after = _after_lost_reply(error, action, before)
        was_free = before.state is LockState.FREE
        if was_free or after is None or after.state is not LockState.FREE:
            raise
        is_released = True
    if is_released:
        lock_force_released.send_robust(
            type(action.provider),
            action=replace(action, locked_by=before.locked_by),
            before=before,
        )
    return is_released


def force_extend(
    action: OperatorAction,
    lock_at_most_for: timedelta,
    before: LockStatus | None = None,
) -> bool:
    """
    Extend the lease of a held lock from now; never shorten it.

    Return whether that was done. The signal ``lock_force_extended`` has the ``action``,
    ``lock_at_most_for``, and the status ``before``. Raises
    ``InvalidLockConfiguration`` if no lease can be as long. Otherwise see
    ``force_release()``.
    """
    check_durations(action.name, lock_at_most_for)
    before = before or action.provider.status(action.name)
    if before is None or not _is_meant(action, before):
        return False
    try:
        is_extended = action.provider.replace(before, lock_at_most_for)
    except LockProviderError as error:
        after = _after_lost_reply(error, action, before)
        wanted = aware(before.clock) + lock_at_most_for
        if after is None or aware(after.lock_until) < wanted:
            raise
        is_extended = True
    if is_extended:
        lock_force_extended.send_robust(
            type(action.provider),
            action=replace(action, locked_by=before.locked_by),
            lock_at_most_for=lock_at_most_for,
            before=before,
        )
    return is_extended


def _is_meant(action: OperatorAction, before: LockStatus) -> bool:
    return action.locked_by in {None, before.locked_by}


def _after_lost_reply(
    error: LockProviderError, action: OperatorAction, before: LockStatus
) -> LockStatus | None:
    """Return the lock if the reply was lost, and nobody has acquired the lock since."""
    after = action.look() if error.is_uncertain else None
    is_same = after is not None and after.locked_by == before.locked_by
    return after if is_same else None


def condition(status: LockStatus | None) -> str:
    """Say in what state the lock is, as the reason why something was not done."""
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
    return texts[status.state] % details(status)


def reason_of_refusal(locked_by: str | None, after: LockStatus | None) -> str:
    """Say why nothing was done to the acquisition ``locked_by`` of this lock."""
    why = condition(after)
    if after is None or locked_by in {None, after.locked_by}:
        return why
    if not locked_by:  # nobody had acquired it when the operator looked
        text = gettext("somebody has acquired it since you looked; %(why)s")
    else:
        text = gettext("%(given)s does not hold it; %(why)s")
    return text % {"given": repr(locked_by), "why": why}


def released_text(before: LockStatus) -> str:
    """Say that the lock is released; ``before`` is its status before that."""
    if before.pause is not None:
        text = gettext(
            "Lock %(name)s is released. This ends the pause by %(operator)s, because: "
            "%(reason)s."
        )
    elif before.state.may_still_run:
        text = gettext(
            "Lock %(name)s is released. %(holder)s held it. Its job was not stopped. "
            "If it still runs, the next start, or a catch-up, runs the job beside it."
        )
    else:
        text = gettext("Lock %(name)s is released. %(holder)s held it.")
    return text % {"name": repr(before.name), **details(before)}


def extended_text(before: LockStatus, lock_at_most_for: timedelta) -> str:
    """Say for how long the extended lock is held; ``before`` is its status before."""
    if before.is_endless:
        text = gettext("The job of lock %(name)s is paused %(end)s.")
        text += " " + gettext("Its lease was longer than that already.")
        return text % {"name": repr(before.name), "end": end_of_pause(before)}
    text = gettext("Lock %(name)s is held for %(left)s more at the most.")
    if before.remaining > lock_at_most_for:
        text += " " + gettext("Its lease was longer than that already.")
    left = format_left(max(lock_at_most_for, before.remaining))
    return text % {"name": repr(before.name), "left": left}


def details(status: LockStatus) -> dict[str, str]:
    """Return what a sentence about a lock may name: its holder, its pause, its end."""
    pause = status.pause or Pause("", "")
    return {
        "holder": status.locked_by,
        "operator": pause.operator,
        "reason": pause.reason,
        "end": end_of_pause(status),
        "left": format_left(status.remaining),
    }


def end_of_pause(status: LockStatus) -> str:
    """Say when the pause ends."""
    if status.is_endless:
        return gettext("until it is resumed")
    return gettext("for %(left)s more") % {"left": format_left(status.remaining)}
