"""The receivers that write forced releases and extensions to the audit log."""

from datetime import timedelta

from django.utils.translation import override

from django_shedlock.console.models import ActionKind, ActionResult
from django_shedlock.console.monitoring.findings import Kind
from django_shedlock.console.monitoring.traces import fact_of
from django_shedlock.console.operators import performing
from django_shedlock.console.operators.audit import AuditedAction, write_action
from django_shedlock.execution.operators import OperatorAction
from django_shedlock.locks.status import LockState, LockStatus


def record_release(
    *, action: OperatorAction, before: LockStatus, **kwargs: object
) -> None:
    """Record a forced release."""
    facts = []
    if before.state is LockState.EXPIRED:
        # An operator who releases an expired lock has looked at it.
        facts.append(fact_of(Kind.EXPIRED, str(action.locked_by)))
    audited = _audited(action, facts)
    with override("en"):
        text = performing.released(audited, before, action.look)
    write_action(audited, ActionKind.RELEASE, ActionResult.DONE, text)


def record_extension(
    *,
    action: OperatorAction,
    before: LockStatus,
    lock_at_most_for: timedelta,
    **kwargs: object,
) -> None:
    """Record a forced extension."""
    audited = _audited(action, [])
    with override("en"):
        text = performing.extended(audited, before, action.look)
    write_action(audited, ActionKind.EXTEND, ActionResult.DONE, text)


def _audited(action: OperatorAction, facts: list[str]) -> AuditedAction:
    return AuditedAction(
        action.provider,
        action.name,
        action.locked_by,
        action.operator,
        action.reason,
        facts,
    )
