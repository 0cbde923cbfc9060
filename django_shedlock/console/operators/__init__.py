"""What operators do to the locks of others, and the audit log."""

from django_shedlock.console.operators.acting import Action, Answer
from django_shedlock.console.operators.actions import (
    ACTIONS,
    AcknowledgeFindings,
    ExtendLease,
    PauseJob,
    ReleaseLock,
    ResumeJob,
)
from django_shedlock.console.operators.audit import AuditedAction, remark_on
from django_shedlock.console.operators.requests import RequestRun, WithdrawRequest

__all__ = ["ACTIONS", "AcknowledgeFindings", "Action", "Answer", "AuditedAction"]
__all__ += ["ExtendLease", "PauseJob", "ReleaseLock", "RequestRun", "ResumeJob"]
__all__ += ["WithdrawRequest", "remark_on"]
