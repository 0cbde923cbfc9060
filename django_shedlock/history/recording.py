"""The history: receivers that record each run, and never break it."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from traceback import format_exception
from typing import Any

from django.db import connections
from django.db.models import Subquery

from django_shedlock.exceptions import message_of
from django_shedlock.fields import DatabaseNow, storable
from django_shedlock.history.journal import Journal, fitting, scrubbed, texts
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock, split_identity
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRecord, LockRun, LockRunQuerySet
from django_shedlock.mutexes import Mutex, renewed_in_child
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database.connections import in_callers_transaction
from django_shedlock.providers.database.statements import (
    ASYNCHRONOUS_COMMIT,
    Delete,
    Insert,
    Select,
    Update,
    duration,
    number,
)

LONGEST_TRACEBACK = 16_000
"""Of a longer one the end is kept. MySQL's TEXT has 65,535 bytes, four a character."""
MOST_NAMES = 10_000
"""Arguments can make any number of names; skips of more are not counted."""
IDENTITY = ("name", "provider", "locked_by")
NO_EXCEPTION = dict.fromkeys(
    ("exception_type", "exception_message", "exception_traceback"), ""
)


class Skips:
    """How often this process skipped each job since it last ran it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the counts: a forked child has skipped nothing."""
        self._mutex = Mutex()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(
        self, *, configuration: LockConfiguration, provider: LockProvider, **kwargs: Any
    ) -> None:
        """Count, in memory only, that this process skipped the job."""
        if provider.history_database is not None and configuration.history:
            key = provider.alias, configuration.name
            with self._mutex:
                if key in self._counts or len(self._counts) < MOST_NAMES:
                    self._counts[key] += 1

    def count(self, provider: str, name: str) -> int:
        """Return the number of skips."""
        return self._counts[provider, name]

    def subtract(self, count: int, provider: str, name: str) -> None:
        """Forget so many skips, since a run tells of them."""
        with self._mutex:
            self._counts[provider, name] -= count
            if self._counts[provider, name] <= 0:
                del self._counts[provider, name]


skips: Skips = renewed_in_child(Skips())
count_skip: Callable[..., None] = skips.add


class Run:
    """
    A run that is recorded.

    A database's provider may write it with the lock's own statements: see
    ``beginning()`` and ``ending()``. What it did not write is written after them.
    """

    row: int | None = None
    """The key of its row."""
    rides = True
    """Whether it may be written with the lock's statements."""
    was_sent = False
    """Whether it was, although perhaps nobody knows the row."""
    is_confirmed = False
    """Whether the lock is known to be acquired."""
    has_ended = False
    """Whether the release has written its end."""
    _end: dict[str, Any] | None = None

    def __init__(self, lock: Lock):
        host, pid = split_identity(lock.locked_by)
        start = lock.configuration.start
        self.began: float = time.monotonic()
        self.values: dict[str, Any] = {
            "name": lock.name,
            "provider": lock.provider.alias,
            "locked_by": lock.locked_by,
            "host": host,
            "pid": pid,
            "trigger": start.trigger.value,
            **fitting(operator=start.operator, reason=start.reason),
            "skips": skips.count(lock.provider.alias, lock.name),
            "ago": ZERO,
        }

    def beginning(self) -> tuple[Insert, dict[str, Any]] | None:
        """Return what the acquisition writes, if it can."""
        self.was_sent |= self.rides
        return (BEGIN, self.values) if self.rides else None

    def ending(self) -> tuple[Update, dict[str, Any]] | None:
        """Return what the release writes, if it can."""
        if not self.rides:
            return None
        if not self.is_confirmed:  # and so the job did not run
            return (FORGET, self.values) if self.was_sent else None
        if self.row is None or self._end is None:
            return None
        return END, {"row": self.row, **self._end}

    def end(
        self, outcome: RunOutcome, exception: BaseException | None
    ) -> dict[str, Any]:
        """Return the columns of its end, which ``ending()`` then has, too."""
        if outcome is RunOutcome.SUCCEEDED:
            exception = None  # an exit with status 0 is a success
        took = timedelta(seconds=time.monotonic() - self.began)
        columns = exception_columns(exception)
        self._end = {"outcome": outcome.value, "duration": took, **columns}
        return self._end


def new_run(lock: Lock) -> Run | None:
    """Return the run of a lock that is being acquired, if it is to be recorded."""
    has_place = lock.provider.history_database is not None
    return Run(lock) if has_place and lock.configuration.history else None


