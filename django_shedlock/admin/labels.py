"""How the admin shows states, outcomes and instants, and which provider it shows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_shedlock.durations import format_measured, format_seconds
from django_shedlock.locks.states import LockState, RunOutcome
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.database import DatabaseLockProvider

NOTHING = "-"
DAY = timedelta(days=1)

STATES = {
    LockState.EXPIRED: gettext_lazy("expired"),
    LockState.RUNNING: gettext_lazy("running"),
    LockState.HELD_AT_LEAST: gettext_lazy("held at least"),
    LockState.FREE: pgettext_lazy("lock", "free"),
}
"""In the order of their urgency."""

OUTCOMES = {
    RunOutcome.FAILED: gettext_lazy("failed"),
    RunOutcome.LOST: pgettext_lazy("run", "lost"),
    RunOutcome.ABANDONED: gettext_lazy("abandoned"),
    RunOutcome.RUNNING: gettext_lazy("running"),
    RunOutcome.SUCCEEDED: gettext_lazy("succeeded"),
}
"""In the order of their urgency."""


def state_badge(state: LockState) -> SafeString:
    """Return the state's label in its colour."""
    return _badge(state.value, str(STATES[state]))


def outcome_badge(outcome: RunOutcome) -> SafeString:
    """Return the outcome's label in its colour."""
    return _badge(outcome.value, str(OUTCOMES[outcome]))


def _badge(kind: str, label: str) -> SafeString:
    return format_html(
        '<span class="shedlock-badge shedlock-{}">{}</span>',
        kind.replace(" ", "-"),
        label,
    )


def warning(text: str) -> SafeString:
    """Return a text that stands out as a warning."""
    return format_html('<span class="shedlock-warning">{}</span>', text)


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
    return format_html('<time datetime="{}">{} {}</time>', shown.isoformat(), day, time)


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
    shown = _local(moment)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        shown.isoformat(),
        formats.date_format(shown, "DATETIME_FORMAT"),
        formats.time_format(shown, "H:i:s")
        if age < DAY
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


def admin_provider() -> DatabaseLockProvider:
    """Return the first database provider of the settings, which the admin shows."""
    for alias in provider_aliases():
        provider = get_provider(alias)
        if isinstance(provider, DatabaseLockProvider):
            return provider
    return DatabaseLockProvider("default")
