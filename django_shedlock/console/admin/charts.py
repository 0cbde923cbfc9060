"""The one way in which the console draws: marks on an SVG, each with a text."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString

from django_shedlock.console.admin.labels import shown


@dataclass(frozen=True)
class Mark:
    """
    A rectangle in a chart.

    Its place and its size are in percent of the chart, from the left and the top edge.
    ``kind`` names its colour and its shape in charts.css. ``title`` says what it stands
    for. A mark with a ``page`` is a link. ``note`` is a short text above it.
    """

    kind: str
    title: str
    left: float
    width: float
    top: float = 0
    height: float = 100
    page: str = ""
    note: str = ""
    is_note_inside: bool = False
    """Whether the note stands in the mark instead."""
    is_cut: bool = False
    """Whether its value exceeds the chart, so it is drawn broken."""
    is_tab_stop: bool = False
    """Whether the keyboard stops at its link."""

    @property
    def middle(self) -> float:
        """The middle of its width."""
        return self.left + self.width / 2


@dataclass(frozen=True)
class Line:
    """A vertical or horizontal line; ``place`` is in percent from the left or top."""

    kind: str
    place: float
    text: str = ""
    """The label of a vertical line, below the chart."""


@dataclass(frozen=True)
class Chart:
    """
    A picture of marks; ``kind`` names its size in charts.css.

    ``title`` is what a screen reader says of the whole picture.
    """

    kind: str
    title: str
    marks: Sequence[Mark] = ()
    columns: Sequence[Line] = ()
    levels: Sequence[Line] = ()

    @property
    def has_links(self) -> bool:
        """Whether one of its marks leads somewhere."""
        return any(mark.page for mark in self.marks)

    def drawn(self) -> SafeString:
        """Return the picture as HTML."""
        return shown("chart", chart=self)
