"""
The signals, and their receivers that write the log.

The sender is the provider's class. Every signal has ``lock``, with these exceptions:
``lock_not_acquired`` has ``configuration``, ``holder``, ``provider``, and ``caller``,
the name of another management command in whose ``handle()`` it happened, or ``None``.
``lock_force_released`` and ``lock_force_extended`` have ``action``, an
``OperatorAction``, and ``before``, the lock's status before it; the latter also
``lock_at_most_for``. The console sends ``lock_paused`` and ``lock_resumed`` with the
``action``, its ``answer``, the lock's status ``before`` and, for a pause, ``lasting``.

``lock_released`` also has ``released`` (false if the lock was no longer ours) and
``exception`` (what ended the body, or ``None``).

Receivers can't break a job: Django logs what they raise, and the job goes on.
"""

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Any

from django.dispatch import Signal, receiver

from django_shedlock.durations import format_duration, format_left


class GuardedLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs as its logger does; what a handler raises is printed, and ends nobody."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log it with the caller's place in the code."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            self.logger.log(level, msg, *args, **kwargs)
        except Exception:
            with suppress(Exception):  # there may be no stderr
                traceback.print_exc()


logger: GuardedLogger = GuardedLogger(logging.getLogger("django_shedlock"), {})
"""The one logger of the package. Its threads rely on it that each call returns."""

Surround = Callable[[Any], AbstractContextManager[Any]]
"""Gets the ``Lock`` of a body, and returns the context manager to put around it."""

around_body: list[Surround] = []
"""
What integrations put around each body that runs under a lock, the outermost first.

None of them can break a job, or change what it raises: see ``surrounded()``.
"""

lock_acquired: Signal = Signal(use_caching=True)
lock_not_acquired: Signal = Signal(use_caching=True)
lock_extended: Signal = Signal(use_caching=True)
lock_lost: Signal = Signal(use_caching=True)
lock_released: Signal = Signal(use_caching=True)
lock_force_released: Signal = Signal(use_caching=True)
lock_force_extended: Signal = Signal(use_caching=True)
lock_paused: Signal = Signal(use_caching=True)
lock_resumed: Signal = Signal(use_caching=True)


@contextmanager
def surrounded(lock: Any) -> Iterator[None]:
    """Run the body inside the context managers of ``around_body``."""
    with ExitStack() as stack:
        for surround in around_body:
            stack.enter_context(_Guarded(surround, lock))
        yield


class _Guarded(AbstractContextManager[None]):
    """An integration's context manager; what it raises is logged, and ends no job."""

    def __init__(self, surround: Surround, lock: Any):
        self._surround, self._lock = surround, lock
        self._entered: AbstractContextManager[Any] | None = None

    def __enter__(self) -> None:
        try:
            context = self._surround(self._lock)
            context.__enter__()
        except Exception:
            logger.exception(
                "Lock %r: the integration %r failed, so the job runs without it.",
                self._lock.name,
                self._surround,
            )
        else:
            self._entered = context

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._entered is None:
            return
        try:
            self._entered.__exit__(kind, error, trace)  # can't suppress the error
        except Exception as failure:
            if failure is not error:
                logger.exception(
                    "Lock %r: the integration %r failed at the end of the job.",
                    self._lock.name,
                    self._surround,
                )


@receiver(lock_acquired)
def log_acquired(*, lock: Any, **kwargs: Any) -> None:
    """Log at DEBUG that a job starts; at INFO out of turn, at WARNING by force."""
    level, remark = logging.DEBUG, ""
    match lock.configuration.start.trigger:
        case "retry":
            level, remark = logging.INFO, ", as a retry"
        case "catch-up":
            level, remark = logging.INFO, ", because its job is overdue"
        case "operator":
            level = logging.WARNING
            remark = " by force, whatever its tick and lock_at_least_for"
    logger.log(level, "Lock %r acquired as %s%s.", lock.name, lock.locked_by, remark)


@receiver(lock_not_acquired)
def log_not_acquired(
    *, configuration: Any, holder: Any, caller: str | None = None, **kwargs: Any
) -> None:
    """Log at INFO that a job is skipped, why, and which command called it, if any."""
    if logger.isEnabledFor(logging.INFO):
        remark = "" if caller is None else f" The command {caller!r} called it."
        text = "Lock %r not acquired: %s.%s"
        logger.info(text, configuration.name, holder.reason, remark)


@receiver(lock_extended)
@receiver(lock_released)
def log_progress(*, signal: Signal, lock: Any, **kwargs: Any) -> None:
    """Log at DEBUG that a lease was extended, or a lock that was ours released."""
    if kwargs.get("released", True):
        done = "released" if signal is lock_released else "extended"
        logger.debug("Lock %r %s by %s.", lock.name, done, lock.locked_by)


@receiver(lock_lost)
def log_lost(*, lock: Any, **kwargs: Any) -> None:
    """Log at WARNING that a running job is no longer protected."""
    logger.warning(
        "Lock %r lost by %s: its lease of %s ended, or somebody else released it. "
        "Another worker may be running the same job.",
        lock.name,
        lock.locked_by,
        lock.configuration.lease,
    )


@receiver(lock_force_released)
def log_force_released(*, action: Any, before: Any, **kwargs: Any) -> None:
    """Log at WARNING that an operator released a lock, whose job may still run."""
    if before.pause is not None:
        _log_end_of_pause(action, before.pause)
        return
    logger.warning(
        "Lock %r was released %s, held by %s.",
        action.name,
        _who_and_why(action),
        before.locked_by,
    )


@receiver(lock_force_extended)
def log_force_extended(
    *, action: Any, lock_at_most_for: timedelta, before: Any, **kwargs: Any
) -> None:
    """Log at WARNING that an operator extended a lease."""
    # The lease before may have been longer.
    left = max(lock_at_most_for, before.remaining)
    is_pause = before.pause is not None
    logger.warning(
        "The lease of lock %r lasts for %s more: extended to at least %s from now %s, "
        "%s.",
        action.name,
        format_left(left),
        format_duration(lock_at_most_for),
        _who_and_why(action),
        _owned_pause(before.pause) if is_pause else f"held by {before.locked_by}",
    )


@receiver(lock_paused)
def log_paused(*, action: Any, before: Any, **kwargs: Any) -> None:
    """Log at WARNING that an operator paused a job, and whose pause that replaces."""
    former = None if before is None else before.pause
    remark = "" if former is None else f" This replaces {_owned_pause(former)}."
    text = "Lock %r: its job is paused %s.%s"
    logger.warning(text, action.name, _who_and_why(action), remark)


@receiver(lock_resumed)
def log_resumed(*, action: Any, before: Any, **kwargs: Any) -> None:
    """Log at WARNING that an operator resumed a job."""
    _log_end_of_pause(action, before.pause)


def _log_end_of_pause(action: Any, pause: Any) -> None:
    text = "Lock %r: %s has ended, %s."
    logger.warning(text, action.name, _owned_pause(pause), _who_and_why(action))


def _owned_pause(pause: Any) -> str:
    return f"{pause.operator}'s pause" if pause.operator else "an operator's pause"


def _who_and_why(action: Any) -> str:
    operator = action.operator or "an operator"
    reason = f"because: {action.reason!r}" if action.reason else "without a reason"
    return f"by {operator}, {reason}"
