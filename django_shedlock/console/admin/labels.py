"""The console's labels, and the small templates in which it shows them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import admin
from django.db.models import Model
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator, capfirst
from django.utils.translation import gettext, pgettext, pgettext_lazy

from django_shedlock.admin import OUTCOME_LABELS, STATE_LABELS, TRIGGER_LABELS
from django_shedlock.clocks import local_text
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.durations import format_measured, format_rough
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRun
from django_shedlock.schedules.state import Trigger

if TYPE_CHECKING:  # Django has no public type for translated texts
    from django_stubs_ext import StrOrPromise

    ShownText = StrOrPromise
else:
    ShownText = str | Promise

ShownRow = TypeVar("ShownRow")
Column = Callable[[object, ShownRow], object]
"""What a column of an admin shows for a row: a method of the admin."""

EMPTY_CELL = mark_safe('<span class="shedlock-nothing">-</span>')
"""The layout for narrow screens hides it."""
LONGEST_EXACT_AGE = timedelta(minutes=10)
"""Lists show longer times without seconds."""
LISTED_MESSAGE_MAX_LENGTH = 120
"""Characters of an exception's message in a list."""

FINDING_LABELS: dict[str, ShownText] = {
    kind: kind.label
    for kind in Kind
    if kind not in {Kind.UNREACHABLE, Kind.SILENT, Kind.CLOCK, Kind.MORE}
}
"""Kinds of findings in a lock, in their order."""
STORE_LABELS: dict[str, ShownText] = {
    Kind.SILENT: pgettext_lazy("shedlock", "scheduler silent"),
    Kind.CLOCK: pgettext_lazy("shedlock", "wrong clock"),
    Kind.HISTORY: pgettext_lazy("shedlock", "history"),
    Kind.UNREACHABLE: pgettext_lazy("shedlock", "unreachable"),
}
"""Kinds of findings in a store."""


def finding_label(finding: Finding) -> str:
    """Return what such a finding is called in the list."""
    known = STORE_LABELS if finding.lock is None else FINDING_LABELS
    return capfirst(str(known.get(finding.kind, finding.kind)))


def shown(cell: str, **context: object) -> SafeString:
    """Return the cell's template rendered with these values."""
    html = render_to_string(f"admin/shedlock_console/cells/{cell}.html", context)
    return mark_safe(html.strip())  # noqa: S308


def column(
    description: ShownText,
    show: Callable[[ShownRow], object],
    ordering: str | None = None,
) -> Column[ShownRow]:
    """Return a column of an admin that shows this for each row."""

    @admin.display(description=description, ordering=ordering)
    def cell(self: object, row: ShownRow) -> object:
        return show(row)

    return cell


def instant_column(field: str, description: ShownText) -> Column[Model]:
    """Return a column of an admin that shows this instant of each row."""

    def show(row: Model) -> SafeString:
        return instant(getattr(row, field))

    return column(description, show)


def text_column(
    model: type[Model], field: str, cell: str = "text", *, is_cut: bool = False
) -> Column[Model]:
    """
    Return a column of an admin that shows this text.

    If it ``is_cut``, the column shows only the beginning, for lists.
    """

    def show(row: Model) -> SafeString:
        text = getattr(row, field)
        text = Truncator(text).chars(200) if is_cut else text
        return shown(cell, text=text) if text else EMPTY_CELL

    title = model._meta.get_field(field).verbose_name  # type: ignore[union-attr]
    return column(title, show)


def badge(kind: str, label: str) -> SafeString:
    """Return a label in the colour of its kind, which console.css names."""
    html = '<span class="shedlock-badge shedlock-{}">{}</span>'
    return format_html(html, kind.replace(" ", "-"), label)


def state_badge(state: str) -> SafeString:
    """Return the state's label in its colour."""
    return badge(state, str(STATE_LABELS[LockState(state)]))


def outcome_badge(outcome: str) -> SafeString:
    """Return the outcome's label in its colour."""
    # What another version has written is shown as it is.
    return badge(outcome, str(OUTCOME_LABELS.get(outcome, outcome)))


def lock_name(name: str) -> SafeString:
    """Return the name, which may be broken at its points."""
    parts = ((part,) for part in name.split("."))
    broken = format_html_join(mark_safe(".<wbr>"), "{}", parts)
    return format_html('<bdi title="{}">{}</bdi>', name, broken)


