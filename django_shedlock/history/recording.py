"""The history: receivers that record each run once it is over, and never break it."""

import time
from contextlib import suppress
from datetime import timedelta
from traceback import format_exception
from typing import TYPE_CHECKING

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, CharField, When

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.exceptions import LockProviderError, message_of
from django_shedlock.history.retention import prune_after_write
from django_shedlock.history.texts import fitting
from django_shedlock.in_tests import is_only_connection
from django_shedlock.locks.lock import Lock, split_identity
from django_shedlock.locks.status import AbandonedRun, LockStatus, RunOutcome
from django_shedlock.models import LockRun
from django_shedlock.providers.base import LockProvider
from django_shedlock.signals import logger
from django_shedlock.sql.compiling import (
    ASYNCHRONOUS_COMMIT,
    Changes,
    Columns,
    Insert,
    Row,
    Update,
    duration,
    instant,
    number,
    text,
    texts,
)
from django_shedlock.sql.connections import run
from django_shedlock.sql.fields import DatabaseNow, storable

if TYPE_CHECKING:
    from django_shedlock.execution.operators import OperatorAction

TRACEBACK_MAX_LENGTH = 16_000
"""MySQL's TEXT has room for 65,535 bytes, and a character may take four."""
EMPTY_EXCEPTION_COLUMNS = dict.fromkeys(
    ("exception_type", "exception_message", "exception_traceback"), ""
)


def record_abandoned(*, lock: Lock, **kwargs: object) -> None:
    """Record the run that this acquisition accounted for, unless it has a row."""
    if lock.abandoned is not None and lock.configuration.history:
        write_abandoned(lock.provider, lock.name, lock.abandoned)


def write_abandoned(provider: LockProvider, name: str, run: AbandonedRun) -> None:
    """Write the row of a run that is abandoned, unless there is one."""
    values = {
        **_identity(provider, name, run.locked_by),
        "started": run.started_at,
        "ended": run.ended_at,
    }
    _write(provider, name, insert_abandoned, values)


def record_forced_release(
    *, action: "OperatorAction", before: LockStatus, **kwargs: object
) -> None:
    """Record the run that a forced release accounted for, unless it has a row."""
    if before.job.open_run is None or not conf.HISTORY.value:
        return
    is_last = before.job.open_run == before.locked_by
    ended_at = min(aware(before.lock_until), aware(before.clock))
    started_at = aware(before.locked_at) if is_last else None
    run = AbandonedRun(before.job.open_run, started_at, ended_at)
    write_abandoned(action.provider, action.name, run)


def record_loss(*, lock: Lock, **kwargs: object) -> None:
    """Record that a run lost its lock while its body goes on; nobody waits for that."""
    # If it is noticed by the release, the end of the run says it.
    database = lock.provider.history_database
    if database is None or not lock.is_ours or not _is_recorded(lock):
        return
    values = _of_run(lock, RunOutcome.LOST, None)

    def write() -> None:
        _write(lock.provider, lock.name, insert_loss, values, is_urgent=True)

    if is_only_connection(connections[database]):
        write()  # another thread would write it on another connection
        return
    with suppress(RuntimeError):  # no room for a thread
        lock.provider.history.add(lock, write)


def record_end(
    *, lock: Lock, released: bool, exception: BaseException | None, **kwargs: object
) -> None:
    """Record a run when it is over. Without its lock it counts as lost."""
    if lock.never_began:  # perhaps no receiver of lock_acquired was called
        record_abandoned(lock=lock)
    database = lock.provider.history_database
    if database is None or not _is_recorded(lock):
        return
    outcome = RunOutcome.of(exception, released=released)
    values = _of_run(lock, outcome, exception)
    statement = insert_end if released else insert_lost_end
    is_urgent = lock.lost.is_set()
    was_written = _write(
        lock.provider,
        lock.name,
        statement,
        values,
        is_urgent=is_urgent,
        has_deadline=lock.has_deadline,
    )
    if was_written:
        prune_after_write(LockRun.objects.using(database))


def _is_recorded(lock: Lock) -> bool:
    is_run = lock.opens_run and not lock.never_began
    return is_run and lock.configuration.history


def _identity(provider: LockProvider, name: str, locked_by: str) -> dict[str, object]:
    host, pid = split_identity(locked_by)
    return {
        "name": name,
        "provider": provider.alias,
        "locked_by": locked_by,
        "host": host,
        "pid": pid,
    }


