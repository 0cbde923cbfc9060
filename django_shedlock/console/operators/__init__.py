"""What operators do to the locks of others, and the trail of it."""

from django_shedlock.console.operators.actions import OperatorAction
from django_shedlock.console.operators.answers import Answer

__all__ = ["Answer", "OperatorAction"]
