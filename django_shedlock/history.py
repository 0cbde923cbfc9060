"""The history: receivers that record each run, and can never break it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django.db.models import Case, F, Q, Value, When
from django.dispatch import receiver

from django_shedlock import conf, skips
from django_shedlock.configuration import LockConfiguration
from django_shedlock.functions import DatabaseNow
from django_shedlock.locks import Lock
from django_shedlock.models import LockRun, LockRunQuerySet
from django_shedlock.outcomes import RunOutcome, is_success
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.statements import run
from django_shedlock.signals import lock_acquired, lock_not_acquired, lock_released

T = TypeVar("T")

LONGEST_MESSAGE = 2000
LONGEST_TYPE = 255

logger = logging.getLogger("django_shedlock")


@dataclass(frozen=True)
class Beginning:
    """When a run began, by this process's monotonic clock, and its row if any."""

    at: float
    row: int | None


_begun: WeakKeyDictionary[Lock, Beginning] = WeakKeyDictionary()


@receiver(lock_acquired)
def record_start(*, lock: Lock, **kwargs: Any) -> None:
    """Record with one statement that a run begins."""
    if not _is_recorded(lock.provider, lock.configuration):
        return
    at = time.monotonic()
    skipped = skips.take(lock.provider.alias, lock.name)
    begun = _write(lock, lambda runs, again: _create(runs, lock, skipped, again=again))
    _begun[lock] = Beginning(at, begun.pk if begun else None)


@receiver(lock_not_acquired)
def count_skip(
    *, configuration: LockConfiguration, provider: LockProvider, **kwargs: Any
) -> None:
    """Count, in memory only, that this process skipped the job."""
    if _is_recorded(provider, configuration):
        skips.add(provider.alias, configuration.name)


@receiver(lock_released)
def record_end(
    *, lock: Lock, released: bool, exception: BaseException | None, **kwargs: Any
) -> None:
    """Record with one statement how a run ended, and which one was abandoned."""
    begun = _begun.pop(lock, None)
    if begun is None:
        return
    end = {
        "outcome": Value(outcome_of(released=released, exception=exception).value),
        "finished": DatabaseNow(),
        "duration": Value(timedelta(seconds=time.monotonic() - begun.at)),
        **{column: Value(text) for column, text in described(exception).items()},
    }
    _write(
        lock,
        lambda runs, again: _finish(
            runs, lock, begun.row, end, released=released, again=again
        ),
    )


def outcome_of(*, released: bool, exception: BaseException | None) -> RunOutcome:
    """Return how a run ended whose lock was still its own, or was not."""
    if not released:
        return RunOutcome.LOST
    return RunOutcome.SUCCEEDED if is_success(exception) else RunOutcome.FAILED


def described(exception: BaseException | None) -> dict[str, str]:
    """Return the exception's columns, in text that every database takes."""
    if exception is None:
        return {"exception_type": "", "exception_message": ""}
    kind = type(exception)
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    try:
        message = str(exception)
    except Exception as error:
        message = f"(no message: str() raised {type(error).__name__})"
    return {
        "exception_type": _storable(name)[:LONGEST_TYPE],
        "exception_message": _storable(message)[:LONGEST_MESSAGE],
    }


def _storable(text: str) -> str:
    # PostgreSQL takes no NUL, and no database takes half of a surrogate pair.
    escaped = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return escaped.replace("\0", "\\0")


def _is_recorded(provider: LockProvider, configuration: LockConfiguration) -> bool:
    if provider.history_database is None:
        return False
    chosen = configuration.history
    return conf.HISTORY.value if chosen is None else chosen


def _create(
    runs: LockRunQuerySet, lock: Lock, skipped: int = 0, *, again: bool
) -> LockRun:
    # Sent again after a lost reply, our own first try may have made the row.
    made = runs.of_lock(lock.name, lock.provider.alias).filter(locked_by=lock.locked_by)
    return (made.first() if again else None) or runs.create_running(
        name=lock.name,
        provider=lock.provider.alias,
        locked_by=lock.locked_by,
        skips=skipped,
    )


def _finish(
    runs: LockRunQuerySet,
    lock: Lock,
    row: int | None,
    end: dict[str, Any],
    *,
    released: bool,
    again: bool,
) -> None:
    if row is None:  # the store failed when the run began
        row = _create(runs, lock, again=again).pk
        end = {**end, "started": DatabaseNow() - end["duration"]}
    ours = Q(pk=row)
    if not released:
        runs.filter(ours).update(**end)
        return
    # We held the lock to the end, so whoever ran before us and told of no end is dead,
    # or lost the lock and will tell. One statement for both: each costs a job time.
    dead = Q(
        outcome=RunOutcome.RUNNING,
        name=lock.name,
        provider=lock.provider.alias,
        pk__lt=row,
    )
    runs.filter(ours | dead).update(
        **{column: _if_ours(ours, column, value) for column, value in end.items()}
    )


def _if_ours(ours: Q, column: str, value: Any) -> Case:
    field: Any = LockRun._meta.get_field(column)
    abandoned = Value(RunOutcome.ABANDONED.value)
    otherwise = abandoned if column == "outcome" else F(column)
    return Case(When(ours, then=value), default=otherwise, output_field=field)


def _write(lock: Lock, statement: Callable[[LockRunQuerySet, bool], T]) -> T | None:
    using = str(lock.provider.history_database)
    runs = LockRun.objects.using(using)
    tries = count()
    try:
        return run(lambda: statement(runs, next(tries) > 0), using)
    except Exception as error:
        logger.warning(
            "The history lacks a run of lock %r as %s: %s",
            lock.name,
            lock.locked_by,
            str(error).strip(),
        )
        return None