def _of_run(
    lock: Lock, outcome: RunOutcome, exception: BaseException | None
) -> dict[str, object]:
    """Return the values of the row of a run that ends now."""
    if outcome is RunOutcome.SUCCEEDED:
        exception = None  # an exit with status 0 is a success
    now, start = time.monotonic(), lock.configuration.start
    lost_since = now if lock.lost_since is None else lock.lost_since
    return {
        **_identity(lock.provider, lock.name, lock.locked_by),
        "fencing_token": lock.known_token,
        "took": timedelta(seconds=lock.took),
        "lost_for": timedelta(seconds=now - lost_since),
        "outcome": outcome.value,
        **exception_columns(exception),
        "trigger": start.trigger.value,
        **fitting(LockRun, operator=start.operator, reason=start.reason),
    }


def _write(
    provider: LockProvider,
    name: str,
    statement: Insert,
    values: dict[str, object],
    *,
    is_urgent: bool = False,
    has_deadline: bool = False,
) -> bool:
    """Write a row; if that fails, log it, and note it on the lock's record."""

    def write(connection: BaseDatabaseWrapper, is_again: bool) -> None:
        # A loss replaces that the run was abandoned, but not its end, which may have
        # been written first.
        if statement is insert_loss and update_abandoned(connection, **values):
            return
        statement(connection, **values)

    def write_again() -> None:
        _write(provider, name, statement, values, is_urgent=is_urgent)

    if provider.history_database is None:
        return False
    try:
        run(
            write,
            provider.history_database,
            is_urgent=is_urgent,
            has_deadline=has_deadline,
        )
    except Exception as error:  # the job goes on, whatever the driver raises
        message = "The history lacks a run of lock %r: %s"
        logger.warning(message, name, str(error).strip())
        with suppress(LockProviderError, Error):
            provider.note_unrecorded(name)
        return False
    except BaseException:  # Ctrl-C: in a thread no signal's handler interrupts it
        with suppress(RuntimeError):
            provider.history.add(values["locked_by"], write_again)
        raise
    return True


def exception_columns(exception: BaseException | None) -> dict[str, str]:
    """Return the exception's columns, in text that every database accepts."""
    if exception is None:
        return EMPTY_EXCEPTION_COLUMNS
    # Only a failed run needs its many patterns.
    from django_shedlock.scrubbing import scrubbed

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
            LockRun,
            exception_type=name,
            exception_message=scrubbed(message_of(exception)),
        ),
        "exception_traceback": storable(scrubbed(traceback))[-TRACEBACK_MAX_LENGTH:],
    }


def _run_identity() -> Columns:
    return {**texts("name", "provider", "locked_by", "host"), "pid": number("pid")}


def _run_over() -> Columns:
    return {
        "fencing_token": number("fencing_token"),
        "started": DatabaseNow() - duration("took"),
        "ended": DatabaseNow(),
        "duration": duration("took"),
        # If a crash of the server loses a row, the record still knows the last run.
        "outcome": Case(
            When(ASYNCHRONOUS_COMMIT, then=text("outcome")), output_field=CharField()
        ),
        **texts(*EMPTY_EXCEPTION_COLUMNS, "trigger", "operator", "reason"),
    }


def _lost_at() -> Columns:
    return {"lost_at": DatabaseNow() - duration("lost_for")}


def _loss() -> Columns:
    return {**_run_over(), **_lost_at()}


def _row_of_end() -> Row:
    return LockRun, {**_run_identity(), **_run_over()}


def _row_of_loss() -> Row:
    return LockRun, {**_run_identity(), **_loss()}


def _row_of_abandoned() -> Row:
    return LockRun, {
        **_run_identity(),
        "started": instant("started"),
        "ended": instant("ended"),
        "outcome": RunOutcome.ABANDONED.value,
        **EMPTY_EXCEPTION_COLUMNS,
        **dict.fromkeys(("trigger", "operator", "reason"), ""),
    }


# What a run reports itself replaces that it was abandoned, and its end replaces its
# loss.
insert_end: Insert = Insert(_row_of_end, unique="locked_by", updated=tuple(_run_over()))
insert_lost_end: Insert = Insert(
    _row_of_loss, unique="locked_by", updated=tuple(_loss())
)
insert_loss: Insert = Insert(_row_of_loss, unique="locked_by")
insert_abandoned: Insert = Insert(_row_of_abandoned, unique="locked_by")


@Update
def update_abandoned() -> Changes:
    """Write a loss over the row of a run that counts as abandoned."""
    is_abandoned = {"outcome": RunOutcome.ABANDONED.value}
    runs = LockRun.objects.filter(locked_by=text("locked_by"), **is_abandoned)
    return runs, _loss()
