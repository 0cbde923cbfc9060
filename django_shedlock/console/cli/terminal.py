"""What people read: text and tables that fit their terminal, in its colours."""

from __future__ import annotations

import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.management.base import OutputWrapper
from django.core.management.color import no_style

ELLIPSIS = "…"
GAP = "  "
PIECE = re.compile(r" *(?:`[^`]*`[^ ]*|[^ ]+)")
"""A word or a command, with the space before it."""
NARROWEST = 40
"""Columns of a terminal below which tables are wider than the terminal."""


def printable(text: str) -> str:
    """Return the text; what could move a terminal's cursor is escaped."""
    return "".join(
        character if character.isprintable() else repr(character)[1:-1]
        for character in text
    )


def display_width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me"}:  # drawn over the one before
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, width: int) -> str:
    """Return the text in at most so many columns; its middle is cut out."""
    if display_width(text) <= width:
        return text
    head = text[: _fitting(text, width // 2)]
    left = width - 1 - display_width(head)
    tail = text[len(text) - _fitting(text[::-1], left) :]
    while tail and not _width(tail[0]):  # it would be drawn over the ellipsis
        tail = tail[1:]
    return head + ELLIPSIS + tail


def _fitting(text: str, width: int) -> int:
    # How many of the first characters fit.
    for number, character in enumerate(text):
        width -= _width(character)
        if width < 0:
            return number
    return len(text)


@dataclass(frozen=True)
class Column:
    """
    A column of a table.

    ``rank`` says which columns matter: the highest give way first. A column with
    ``least`` may be cut to that width, others are shown whole or, unless they ``stay``,
    not at all.
    """

    title: str
    rank: int
    least: int | None = None
    stays: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell: its text, a shorter one for want of room, and the role of its style."""

    text: str
    short: str | None = None
    role: str = ""

    @classmethod
    def of(cls, cell: Cell | str) -> Cell:
        """Return the cell, in which nothing can move the cursor."""
        cell = cell if isinstance(cell, Cell) else cls(cell)
        short = cell.text if cell.short is None else cell.short
        return cls(printable(cell.text), printable(short), cell.role)


Row = Sequence[Cell | str]


class Terminal:
    """
    Where a subcommand prints.

    ``width`` is that of a terminal; ``None`` in a pipe or a file, where nothing is cut.
    ``style`` has Django's roles, without colours unless they are shown.
    """

    def __init__(self, out: OutputWrapper, style: Any = None, *, colours: bool = False):
        self._out = out
        is_terminal = bool(out.isatty())
        self.width = shutil.get_terminal_size().columns if is_terminal else None
        has_colours = style is not None and (is_terminal or colours)
        self.style: Any = style if has_colours else no_style()

    def write(self, text: str) -> None:
        """Write a line, or several; escape what the output's encoding does not have."""
        encoding = getattr(self._out, "encoding", None) or "utf-8"
        encoded = text.replace(ELLIPSIS, _ellipsis(encoding)).encode(
            encoding, "backslashreplace"
        )
        self._out.write(encoded.decode(encoding))

    def styled(self, role: str, text: str) -> str:
        """Return the text as Django styles this role."""
        style: Callable[[str], str] = getattr(self.style, role, str)
        return style(text) if role else text

    def paragraph(self, text: str, *, indent: str = "", role: str = "") -> str:
        """
        Return the text, wrapped on a terminal; its first word has the style.

        A command between backticks stays in one piece, so that it can be copied.
        """
        first, *others = PIECE.findall(printable(text)) or [""]
        lines, width = [self.styled(role, first)], display_width(first)
        for piece in others:
            width += display_width(piece)
            if self.width is not None and width > max(self.width, NARROWEST):
                lines.append(indent)
                piece = piece.lstrip()
                width = display_width(indent + piece)
            lines[-1] += piece
        return "\n".join(lines)

    def table(self, columns: Sequence[Column], rows: Sequence[Row]) -> str:
        """Return the rows below the columns' titles, as wide as there is room."""
        cells = [[Cell.of(cell) for cell in row] for row in rows]
        shown, widths, is_short = self._fit(columns, cells)
        titles = [Cell.of(Cell(c.title, role="MIGRATE_LABEL")) for c in columns]
        return "\n".join(
            self._line([line[number] for number in shown], widths, is_short=is_short)
            for line in [titles, *cells]
        )

    def _fit(
        self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]
    ) -> tuple[list[int], list[int], bool]:
        # Return which columns are shown, their widths, and whether cells are short.
        room = sys.maxsize if self.width is None else max(self.width, NARROWEST)
        for shown in _fewer(columns):
            for is_short in (False, True):
                widths = _widths(columns, rows, shown, is_short=is_short)
                if _total(widths) <= room:
                    return shown, widths, is_short
            _cut(widths, [columns[number] for number in shown], room)
            if _total(widths) <= room:
                break
        return shown, widths, is_short

    def _line(self, cells: Sequence[Cell], widths: list[int], *, is_short: bool) -> str:
        line, spaces = "", ""
        for cell, width in zip(cells, widths, strict=True):
            text = shortened(str(cell.short) if is_short else cell.text, width)
            line += spaces + self.styled(cell.role, text)
            spaces = " " * (width - display_width(text)) + GAP
        return line


def _ellipsis(encoding: str) -> str:
    try:
        ELLIPSIS.encode(encoding)
    except UnicodeEncodeError:
        return "~"
    return ELLIPSIS


def _fewer(columns: Sequence[Column]) -> Iterator[list[int]]:
    # All columns, then always without the one that matters least.
    shown = list(range(len(columns)))
    yield shown
    for number in sorted(shown, key=lambda number: -columns[number].rank):
        if not columns[number].stays:
            shown = [other for other in shown if other != number]
            yield shown


def _widths(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    shown: list[int],
    *,
    is_short: bool,
) -> list[int]:
    return [
        max(
            display_width(columns[number].title),
            *(
                display_width(str(row[number].short) if is_short else row[number].text)
                for row in rows
            ),
            0,
        )
        for number in shown
    ]


def _cut(widths: list[int], columns: Sequence[Column], room: int) -> None:
    for number in sorted(range(len(columns)), key=lambda each: -columns[each].rank):
        least = columns[number].least
        if least is not None:
            excess = max(0, _total(widths) - room)
            widths[number] = max(min(widths[number], least), widths[number] - excess)


def _total(widths: list[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)
