"""How the last run of a lock has ended, on its record and in the history."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import F

from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.status import RunOutcome, next_usual
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.sql.fields import DatabaseNow
from tests.support.locks import add_run


def end_run(
    name: str,
    outcome: RunOutcome = RunOutcome.SUCCEEDED,
    *,
    duration: timedelta | None = ZERO,
    ago: timedelta = ZERO,
    **columns: Any,
) -> LockRun:
    """
    Let a run of the lock, which has a record, have ended so long ``ago``.

    It is the last one. A success has taken as long as usual.
    """
    instants: dict[str, Any] = {
        "started": DatabaseNow() - (ago + (duration or ZERO)),
        "ended": DatabaseNow() - ago,
        **columns,
    }
    run = add_run(name, outcome, duration=duration, **instants)
    run.refresh_from_db()
    state = _columns_of(run) | {"failures": F("failures") + 1}
    if outcome is RunOutcome.SUCCEEDED:
        usual = None if duration is None else duration.total_seconds()
        state |= {"failures": 0, "usual": usual}
    LockRecord.objects.filter(name=name).update(**state)
    return run


def follow_history(*names: str) -> None:
    """Let the records of these locks say what their runs in the history say."""
    for name in names:
        failures, usual = 0, None
        state: dict[str, Any] = {}
        for run in LockRun.objects.of_lock(name, "default").order_by("pk"):
            state |= _columns_of(run)
            failures += 1
            if run.outcome == RunOutcome.SUCCEEDED:
                failures, usual = 0, next_usual(usual, run.duration.total_seconds())
        state |= {"failures": failures, "usual": usual}
        LockRecord.objects.filter(name=name).update(**state)


def _columns_of(run: LockRun) -> dict[str, Any]:
    state: dict[str, Any] = {
        "last_run": run.locked_by,
        "outcome": run.outcome,
        "started_at": run.started,
        "ended_at": run.ended,
    }
    if run.outcome == RunOutcome.SUCCEEDED:
        state["succeeded_at"] = run.ended
    elif run.outcome == RunOutcome.LOST:
        state |= {"lost_at": run.lost_at or run.ended, "lost_run": run.locked_by}
    return state
