"""What the subcommands print: tables for people, JSON for programs."""

import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.core.management.color import Style

from django_shedlock.clocks import local_text
from django_shedlock.locks.status import LockState, RunOutcome

ENDLESS_PAUSE_TEXT = "until resumed"
ELLIPSIS = "…"
NARROW_NAME_WIDTH = 34
STYLE_ROLES: dict[str, str] = {
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
            spaces = " " * (width - display_width(cell.text)) + "  "
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
    """Return the printable text in at most this many columns, its middle cut out."""
    text = printable(text)
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
    return name if wide else shortened(name, NARROW_NAME_WIDTH)


def coloured(value: str) -> Cell:
    """Return a state or an outcome in its style."""
    return Cell(value, STYLE_ROLES.get(value, ""))


def instant(moment: datetime, *, wide: bool = True) -> str:
    """Return an instant for a table; a narrow one has no year, seconds and zone."""
    text = local_text(moment)
    return text if wide else text[5:16]
