"""What operators do to the locks of others, and the trail of it."""

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
from django_shedlock.console.operators.trail import OperatorAction

__all__ = ["ACKNOWLEDGE", "ACTIONS", "EXTEND", "PAUSE", "RELEASE", "RESUME", "RUN"]
__all__ += ["WITHDRAW", "Answer", "OperatorAction"]
