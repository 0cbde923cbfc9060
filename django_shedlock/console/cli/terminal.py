"""What the subcommands print: tables and findings for people, JSON for programs."""

import json
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.core.management.base import OutputWrapper
from django.core.management.color import Style

from django_shedlock.clocks import local_text
from django_shedlock.console.monitoring.findings import Finding, Severity
from django_shedlock.locks.status import JobState, LockState, LockStatus, RunOutcome

UNTIL_RESUMED = "until resumed"
"""What remains of a pause without an end."""
ELLIPSIS = "…"
GAP = "  "
NAME_WIDTH = 34
"""Columns of a lock's name in a narrow table."""
ROLES: dict[str, str] = {
    LockState.RUNNING: "SUCCESS",
    LockState.HELD_AT_LEAST: "HTTP_NOT_MODIFIED",
    LockState.PAUSED: "WARNING",
    LockState.EXPIRED: "ERROR",
    RunOutcome.SUCCEEDED: "SUCCESS",
    RunOutcome.FAILED: "ERROR",
    RunOutcome.LOST: "ERROR",
    RunOutcome.ABANDONED: "ERROR",
}
"""The roles in Django's styles of states and outcomes."""


class Cell(NamedTuple):
    """A cell of a table, with a role of Django's styles."""

    text: str
    role: str = ""


Row = Mapping[str, Cell | str]
"""The cells of a row by the titles of their columns."""


def table(style: Style, rows: Sequence[Row]) -> str:
    """
    Return the rows below the titles, which are the same for all of them.

    An empty cell is shown as ``-``.
    """
    lines = [[Cell(title, "MIGRATE_LABEL") for title in rows[0]]]
    lines += [[_cell(value) for value in row.values()] for row in rows]
    columns = zip(*lines, strict=True)
    widths = [max(display_width(cell.text) for cell in column) for column in columns]
    shown = []
    for line in lines:
        text = spaces = ""
        for cell, width in zip(line, widths, strict=True):
            text += spaces + styled(style, cell.role, cell.text)
            spaces = " " * (width - display_width(cell.text)) + GAP
        shown.append(text)
    return "\n".join(shown)


def _cell(value: Cell | str) -> Cell:
    text, role = (value, "") if isinstance(value, str) else value
    return Cell(printable(text), role) if text else Cell("-")


def styled(style: Style, role: str, text: str) -> str:
    """Return the text as Django's style shows this role."""
    return str(getattr(style, role)(text)) if role else text


def printable(text: str) -> str:
    """Return the text; what could move a terminal's cursor is escaped."""
    return "".join(
        character if character.isprintable() else repr(character)[1:-1]
        for character in text
    )


def display_width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    return sum(
        0  # drawn over the character before it
        if unicodedata.category(character) in {"Mn", "Me"}
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def shortened(text: str, width: int) -> str:
    """Return the text in at most this many columns; its middle is cut out."""
    if display_width(text) <= width:
        return text
    middle = len(text) // 2
    head, tail = text[:middle], text[middle:]
    while display_width(head + ELLIPSIS + tail) > width:
        if len(head) > len(tail):
            head = head[:-1]
        else:
            tail = tail[1:]
    while tail and not display_width(tail[0]):  # it would be drawn over the ellipsis
        tail = tail[1:]
    return head + ELLIPSIS + tail


def lock_name(name: str, *, wide: bool) -> str:
    """Return the name of a lock for a table; in a narrow one its middle may be cut."""
    return name if wide else shortened(printable(name), NAME_WIDTH)


def coloured(value: str) -> Cell:
    """Return a state or an outcome in its style."""
    return Cell(value, ROLES.get(value, ""))


def instant(moment: datetime, *, wide: bool = True) -> str:
    """Return an instant for a table; a narrow one has no year, seconds and zone."""
    text = local_text(moment)
    return text if wide else text[5:16]


def finding_line(style: Style, found: Finding) -> str:
    """Return the finding as a line that begins with its severity."""
    severity = found.kind.severity
    role = "ERROR" if severity is Severity.CRITICAL else "WARNING"
    return f"{styled(style, role, severity.upper())} {printable(str(found))}"


def status_as_dict(
    status: LockStatus, grace: timedelta, findings: Iterable[Finding]
) -> dict[str, Any]:
    """Return a lock as JSON shows it."""
    return {
        "name": status.name,
        "state": status.state,
        "locked_by": status.locked_by,
        "locked_at": status.locked_at,
        "lock_until": status.lock_until,
        "remaining": None if status.is_endless else status.remaining,
        "remaining_reason": UNTIL_RESUMED if status.is_endless else "",
        "heartbeat_at": status.heartbeat_at,
        "schedule": status.schedule and str(status.schedule),
        "next_tick": status.next_tick,
        "overdue_since": status.overdue_since(grace),
        **_job_as_dict(status.job),
        "findings": [found.as_dict() for found in findings],
    }


def _job_as_dict(job: JobState) -> dict[str, Any]:
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


def write_json(stdout: OutputWrapper, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows as a JSON list, one after the other."""
    before = "[\n"
    for row in rows:
        stdout.write(f"{before}{textwrap.indent(as_json(row), '  ')}", ending="")
        before = ",\n"
    stdout.write("[]" if before == "[\n" else "\n]")


def as_json(value: Any) -> str:
    """Return the value as JSON; durations are seconds."""

    def encoded(value: datetime | timedelta) -> str | float:
        if isinstance(value, datetime):
            return value.isoformat()
        return value.total_seconds()

    return json.dumps(value, default=encoded, indent=2)
