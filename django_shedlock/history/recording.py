"""The history: receivers that record each run, and never break it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from traceback import format_exception
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Subquery
from django.dispatch import receiver

from django_shedlock import conf
from django_shedlock.exceptions import message_of
from django_shedlock.fields import DatabaseNow, storable
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock, split_identity
from django_shedlock.locks.states import RunOutcome, is_success
from django_shedlock.models import LockRecord, LockRun, LockRunQuerySet
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database.connections import Work, run
from django_shedlock.providers.database.statements import (
    Insert,
    Select,
    Update,
    asynchronous_commit,
    duration,
    number,
    text,
)
from django_shedlock.signals import lock_acquired, lock_not_acquired, lock_released
from django_shedlock.threads import renewed_in_child

T = TypeVar("T")

LONGEST_MESSAGE = 2000
LONGEST_TYPE = 255
LONGEST_TRACEBACK = 16_000
"""Of a longer one the end is kept. MySQL's TEXT has 65,535 bytes, four a character."""
NO_EXCEPTION = dict.fromkeys(
    ("exception_type", "exception_message", "exception_traceback"), ""
)
CAUSE = ("trigger", "operator", "reason")
"""What started a run, who, and why: see ``Start``."""
LONGEST_OPERATOR = 255
MOST_NAMES = 10_000
"""Arguments can make any number of names; skips of more are not counted."""

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
    if _is_recorded(lock.provider, lock.configuration):
        at = time.monotonic()
        skipped = skips.take(lock.provider.alias, lock.name)
        _begun[lock] = Beginning(at, _write(lock, _creation(lock, skipped)))


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
    """Record with one statement how a run ended."""
    begun = _begun.pop(lock, None)
    if begun is None:
        return
    took = timedelta(seconds=time.monotonic() - begun.at)
    values = {
        "outcome": outcome_of(released=released, exception=exception).value,
        "duration": took,
        **described(exception),
    }
    create = _creation(lock, ago=took)

    def finish(connection: BaseDatabaseWrapper, is_again: bool) -> int:
        # Without a row, the store failed at the beginning, perhaps after it wrote it.
        row = begun.row or create(connection, True)
        return FINISH(connection, row=row, **values)

    _write(lock, finish)


class Skips:
    """How often this process skipped each job since it last ran it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the counts: a forked child has skipped nothing."""
        self._mutex = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, provider: str, name: str) -> None:
        """Count a skip."""
        with self._mutex:
            if (provider, name) in self._counts or len(self._counts) < MOST_NAMES:
                self._counts[provider, name] += 1

    def take(self, provider: str, name: str) -> int:
        """Return the number of skips, and begin again at zero."""
        with self._mutex:
            return self._counts.pop((provider, name), 0)


skips = renewed_in_child(Skips())


def outcome_of(*, released: bool, exception: BaseException | None) -> RunOutcome:
    """Return how a run ended; it was lost unless it released its own lock."""
    if not released:
        return RunOutcome.LOST
    return RunOutcome.SUCCEEDED if is_success(exception) else RunOutcome.FAILED


def described(exception: BaseException | None) -> dict[str, str]:
    """Return the exception's columns, in text that every database accepts."""
    if exception is None:
        return NO_EXCEPTION
    kind = type(exception)
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    return {
        "exception_type": storable(name)[:LONGEST_TYPE],
        "exception_message": storable(message_of(exception))[:LONGEST_MESSAGE],
        "exception_traceback": storable(_traceback(exception))[-LONGEST_TRACEBACK:],
    }


def _traceback(exception: BaseException) -> str:
    try:
        return "".join(format_exception(exception))
    except Exception as error:
        return f"(no traceback: {type(error).__name__} was raised)"


def _is_recorded(provider: Any, configuration: LockConfiguration) -> bool:
    if provider.history_database is None:
        return False
    chosen = configuration.history
    return conf.HISTORY.value if chosen is None else chosen


def _creation(lock: Lock, skipped: int = 0, *, ago: timedelta = ZERO) -> Work[Any]:
    host, pid = split_identity(lock.locked_by)
    start = lock.configuration.start
    cause = {
        "trigger": start.trigger.value,
        "operator": storable(start.operator)[:LONGEST_OPERATOR],
        "reason": storable(start.reason)[:LONGEST_MESSAGE],
    }
    run = {
        "name": lock.name,
        "provider": lock.provider.alias,
        "locked_by": lock.locked_by,
    }

    def create(connection: BaseDatabaseWrapper, is_again: bool) -> int | None:
        if is_again:
            for (row,) in FIND(connection, **run):
                return int(row)
        own = {"host": host, "pid": pid, "skips": skipped, "ago": ago}
        return BEGIN(connection, **run, **own, **cause)

    return create


def _write(lock: Lock, work: Work[T]) -> T | None:
    try:
        using = str(lock.provider.history_database)
        return run(work, using, is_urgent=lock.lost.is_set())
    except Exception as error:
        logger.warning(
            "The history lacks a run of lock %r as %s: %s",
            lock.name,
            lock.locked_by,
            str(error).strip(),
        )
        return None


def _begin() -> tuple[type[LockRun], dict[str, Any]]:
    # If a crash of the server loses it, the history lacks a run.
    record = LockRecord.objects.filter(
        asynchronous_commit(), name=text("name"), locked_by=text("locked_by")
    )
    return LockRun, {
        **{
            column: text(column)
            for column in ("name", "provider", "locked_by", "host", *CAUSE)
        },
        "pid": number("pid"),
        "fencing_token": Subquery(record.values("fencing_token")[:1]),
        "started": DatabaseNow() - duration("ago"),
        "outcome": RunOutcome.RUNNING.value,
        **NO_EXCEPTION,
        "skips": number("skips"),
    }


def _finish() -> tuple[LockRunQuerySet, dict[str, Any]]:
    texts = ("outcome", *NO_EXCEPTION)
    return LockRun.objects.filter(asynchronous_commit(), pk=number("row")), {
        **{column: text(column) for column in texts},
        "finished": DatabaseNow(),
        "duration": duration("duration"),
    }


def _find() -> Any:
    columns = ("name", "provider", "locked_by")
    runs = LockRun.objects.filter(**{column: text(column) for column in columns})
    return runs.order_by("pk").values_list("pk")[:1]


BEGIN = Insert(_begin)
FINISH = Update(_finish)
FIND = Select(_find)
