"""The history: receivers that record each run, and never break it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from traceback import format_exception
from typing import Any
from weakref import WeakKeyDictionary

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Subquery

from django_shedlock import conf
from django_shedlock.exceptions import message_of
from django_shedlock.fields import DatabaseNow, storable
from django_shedlock.history.journal import Journal, fitting, scrubbed, texts
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock, split_identity
from django_shedlock.locks.states import RunOutcome, is_success
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database.connections import in_callers_transaction
from django_shedlock.providers.database.statements import (
    ASYNCHRONOUS_COMMIT,
    Insert,
    Select,
    Update,
    duration,
    number,
)
from django_shedlock.threads import renewed_in_child, run_in_background

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
        self._mutex = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, provider: str, name: str) -> None:
        """Count a skip."""
        with self._mutex:
            if (provider, name) in self._counts or len(self._counts) < MOST_NAMES:
                self._counts[provider, name] += 1

    def pop(self, provider: str, name: str) -> int:
        """Return the number of skips, and begin again at zero."""
        with self._mutex:
            return self._counts.pop((provider, name), 0)


skips = renewed_in_child(Skips())
_begun: WeakKeyDictionary[Lock, tuple[float, dict[str, Any], int | None]]
_begun = WeakKeyDictionary()
"""When a run began, by the monotonic clock, what was written then, and the row."""


def record_start(*, lock: Lock, **kwargs: Any) -> None:
    """Record with one statement that a run begins."""
    if not _is_recorded(lock.provider, lock.configuration):
        return
    began = time.monotonic()
    host, pid = split_identity(lock.locked_by)
    start = lock.configuration.start
    values = {
        "name": lock.name,
        "provider": lock.provider.alias,
        "locked_by": lock.locked_by,
        "host": host,
        "pid": pid,
        "trigger": start.trigger.value,
        **fitting(operator=start.operator, reason=start.reason),
        "skips": skips.pop(lock.provider.alias, lock.name),
        "ago": ZERO,
    }
    row = RUNS.begin(lock.provider.history_database, values, lock=lock)
    _begun[lock] = began, values, row


def record_loss(*, lock: Lock, **kwargs: Any) -> None:
    """Record with one statement, for which nobody waits, that a run lost its lock."""
    _, _, row = _begun.get(lock, (0, {}, None))
    using = lock.provider.history_database
    if row is None or not lock.is_ours:  # its end, which is recorded now, tells it
        return

    def write() -> None:
        def update(connection: BaseDatabaseWrapper, is_again: bool) -> int:
            return LOSS(connection, row=row)

        RUNS.write(using, lock.name, update, is_urgent=True, lock=lock)

    caller = connections[using]
    if caller.in_atomic_block and not in_callers_transaction(caller):
        write()  # in a TestCase only the test's own connection sees the row
        return
    with suppress(RuntimeError):  # no room for a thread
        run_in_background(write)


def count_skip(
    *, configuration: LockConfiguration, provider: LockProvider, **kwargs: Any
) -> None:
    """Count, in memory only, that this process skipped the job."""
    if _is_recorded(provider, configuration):
        skips.add(provider.alias, configuration.name)


def record_end(
    *, lock: Lock, released: bool, exception: BaseException | None, **kwargs: Any
) -> None:
    """Record with one statement how a run ended: lost, unless it released its lock."""
    begun = _begun.pop(lock, None)
    if begun is None:
        return
    began, values, row = begun
    took, outcome = timedelta(seconds=time.monotonic() - began), RunOutcome.LOST
    if released:
        is_good = is_success(exception)
        outcome = RunOutcome.SUCCEEDED if is_good else RunOutcome.FAILED
    if outcome is RunOutcome.SUCCEEDED:
        exception = None  # an exit with status 0 is a success
    end = {"outcome": outcome.value, "duration": took, **exception_columns(exception)}
    using, is_lost = lock.provider.history_database, lock.lost.is_set()
    values |= {"ago": took}
    RUNS.finish(using, row, values, end, is_urgent=is_lost, lock=lock)


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


def _is_recorded(provider: Any, configuration: LockConfiguration) -> bool:
    if provider.history_database is None:
        return False
    chosen = configuration.history
    return conf.HISTORY.value if chosen is None else chosen


def _beginning() -> tuple[type[LockRun], dict[str, Any]]:
    # If a crash of the server loses it, the history lacks a run.
    record = LockRecord.objects.filter(
        ASYNCHRONOUS_COMMIT, **texts("name", "locked_by")
    )
    return LockRun, {
        **texts(*IDENTITY, "host", "trigger", "operator", "reason"),
        "pid": number("pid"),
        "fencing_token": Subquery(record.values("fencing_token")[:1]),
        "started": DatabaseNow() - duration("ago"),
        "outcome": RunOutcome.RUNNING.value,
        **NO_EXCEPTION,
        "skips": number("skips"),
    }


RUNS = Journal(
    "The history lacks a run of",
    Insert(_beginning),
    Select(
        lambda: (
            LockRun.objects.filter(**texts(*IDENTITY))
            .order_by("pk")
            .values_list("pk")[:1]
        )
    ),
    Update(
        lambda: (
            LockRun.objects.filter(ASYNCHRONOUS_COMMIT, pk=number("row")),
            {
                **texts("outcome", *NO_EXCEPTION),
                "finished": DatabaseNow(),
                "duration": duration("duration"),
            },
        )
    ),
)

LOSS = Update(
    lambda: (
        LockRun.objects.filter(
            ASYNCHRONOUS_COMMIT, pk=number("row"), finished__isnull=True
        ),
        {"outcome": RunOutcome.LOST.value, "lost_at": DatabaseNow()},
    )
)
