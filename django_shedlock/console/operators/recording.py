"""The receivers that write forced releases and extensions to the audit log."""

from datetime import timedelta

from django.utils.translation import override

from django_shedlock.console.models import ActionKind, ActionResult
from django_shedlock.console.monitoring.kinds import Kind, fact_of
from django_shedlock.console.operators.audit import AuditedAction, write_action
from django_shedlock.execution.operators import (
    OperatorAction,
    extended_text,
    released_text,
)
from django_shedlock.locks.status import LockState, LockStatus


def record_release(
    *, action: OperatorAction, before: LockStatus, **kwargs: object
) -> None:
    """Record a forced release."""
    with override("en"):
        text = released_text(before)
    # An operator releases an expired lock when its process is gone: each page and each
    # finding says so.
    is_expired = before.state is LockState.EXPIRED
    facts = [fact_of(Kind.EXPIRED, str(action.locked_by))] if is_expired else []
    asked = AuditedAction.of(action, facts)
    write_action(asked, ActionKind.RELEASE, ActionResult.DONE, text)


def record_extension(
    *,
    action: OperatorAction,
    before: LockStatus,
    lock_at_most_for: timedelta,
    **kwargs: object,
) -> None:
    """Record a forced extension."""
    with override("en"):
        text = extended_text(before, lock_at_most_for)
    asked = AuditedAction.of(action)
    write_action(asked, ActionKind.EXTEND, ActionResult.DONE, text)
