"""What starts a job."""

from __future__ import annotations

from enum import StrEnum


class Trigger(StrEnum):
    """
    What starts a job, which decides whether its tick may be run.

    ``SCHEDULER`` runs each tick once. All others run the newest one that is past:
    ``RETRY`` unless it has succeeded, ``CATCH_UP`` if one before it is overdue, and
    once; ``OPERATOR`` at any time, also while ``lock_at_least_for`` keeps the lock.
    """

    SCHEDULER = "scheduler"
    RETRY = "retry"
    CATCH_UP = "catch-up"
    OPERATOR = "operator"
