"""
The signals, and the log lines that hang on them.

The sender is the provider's class. Every signal has ``lock``, but for
``lock_not_acquired``, where nobody has one: it has ``configuration``, ``holder``
and ``provider``. ``lock_released`` also has ``released`` (false if the lock was
not ours any more) and ``exception`` (what ended the body, or ``None``).

The two of operators, ``lock_force_released`` and ``lock_force_extended``, have no
``lock`` but ``intervention``, which says what was done to whose lock, by whom and
why; the second also has ``lock_at_most_for``.

Receivers can't break a job: Django logs what they raise, and the job goes on.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.dispatch import Signal, receiver

from django_shedlock.durations import format_duration
from django_shedlock.triggers import Trigger

if TYPE_CHECKING:
    from django_shedlock.configuration import LockConfiguration
    from django_shedlock.holders import LockHolder
    from django_shedlock.interventions import Intervention
    from django_shedlock.locks import Lock

STARTS = {
    Trigger.SCHEDULER: (logging.DEBUG, ""),
    Trigger.RETRY: (logging.INFO, ", as a retry"),
    Trigger.CATCH_UP: (logging.INFO, ", since its job is overdue"),
    Trigger.OPERATOR: (
        logging.WARNING,
        " by force, whatever its tick and lock_at_least_for",
    ),
}

logger = logging.getLogger("django_shedlock")

lock_acquired = Signal()
lock_not_acquired = Signal()
lock_extended = Signal()
lock_lost = Signal()
lock_released = Signal()
lock_force_released = Signal()
lock_force_extended = Signal()


@receiver(lock_acquired)
def log_acquired(*, lock: Lock, **kwargs: Any) -> None:
    """Log at DEBUG that a job starts; out of turn at INFO, by force at WARNING."""
    level, why = STARTS[lock.configuration.occasion.trigger]
    logger.log(level, "Lock %r acquired as %s%s.", lock.name, lock.locked_by, why)


@receiver(lock_not_acquired)
def log_not_acquired(
    *, configuration: LockConfiguration, holder: LockHolder, **kwargs: Any
) -> None:
    """Log at INFO that a job is skipped, and who runs it or has run its tick."""
    logger.info("Lock %r not acquired: %s.", configuration.name, holder.reason)


@receiver(lock_extended)
def log_extended(*, lock: Lock, **kwargs: Any) -> None:
    """Log at DEBUG that a lease was extended."""
    logger.debug("Lock %r extended by %s.", lock.name, lock.locked_by)


@receiver(lock_lost)
def log_lost(*, lock: Lock, **kwargs: Any) -> None:
    """Log at WARNING that a running job is no longer protected."""
    logger.warning(
        "Lock %r lost by %s: its lease of %s ended, or it was released or taken. "
        "Another worker may be running the same job.",
        lock.name,
        lock.locked_by,
        lock.configuration.lease,
    )


@receiver(lock_released)
def log_released(*, lock: Lock, released: bool, **kwargs: Any) -> None:
    """Log at DEBUG that a lock was given back."""
    if released:
        logger.debug("Lock %r released by %s.", lock.name, lock.locked_by)


@receiver(lock_force_released)
def log_force_released(*, intervention: Intervention, **kwargs: Any) -> None:
    """Log at WARNING that an operator freed a lock, whose job may still run."""
    logger.warning("Lock %r was released %s.", intervention.name, _why(intervention))


@receiver(lock_force_extended)
def log_force_extended(
    *, intervention: Intervention, lock_at_most_for: timedelta, **kwargs: Any
) -> None:
    """Log at WARNING that an operator lengthened a lease."""
    logger.warning(
        "The lease of lock %r was extended to %s from now %s.",
        intervention.name,
        format_duration(lock_at_most_for),
        _why(intervention),
    )


def _why(intervention: Intervention) -> str:
    operator = intervention.operator or "an operator"
    reason = (
        f"because: {intervention.reason!r}"
        if intervention.reason
        else "without a reason"
    )
    holder = f", held by {intervention.locked_by}" if intervention.locked_by else ""
    return f"by {operator}, {reason}{holder}"
