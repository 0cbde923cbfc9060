"""What the admin shows of a lock: the cells of the list."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import pgettext, pgettext_lazy

from django_shedlock.clocks import aware
from django_shedlock.console.admin.labels import (
    NOTHING,
    ago,
    filled_in,
    holder,
    isolated,
    lease_meter,
    length,
    outcome_badge,
    rough_length,
    short_name,
    state_badge,
    with_instant,
)
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.states import LockState, RunOutcome

PAUSE = (
    "<bdi>{}</bdi> "
    '<span class="shedlock-quiet shedlock-reason" title="{}" dir="auto">{}</span>'
)


class LockColumns:
    """Columns of an admin of records with their states and last runs."""

    @admin.display(description=pgettext_lazy("shedlock", "name"), ordering="name")
    def shown_name(self, record: Any) -> SafeString:
        """Return the name, short, and whatever the direction of its script."""
        short = short_name(record.name)
        return format_html('<bdi title="{}">{}</bdi>', record.name, short)

    @admin.display(description=pgettext_lazy("shedlock", "state"), ordering="urgency")
    def current_state(self, record: Any) -> SafeString:
        """Return the state's label."""
        return state_badge(LockState(record.state))

    @admin.display(description=pgettext_lazy("shedlock", "host"), ordering="locked_by")
    def worker(self, record: Any) -> SafeString:
        """Return where the lock was acquired last; of a pause, who and why."""
        if not record.locked_by:
            return NOTHING
        pause = record.status.pause
        if pause is not None:
            return format_html(PAUSE, pause.operator, record.locked_by, pause.reason)
        return holder(record.locked_by, *split_identity(record.locked_by))

    @admin.display(description=pgettext_lazy("shedlock", "since"), ordering="locked_at")
    def since(self, record: Any) -> SafeString:
        """Return how long ago the lock was acquired, and when."""
        if not record.locked_by:
            return NOTHING
        age = record.lock_until - record.locked_at - record.remaining
        return ago(age, record.locked_at)

    @admin.display(
        description=pgettext_lazy("shedlock", "lease"), ordering="lock_until"
    )
    def lease(self, record: Any) -> SafeString:
        """Return how much of the lease is used, and how long the lock stays held."""
        if not LockState(record.state).is_held:
            return NOTHING
        if record.status.is_endless:
            return format_html("{}", pgettext("shedlock", "until it is resumed"))
        left = pgettext("shedlock", "%(remaining)s left")
        return format_html(
            "{} <span>{}</span>",
            lease_meter(record.lease_used),
            filled_in(left, remaining=rough_length(record.remaining)),
        )

    @admin.display(description=pgettext_lazy("shedlock", "last run"))
    def last_run(self, record: Any) -> SafeString:
        """Return how the last ended run ended, and how long it took."""
        if record.last_outcome is None:
            return NOTHING
        return format_html(
            "{} {}",
            outcome_badge(RunOutcome(record.last_outcome)),
            ""
            if record.last_duration is None
            else isolated(length(record.last_duration)),
        )


class TickColumns:
    """Columns of an admin of records whose schedule is known."""

    @admin.display(description=pgettext_lazy("shedlock", "next expected"))
    def next_expected(self, record: Any) -> str | SafeString:
        """Return how far away the next tick is, and when it is."""
        status = record.status
        if status.next_tick is None:
            return NOTHING
        until = status.next_tick - aware(status.clock)
        ahead = filled_in(pgettext("shedlock", "in %(time)s"), time=rough_length(until))
        return with_instant(ahead, status.next_tick, until)
