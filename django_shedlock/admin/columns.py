"""What the admin shows of a lock: cells of the list, and fields of its page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from django_shedlock import conf
from django_shedlock.admin.labels import (
    NOTHING,
    holder,
    instant,
    instant_column,
    length,
    outcome_badge,
    rough_length,
    state_badge,
    warning,
    with_instant,
)
from django_shedlock.clocks import aware
from django_shedlock.durations import format_seconds
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.states import LockState, RunOutcome, is_unusual


class LockColumns:
    """Columns of an admin of records with their states and last runs."""

    lock_fields = (
        ("current_state", "lease"),
        ("worker", "locked_by"),
        ("acquired", "ends"),
        ("kept", "released"),
        ("last_run", "fencing_token"),
    )
    kept = instant_column("lock_at_least_until", gettext_lazy("lock at least until"))
    released = instant_column("released_at", gettext_lazy("released at"))

    @admin.display(description=gettext_lazy("name"), ordering="name")
    def shown_name(self, record: Any) -> SafeString:
        """Return the name, whatever the direction of its script."""
        return format_html("<bdi>{}</bdi>", record.name)

    @admin.display(description=gettext_lazy("state"), ordering="urgency")
    def current_state(self, record: Any) -> SafeString:
        """Return the state's label, and whether the job takes long or is overdue."""
        badge = state_badge(LockState(record.state))
        if is_unusual(LockState(record.state), _age(record), record.usual_duration):
            return format_html("{} {}", badge, warning(gettext("longer than usual")))
        if record.status.overdue_since(default_duration(conf.GRACE)) is not None:
            return format_html("{} {}", badge, warning(gettext("overdue")))
        return badge

    @admin.display(description=gettext_lazy("host"), ordering="locked_by")
    def worker(self, record: Any) -> str | SafeString:
        """Return the host and the process that acquired the lock last."""
        if not record.locked_by:
            return NOTHING
        return holder(record.locked_by, *split_identity(record.locked_by))

    @admin.display(description=gettext_lazy("since"), ordering="locked_at")
    def since(self, record: Any) -> str | SafeString:
        """Return how long ago the lock was acquired, and when."""
        if not record.locked_by:
            return NOTHING
        age = _age(record)
        return with_instant(_ago(age), record.locked_at, age)

    @admin.display(description=gettext_lazy("since"))
    def acquired(self, record: Any) -> str | SafeString:
        """Return when the lock was acquired, and how long ago."""
        if not record.locked_by:
            return NOTHING
        return format_html("{} ({})", instant(record.locked_at), _ago(_age(record)))

    @admin.display(description=gettext_lazy("lock until"), ordering="lock_until")
    def ends(self, record: Any) -> str | SafeString:
        """Return when the lease ends, if anybody ever held the lock."""
        return instant(record.lock_until) if record.locked_by else NOTHING

    @admin.display(description=gettext_lazy("lease"), ordering="lock_until")
    def lease(self, record: Any) -> str | SafeString:
        """Return how much of the lease is used, and how long the lock stays held."""
        if not LockState(record.state).is_held:
            return NOTHING
        whole = record.lock_until - record.locked_at
        used = round(100 * (1 - record.remaining / whole)) if whole else 100
        left = {"remaining": format_seconds(record.remaining)}
        return format_html(
            '<meter class="shedlock-lease" min="0" max="100" high="80" value="{}" '
            'aria-label="{}">{}</meter> <span class="shedlock-nowrap">{}</span>',
            used,
            gettext("%(percent)s %% of the lease is used") % {"percent": used},
            f"{used} %",
            gettext("%(remaining)s left") % left,
        )

    @admin.display(description=gettext_lazy("last run"))
    def last_run(self, record: Any) -> str | SafeString:
        """Return how the last ended run ended, and how long it took."""
        if record.last_outcome is None:
            return NOTHING
        return format_html(
            '{} <span class="shedlock-nowrap">{}</span>',
            outcome_badge(RunOutcome(record.last_outcome)),
            "" if record.last_duration is None else length(record.last_duration),
        )


class TickColumns:
    """Columns of an admin of records, and the fields of a page with a schedule."""

    tick_fields = (
        ("shown_schedule", "next_expected"),
        ("newest_run", "first_due"),
        "overdue_since",
    )
    newest_run = instant_column("tick", gettext_lazy("newest tick that was run"))
    first_due = instant_column("due_at", gettext_lazy("due at"))

    @admin.display(description=gettext_lazy("next expected"))
    def next_expected(self, record: Any) -> str | SafeString:
        """Return how far away the next tick is, and when it is."""
        status = record.status
        if status.next_tick is None:
            return NOTHING
        until = status.next_tick - aware(status.clock)
        ahead = gettext("in %(time)s") % {"time": rough_length(until)}
        return with_instant(ahead, status.next_tick, until)

    @admin.display(description=gettext_lazy("schedule"))
    def shown_schedule(self, record: Any) -> SafeString:
        """Return the cron expression and its time zone, from left to right."""
        return format_html('<code dir="ltr">{}</code>', record.schedule)

    @admin.display(description=gettext_lazy("overdue since"))
    def overdue_since(self, record: Any) -> str | SafeString:
        """Return the first tick that should have succeeded, and how long ago it was."""
        status, grace = record.status, default_duration(conf.GRACE)
        since = status.overdue_since(grace)
        if since is None:
            return NOTHING
        ago = _ago(status.overdue_for(grace))
        return format_html("{} ({})", instant(since), ago)


def _age(record: Any) -> timedelta:
    age: timedelta = record.lock_until - record.locked_at - record.remaining
    return age


def _ago(age: timedelta) -> str:
    return gettext("%(age)s ago") % {"age": rough_length(age)}
