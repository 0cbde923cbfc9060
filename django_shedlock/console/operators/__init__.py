"""What operators do to the locks of others, and the audit log."""

from django_shedlock.console.operators.acting import Answer
from django_shedlock.console.operators.actions import (
    ACKNOWLEDGE,
    ACTIONS,
    EXTEND,
    PAUSE,
    RELEASE,
    RESUME,
    RUN,
    WITHDRAW,
)
from django_shedlock.console.operators.audit import AuditedAction

__all__ = ["ACKNOWLEDGE", "ACTIONS", "EXTEND", "PAUSE", "RELEASE", "RESUME", "RUN"]
__all__ += ["WITHDRAW", "Answer", "AuditedAction"]
