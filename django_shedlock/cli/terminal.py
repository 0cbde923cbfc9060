"""The text that subcommands print for people: tables, colours, and names."""

import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.core.management.color import Style

from django_shedlock.clocks import local_text
from django_shedlock.locks.status import LockState, RunOutcome

ENDLESS_PAUSE_TEXT = "until resumed"
STYLE_ROLES: dict[str, str] = {
    LockState.RUNNING: "SUCCESS",
    LockState.HELD_AT_LEAST: "HTTP_NOT_MODIFIED",
    LockState.PAUSED: "WARNING",
    LockState.EXPIRED: "ERROR",
    RunOutcome.SUCCEEDED: "SUCCESS",
    RunOutcome.FAILED: "ERROR",
    RunOutcome.TIMED_OUT: "ERROR",
    RunOutcome.LOST: "ERROR",
    RunOutcome.ABANDONED: "ERROR",
}
"""The role of each state and outcome in Django's styles."""


class Cell(NamedTuple):
    """A cell of a table; ``role`` is one of Django's styles, or empty."""

    text: str
    role: str = ""


Row = Mapping[str, Cell | str]
"""The cells of a row by the titles of their columns."""


def table(style: Style, rows: Sequence[Row]) -> str:
    """
    Return the rows as a table, with the titles of the first row above them.

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
    """Return the text in the colours of this role; unchanged without a role."""
    return str(getattr(style, role)(text)) if role else text


def printable(text: str) -> str:
    """Return the text with escapes for all that could move a terminal's cursor."""
    return "".join(
        character if character.isprintable() else repr(character)[1:-1]
        for character in text
    )


def display_width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    return sum(
        0  # the terminal draws it over the character before
        if unicodedata.category(character) in {"Mn", "Me"}
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def shortened(text: str, width: int = 34) -> str:
    """
    Return the text, made printable, in at most ``width`` columns.

    Its middle is cut out if needed.
    """
    text = printable(text)
    if display_width(text) <= width:
        return text
    middle = len(text) // 2
    head, tail = text[:middle], text[middle:]
    while display_width(f"{head}…{tail}") > width:
        if len(head) > len(tail):
            head = head[:-1]
        else:
            tail = tail[1:]
    while tail and not display_width(tail[0]):  # it would be drawn over the ellipsis
        tail = tail[1:]
    return f"{head}…{tail}"


def lock_name(name: str, *, wide: bool) -> str:
    """Return the name of a lock for a table; shorten it for a narrow table."""
    return name if wide else shortened(name)


def coloured(value: str) -> Cell:
    """Return a state or an outcome in its style."""
    return Cell(value, STYLE_ROLES.get(value, ""))


def instant(moment: datetime, *, wide: bool = True) -> str:
    """Return an instant for a table; without year, seconds and zone if narrow."""
    text = local_text(moment)
    return text if wide else text[5:16]