def isolated(text: str) -> SafeString:
    """Return the text with its own direction."""
    return format_html('<bdi dir="ltr">{}</bdi>', text)


def filled_in(sentence: str, **values: str) -> SafeString:
    """
    Return the translated sentence with these values.

    A value that is plain text keeps its own direction, also where the sentence runs
    from right to left.
    """
    cells = {
        key: value if isinstance(value, SafeString) else isolated(value)
        for key, value in values.items()
    }
    return mark_safe(escape(sentence) % cells)  # noqa: S308


def holder(locked_by: str, host: str, pid: int | None) -> SafeString:
    """Return the host and the process, with the whole identity as a tooltip."""
    process = "" if pid is None else f"({pid})"
    html = (
        '<span title="{}"><bdi>{}</bdi> <span class="shedlock-quiet">{}</span></span>'
    )
    return format_html(html, locked_by, host, process)


def holder_of(locked_by: str) -> SafeString:
    """Return the holder of an acquisition, by its identity."""
    return holder(locked_by, *split_identity(locked_by))


def local(moment: datetime) -> datetime:
    """Return the instant in the user's zone."""
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def instant(moment: datetime | None) -> SafeString:
    """Return the instant to the second, in the user's zone, as findings tell it."""
    if moment is None:
        return EMPTY_CELL
    day, _, time = local_text(moment).partition(" ")
    html = '<time datetime="{}" dir="ltr">{} {}</time>'
    return format_html(html, local(moment).isoformat(), isolated(day), isolated(time))


def with_instant(distance: str, moment: datetime, duration: timedelta) -> SafeString:
    """
    Return the distance in words, and the instant, which is ``duration`` away.

    The instant is shown as a time if it is less than a day away, else as a date.
    """
    whole, here = local_text(moment), local(moment)
    day, _, time = here.isoformat("T", "minutes").partition("T")
    short = time if duration < timedelta(days=1) else day
    html = (
        '<span class="shedlock-nowrap">{}</span> <span class="shedlock-nowrap '
        'shedlock-quiet"><time datetime="{}" title="{}" dir="ltr">{}</time></span>'
    )
    return format_html(html, distance, here.isoformat(), whole, short)


def ago(age: timedelta, moment: datetime) -> SafeString:
    """Return how long ago that was, and when."""
    text = pgettext("shedlock", "%(age)s ago")
    return with_instant(filled_in(text, age=format_rough(age)), moment, age)


def coarse(duration: timedelta) -> str:
    """Return a length of time for lists, without seconds from ten minutes on."""
    if duration >= LONGEST_EXACT_AGE:
        duration -= duration % timedelta(minutes=1)
    return format_rough(duration)


def distance(
    sentence: str, duration: timedelta, moment: datetime, key: str = "age"
) -> SafeString:
    """Return the sentence with the ``duration``, and the instant as its tooltip."""
    html = '<time datetime="{}" title="{}" class="shedlock-nowrap">{}</time>'
    text = filled_in(sentence, **{key: coarse(duration)})
    return format_html(html, local(moment).isoformat(), local_text(moment), text)


def length(duration: timedelta | None) -> str:
    """Return how long a run took, if that is known."""
    return EMPTY_CELL if duration is None else format_measured(duration)


def lease_meter(used: float) -> SafeString:
    """Return a bar for the part of a lease that is used, 0 to 1."""
    percent = {"percent": round(100 * used)}
    text = gettext("%(percent)s %% of the lease is used") % percent
    html = (
        '<meter class="shedlock-lease" min="0" max="100" high="80" value="{percent}" '
        'aria-label="{text}">{percent} %</meter>'
    )
    return format_html(html, text=text, **percent)


def started_by(run: LockRun) -> SafeString:
    """Return what started the run and, if a person did, who."""
    if not run.trigger:
        return EMPTY_CELL
    is_usual = run.trigger == Trigger.SCHEDULER and not run.operator
    label = TRIGGER_LABELS.get(run.trigger, run.trigger)
    return shown("cause", run=run, label=label, is_usual=is_usual)


def excerpt(run: Any) -> SafeString:
    """Return the exception's type and the beginning of its message."""
    if not run.exception_type:
        return EMPTY_CELL
    short = run.exception_type.rpartition(".")[2]
    return shown(
        "exception",
        run=run,
        short=short,
        message=run.excerpt[:LISTED_MESSAGE_MAX_LENGTH],
        is_cut=len(run.excerpt) > LISTED_MESSAGE_MAX_LENGTH,
    )
