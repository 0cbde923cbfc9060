"""How the admin shows states, outcomes and instants."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.utils import formats, timezone
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, pgettext, pgettext_lazy

from django_shedlock.console.monitoring.findings import Kind
from django_shedlock.durations import format_measured, format_seconds
from django_shedlock.locks.states import LockState, RunOutcome
from django_shedlock.models import ActionKind, ActionResult
from django_shedlock.schedules.state import Trigger

NOTHING = mark_safe('<span class="shedlock-nothing">-</span>')
"""An empty cell; a phone shows none."""
DAY = timedelta(days=1)

STATES = {
    LockState.EXPIRED: pgettext_lazy("shedlock", "expired"),
    LockState.RUNNING: pgettext_lazy("shedlock", "running"),
    LockState.PAUSED: pgettext_lazy("shedlock", "paused"),
    LockState.HELD_AT_LEAST: pgettext_lazy("shedlock", "held at least"),
    LockState.FREE: pgettext_lazy("shedlock", "free"),
}
"""In the order of their urgency."""

OUTCOMES = {
    RunOutcome.FAILED: pgettext_lazy("shedlock", "failed"),
    RunOutcome.LOST: pgettext_lazy("shedlock", "lost"),
    RunOutcome.ABANDONED: pgettext_lazy("shedlock", "abandoned"),
    RunOutcome.RUNNING: pgettext_lazy("shedlock", "running"),
    RunOutcome.SUCCEEDED: pgettext_lazy("shedlock", "succeeded"),
}
"""In the order of their urgency."""

TRIGGERS = {
    Trigger.SCHEDULER: pgettext_lazy("shedlock", "scheduler"),
    Trigger.RETRY: pgettext_lazy("shedlock", "retry"),
    Trigger.CATCH_UP: pgettext_lazy("shedlock", "catch-up"),
    Trigger.OPERATOR: pgettext_lazy("shedlock", "operator"),
}
"""What starts runs."""

ACTIONS = {
    ActionKind.RELEASE: pgettext_lazy("shedlock", "release"),
    ActionKind.EXTEND: pgettext_lazy("shedlock", "extend"),
    ActionKind.PAUSE: pgettext_lazy("shedlock", "pause"),
    ActionKind.RESUME: pgettext_lazy("shedlock", "resume"),
    ActionKind.RUN: pgettext_lazy("shedlock", "run now"),
    ActionKind.CATCH_UP: pgettext_lazy("shedlock", "catch-up"),
}
"""What operators do."""

RESULTS = {
    ActionResult.REQUESTED: pgettext_lazy("shedlock", "requested"),
    ActionResult.STARTED: pgettext_lazy("shedlock", "result not known"),
    ActionResult.DONE: pgettext_lazy("shedlock", "done"),
    ActionResult.REFUSED: pgettext_lazy("shedlock", "refused"),
    ActionResult.FAILED: pgettext_lazy("shedlock", "failed"),
}
"""What came of it."""


KINDS = {
    Kind.OVERDUE: pgettext_lazy("shedlock", "overdue"),
    Kind.FAILED: pgettext_lazy("shedlock", "failed"),
    Kind.EXPIRED: pgettext_lazy("shedlock", "expired"),
    Kind.LONG: pgettext_lazy("shedlock", "runs too long"),
    Kind.LOST: pgettext_lazy("shedlock", "lost"),
    Kind.ABANDONED: pgettext_lazy("shedlock", "abandoned"),
    Kind.UNREADABLE: pgettext_lazy("shedlock", "unreadable"),
}
"""What is found in a lock, in the order of its urgency."""

CRON = re.compile(
    r"""
    (?P<namespace>(?:.*?\.)?)cron:
    (?:django\.core\.management\.call_command\("(?P<command>[\w-]+)"(?:,[ ])?
       (?P<options>.*)\)$
    |  (?P<path>[\w.]+\.)(?P<function>\w.*))
    """,
    re.DOTALL | re.VERBOSE,
)
"""The name of an entry of ``CRONJOBS``: a path, and perhaps its arguments."""


def state_badge(state: LockState) -> SafeString:
    """Return the state's label in its colour."""
    return badge(state.value, str(STATES[state]))


def outcome_badge(outcome: RunOutcome) -> SafeString:
    """Return the outcome's label in its colour."""
    return badge(outcome.value, str(OUTCOMES[outcome]))


