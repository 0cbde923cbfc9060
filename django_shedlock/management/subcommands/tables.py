"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.utils import timezone


def as_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the rows below the columns' names, all as wide as they need."""
    lines = [columns, *(list(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def printable(text: str) -> str:
    """Return the text with an escape for whatever could move a terminal's cursor."""
    return "".join(
        character if character.isprintable() else repr(character)[1:-1]
        for character in text
    )


def local(moment: datetime) -> str:
    """Return the instant to the second, in the project's zone."""
    if timezone.is_aware(moment):
        moment = timezone.localtime(moment)
    return moment.isoformat(sep=" ", timespec="seconds")
