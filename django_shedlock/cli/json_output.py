"""The JSON that subcommands print: the keys of locks, and the form of values."""

import json
import textwrap
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.core.management.base import OutputWrapper

from django_shedlock.cli.terminal import ENDLESS_PAUSE_TEXT
from django_shedlock.locks.status import JobState, LockState, LockStatus


def status_as_dict(status: LockStatus, grace: timedelta) -> dict[str, object]:
    """Return a lock as JSON shows it. A job is overdue ``grace`` after its tick."""
    return {
        "name": status.name,
        "state": status.state,
        "locked_by": status.locked_by,
        "locked_at": status.locked_at,
        "lock_until": status.lock_until,
        "running_for": status.held_for if status.state is LockState.RUNNING else None,
        "remaining": None if status.is_endless else status.remaining,
        "remaining_reason": ENDLESS_PAUSE_TEXT if status.is_endless else "",
        "heartbeat_at": status.heartbeat_at,
        "schedule": status.schedule and str(status.schedule),
        "next_tick": status.next_tick,
        "overdue_since": status.overdue_since(grace),
        **_job_as_dict(status.job),
    }


def _job_as_dict(job: JobState) -> dict[str, object]:
    return {
        "last_outcome": job.outcome,
        "last_started_at": job.started_at,
        "last_ended_at": job.ended_at,
        "last_succeeded_at": job.succeeded_at,
        "failures": job.failures,
        "usual_duration": job.usual_duration,
        "requested_at": job.asked_at,
        "requested_by": job.asked_by,
        "request_reason": job.asked_why,
    }


def write_json(stdout: OutputWrapper, rows: Iterable[Mapping[str, object]]) -> None:
    """Write the rows as a JSON list, each as soon as it is there."""
    before = "[\n"
    for row in rows:
        stdout.write(f"{before}{textwrap.indent(as_json(row), '  ')}", ending="")
        before = ",\n"
    stdout.write("[]" if before == "[\n" else "\n]")


def as_json(value: object) -> str:
    """Return the value as JSON; durations are seconds, instants are ISO 8601."""

    def encoded(value: datetime | timedelta) -> str | float:
        if isinstance(value, datetime):
            return value.isoformat()
        return value.total_seconds()

    return json.dumps(value, default=encoded, indent=2)