def badge(kind: str, label: str) -> SafeString:
    """Return a label in the colour of its kind, which console.css names."""
    return format_html(
        '<span class="shedlock-badge shedlock-{}">{}</span>',
        kind.replace(" ", "-"),
        label,
    )


def short_name(name: str) -> str:
    """Return the name; of an entry of ``CRONJOBS`` without the path to its function."""
    entry = CRON.match(name)
    if entry is None:
        return name
    if entry["function"]:
        return f"{entry['namespace']}cron:{entry['function']}"
    options = f"({entry['options']})" if entry["options"] else ""
    return f"{entry['namespace']}cron:{entry['command']}{options}"


def isolated(text: str) -> SafeString:
    """Return a duration or number that keeps its order in Arabic, and on its line."""
    return format_html('<bdi dir="ltr">{}</bdi>', text)


def filled_in(sentence: str, **values: str) -> SafeString:
    """Return the translated sentence with these values, each isolated unless HTML."""
    shown = {
        key: value if isinstance(value, SafeString) else isolated(value)
        for key, value in values.items()
    }
    return mark_safe(escape(sentence) % shown)  # noqa: S308


def holder(locked_by: str, host: str, pid: int | None) -> SafeString:
    """Return the host and the process, with the whole identity as a tooltip."""
    return format_html(
        '<span title="{}"><bdi>{}</bdi> <span class="shedlock-quiet">{}</span></span>',
        locked_by,
        host,
        "" if pid is None else f"({pid})",
    )


def instant(moment: datetime | None) -> str | SafeString:
    """Return the instant to the second, in the user's zone."""
    if moment is None:
        return NOTHING
    shown = _local(moment)
    day = formats.date_format(shown, "SHORT_DATE_FORMAT")
    time = formats.time_format(shown, "H:i:s")
    return format_html(
        '<time datetime="{}"><bdi>{}</bdi> {}</time>',
        shown.isoformat(),
        day,
        isolated(time),
    )


def instant_text(moment: datetime) -> str:
    """Return the instant to the second as a plain text, for a tooltip."""
    shown = _local(moment)
    day = formats.date_format(shown, "SHORT_DATE_FORMAT")
    return f"{day} {formats.time_format(shown, 'H:i:s')}"


def instant_column(field: str, description: Any) -> Callable[[Any, Any], str]:
    """Return a column of an admin that shows this field of a row as an instant."""

    @admin.display(description=description)
    def column(self: Any, row: Any) -> str:
        return instant(getattr(row, field))

    return column


def length(duration: timedelta | None) -> str:
    """Return how long a run took, if that is known."""
    return NOTHING if duration is None else format_measured(duration)


def rough_length(duration: timedelta) -> str:
    """Return a duration in at most its two largest units."""
    seconds = max(0, int(duration.total_seconds()))
    step = 3600 if seconds >= 86400 else 60 if seconds >= 3600 else 1
    return format_seconds(timedelta(seconds=seconds - seconds % step))


def short_instant(moment: datetime, age: timedelta) -> SafeString:
    """Return the time of an instant that is less than a day away, else its date."""
    shown, is_near = _local(moment), age < DAY
    return format_html(
        '<time datetime="{}" title="{}" dir="{}">{}</time>',
        shown.isoformat(),
        formats.date_format(shown, "DATETIME_FORMAT"),
        "ltr" if is_near else "auto",
        formats.time_format(shown, "H:i:s")
        if is_near
        else formats.date_format(shown, "SHORT_DATE_FORMAT"),
    )


def with_instant(distance: str, moment: datetime, duration: timedelta) -> SafeString:
    """Return the distance in words, and the instant, which is ``duration`` away."""
    return format_html(
        '<span class="shedlock-nowrap">{}</span> '
        '<span class="shedlock-nowrap shedlock-quiet">{}</span>',
        distance,
        short_instant(moment, duration),
    )


def _local(moment: datetime) -> datetime:
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def ago(age: timedelta, moment: datetime) -> SafeString:
    """Return how long ago that was, and when."""
    text = pgettext("shedlock", "%(age)s ago")
    return with_instant(filled_in(text, age=rough_length(age)), moment, age)


def lease_meter(used: float) -> SafeString:
    """Return a bar for the part of a lease that is used, 0 to 1."""
    percent = round(100 * used)
    return format_html(
        '<meter class="shedlock-lease" min="0" max="100" high="80" value="{}" '
        'aria-label="{}">{}</meter>',
        percent,
        gettext("%(percent)s %% of the lease is used") % {"percent": percent},
        f"{percent} %",
    )
