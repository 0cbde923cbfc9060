"""Locks with a story, for their pages: paused, kept alive, failed, operated on."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django_shedlock.console.models import ActionKind, ActionResult, LockAction
from django_shedlock.history.recording import exception_columns
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.schedules.state import Trigger
from django_shedlock.sql.fields import DatabaseNow
from tests.support.last_runs import follow_history
from tests.support.locks import add_run

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
ALIVE = "import.customers:north-east"
ALIVE_HOLDER = "worker-7.eu-central.internal:90210:5feceb66ffc86f38"
PAUSED = "mail.newsletter"
FAILED = "reports.export_to_the_data_warehouse_of_the_accounting_department"
LONG_REASON = "the mail server moves to its new host, until the DNS has changed"


def long_story() -> None:
    """Make these locks, with their runs and what operators did."""
    _alive()
    _paused()
    _failed()


def _alive() -> None:
    _record(
        ALIVE,
        ALIVE_HOLDER,
        locked_at=DatabaseNow() - 3 * HOUR,
        lock_until=DatabaseNow() + MINUTE,
        extended_at=DatabaseNow() - timedelta(seconds=6),
        open_run=ALIVE_HOLDER,
    )
    for hours in range(40, 3, -1):
        _run(
            ALIVE,
            began=hours * 6 * HOUR,
            took=timedelta(minutes=150 + 7 * (hours % 5)),
        )
    follow_history(ALIVE)
    add_action(
        ALIVE,
        kind=ActionKind.RUN,
        began=DatabaseNow() - 3 * HOUR,
        reason="customers of the north-east are missing",
    )


def _paused() -> None:
    _record(
        PAUSED,
        Pause("alice", LONG_REASON).identity(),
        locked_at=DatabaseNow() - 2 * HOUR,
        lock_until=DatabaseNow() + 3 * HOUR,
        schedule="*/15 * * * * UTC",
        due_at=DatabaseNow() - HOUR,
    )
    for number in range(12, 0, -1):
        _run(
            PAUSED,
            began=2 * HOUR + number * 15 * MINUTE,
            took=timedelta(seconds=20 + number),
        )
    follow_history(PAUSED)
    add_action(
        PAUSED,
        kind=ActionKind.RELEASE,
        result=ActionResult.REFUSED,
        reason="it hangs",
        detail="web-1:9:0a1b2c3d does not hold it any more.",
        began=DatabaseNow() - 5 * HOUR,
    )
    add_action(
        PAUSED,
        kind=ActionKind.PAUSE,
        reason=LONG_REASON,
        began=DatabaseNow() - 2 * HOUR,
    )


def _failed() -> None:
    _record(
        FAILED,
        "web-3:77:d4735e3a265e16ee",
        locked_at=DatabaseNow() - 20 * MINUTE,
        lock_until=DatabaseNow() - 20 * MINUTE,
        released_at=DatabaseNow() - 19 * MINUTE,
        schedule="*/10 * * * * UTC",
        tick=DatabaseNow() - 25 * MINUTE,
        due_at=DatabaseNow() - 25 * MINUTE,
    )
    for number in range(30, 2, -1):
        if number not in {12, 13, 14, 20}:
            _run(
                FAILED,
                began=number * 10 * MINUTE,
                took=timedelta(seconds=40 + 9 * (number % 4)),
            )
    _run(
        FAILED,
        RunOutcome.FAILED,
        began=20 * MINUTE,
        took=timedelta(seconds=95),
        trigger=Trigger.RETRY,
        **exception_columns(chained_error()),
    )
    follow_history(FAILED)


def chained_error() -> Exception:
    """Return an exception that has a cause, both with their traceback."""
    try:
        try:
            Path("/var/lib/warehouse", "very-long-part-" * 12).read_text()
        except OSError as error:
            raise RuntimeError("the export is incomplete") from error
    except RuntimeError as chained:
        return chained


def add_action(name: str, **columns: Any) -> LockAction:
    """Add a line to the audit log, of what an operator did."""
    values: dict[str, Any] = {
        "provider": "default",
        "kind": ActionKind.RELEASE,
        "operator": "alice",
        "began": DatabaseNow(),
        "ended": DatabaseNow(),
        "result": ActionResult.DONE,
        **columns,
    }
    return LockAction.objects.create(name=name, **values)


def _run(
    name: str,
    outcome: RunOutcome = RunOutcome.SUCCEEDED,
    *,
    began: timedelta,
    took: timedelta,
    **columns: Any,
) -> None:
    """Add a run that began so long ago."""
    add_run(
        name,
        outcome,
        started=DatabaseNow() - began,
        ended=DatabaseNow() - (began - took),
        duration=took,
        **{"trigger": Trigger.SCHEDULER, **columns},
    )


def _record(name: str, locked_by: str, **columns: datetime | Any) -> None:
    LockRecord.objects.create(
        name=name, locked_by=locked_by, fencing_token=58, **columns
    )
