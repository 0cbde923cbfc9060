"""The words and colours of states and outcomes."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_shedlock.durations import format_measured, format_seconds
from django_shedlock.outcomes import RunOutcome
from django_shedlock.states import LockState

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
    """Return words that stand out below what they are about."""
    return format_html('<span class="shedlock-warning">{}</span>', text)


def holder(locked_by: str, host: str, pid: int | None) -> SafeString:
    """Return host and process, with the whole identity for who asks."""
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
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return format_html(
        '<time datetime="{}">{}</time>',
        local.isoformat(),
        formats.date_format(local, "SHORT_DATE_FORMAT")
        + " "
        + formats.time_format(local, "H:i:s"),
    )


def length(duration: timedelta | None) -> str:
    """Return how long something took, if that is known."""
    return NOTHING if duration is None else format_measured(duration)


def rough_length(duration: timedelta) -> str:
    """Return a duration in its two largest units at the most."""
    seconds = max(0, int(duration.total_seconds()))
    step = 3600 if seconds >= 86400 else 60 if seconds >= 3600 else 1
    return format_seconds(timedelta(seconds=seconds - seconds % step))


def short_instant(moment: datetime, age: timedelta) -> SafeString:
    """Return the time of a moment that is less than 24 hours away, or else its date."""
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(),
        formats.date_format(local, "DATETIME_FORMAT"),
        formats.time_format(local, "H:i:s")
        if age < DAY
        else formats.date_format(local, "SHORT_DATE_FORMAT"),
    )


def with_instant(distance: str, moment: datetime, duration: timedelta) -> SafeString:
    """Return how far away a moment is, in words and as ``duration``, and when it is."""
    return format_html(
        '<span class="shedlock-nowrap">{}</span> '
        '<span class="shedlock-nowrap shedlock-quiet">{}</span>',
        distance,
        short_instant(moment, duration),
    )