def record_start(*, lock: Lock, **kwargs: Any) -> None:
    """Record with one statement that a run begins, unless the acquisition did."""
    run = lock.run = lock.run or new_run(lock)
    if run is None:
        return
    run.began, run.is_confirmed = time.monotonic(), True
    if run.values["skips"]:
        skips.subtract(run.values["skips"], lock.provider.alias, lock.name)
    if run.row is None:
        run.row = RUNS.begin(lock, run.values, may_exist=run.was_sent)


def record_loss(*, lock: Lock, **kwargs: Any) -> None:
    """Record with one statement, for which nobody waits, that a run lost its lock."""
    row = None if lock.run is None else lock.run.row
    if row is None or not lock.is_ours:  # its end, which is recorded now, tells it
        return

    def write() -> None:
        RUNS.write(lock, lock.name, lambda each, _: LOSS(each, row=row), is_urgent=True)

    caller = connections[lock.provider.history_database]
    if caller.in_atomic_block and not in_callers_transaction(caller):
        write()  # in a TestCase only the test's own connection sees the row
        return
    with suppress(RuntimeError):  # no room for a thread
        lock.provider.history.add(lock, write)


def record_end(
    *, lock: Lock, released: bool, exception: BaseException | None, **kwargs: Any
) -> None:
    """Record how a run ended, unless the release did: lost, if that was too late."""
    run = lock.run
    if run is None or run.has_ended:
        return
    outcome = RunOutcome.of(exception) if released else RunOutcome.LOST
    end = run.end(outcome, exception)
    values = {**run.values, "ago": end["duration"]}
    RUNS.finish(lock, run.row, values, end, is_urgent=lock.lost.is_set())


def exception_columns(exception: BaseException | None) -> dict[str, str]:
    """Return the exception's columns, in text that every database accepts."""
    if exception is None:
        return NO_EXCEPTION
    kind = type(exception)
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    try:
        traceback = "".join(format_exception(exception))
    except Exception as error:
        traceback = f"(no traceback: {type(error).__name__} was raised)"
    return {
        **fitting(
            exception_type=name, exception_message=scrubbed(message_of(exception))
        ),
        "exception_traceback": storable(scrubbed(traceback))[-LONGEST_TRACEBACK:],
    }


class AcquiredToken(Subquery):
    """The token of the record that the same transaction has acquired."""

    def as_postgresql(self, *arguments: Any, **context: Any) -> Any:
        return "acquired.fencing_token", []  # see Compound


def _beginning(
    token: type[Subquery], *conditions: Any
) -> tuple[type[LockRun], dict[str, Any]]:
    record = LockRecord.objects.filter(*conditions, **texts("name", "locked_by"))
    return LockRun, {
        **texts(*IDENTITY, "host", "trigger", "operator", "reason"),
        "pid": number("pid"),
        "fencing_token": token(record.values("fencing_token")[:1]),
        "started": DatabaseNow() - duration("ago"),
        "outcome": RunOutcome.RUNNING.value,
        **NO_EXCEPTION,
        "skips": number("skips"),
    }


def _ending(*conditions: Any) -> tuple[LockRunQuerySet, dict[str, Any]]:
    return LockRun.objects.filter(*conditions, pk=number("row")), {
        **texts("outcome", *NO_EXCEPTION),
        "finished": DatabaseNow(),
        "duration": duration("duration"),
    }


def _of_identity() -> LockRunQuerySet:
    return LockRun.objects.filter(**texts(*IDENTITY))


# If a crash of the server loses one of these, the history lacks a run or its end. Those
# that ride are as durable as the lock.
RUNS = Journal(
    "The history lacks a run of",
    Insert(partial(_beginning, Subquery, ASYNCHRONOUS_COMMIT)),
    Select(lambda: _of_identity().order_by("pk").values_list("pk")[:1]),
    Update(partial(_ending, ASYNCHRONOUS_COMMIT)),
)
LOSS = Update(
    lambda: (
        LockRun.objects.filter(
            ASYNCHRONOUS_COMMIT, pk=number("row"), finished__isnull=True
        ),
        {"outcome": RunOutcome.LOST.value, "lost_at": DatabaseNow()},
    )
)
BEGIN, END = Insert(partial(_beginning, AcquiredToken)), Update(_ending)
FORGET = Delete(lambda: (_of_identity(), {}))
