"""What operators do to the locks of others, and the trail of it."""

from django_shedlock.operators.actions import OperatorAction
from django_shedlock.operators.answers import Answer

__all__ = ["Answer", "OperatorAction"]
