"""What operators do to the locks of others, and the trail of it."""

from django_shedlock.console.operators.actions import (
    ACTIONS,
    EXTEND,
    PAUSE,
    RELEASE,
    RESUME,
    RUN,
    WITHDRAW,
)
from django_shedlock.console.operators.trail import Answer, OperatorAction

__all__ = ["ACTIONS", "EXTEND", "PAUSE", "RELEASE", "RESUME", "RUN", "WITHDRAW"]
__all__ += ["Answer", "OperatorAction"]
