"""What the admin tells of a lock: cells of the list, and fields of its page."""

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
    length,
    outcome_badge,
    rough_length,
    state_badge,
    warning,
    with_instant,
)
from django_shedlock.durations import format_seconds
from django_shedlock.identities import split_identity
from django_shedlock.options import default_duration
from django_shedlock.outcomes import RunOutcome
from django_shedlock.states import LockState, is_unusual


class LockColumns:
    """Columns of an admin of records with their states and last runs."""

    lock_columns = (
        "current_state",
        "lease",
        "worker",
        "taken",
        "ends",
        "kept",
        "given_back",
        "last_run",
    )
    lock_fields = (
        ("current_state", "lease"),
        ("worker", "locked_by"),
        ("taken", "ends"),
        ("kept", "given_back"),
        ("last_run", "fencing_token"),
    )

    @admin.display(description=gettext_lazy("name"), ordering="name")
    def shown_name(self, record: Any) -> SafeString:
        """Return the name, whatever the direction of its script."""
        return format_html("<bdi>{}</bdi>", record.name)

    @admin.display(description=gettext_lazy("state"), ordering="urgency")
    def current_state(self, record: Any) -> SafeString:
        """Return the state's label, and whether the job takes long or is overdue."""
        badge = state_badge(LockState(record.state))
        if _takes_long(record):
            return format_html("{} {}", badge, warning(gettext("longer than usual")))
        if record.status.overdue_since(default_duration(conf.GRACE)) is not None:
            return format_html("{} {}", badge, warning(gettext("overdue")))
        return badge

    @admin.display(description=gettext_lazy("host"), ordering="locked_by")
    def worker(self, record: Any) -> str | SafeString:
        """Return the host and the process that took the lock last."""
        if not record.locked_by:
            return NOTHING
        return holder(record.locked_by, *split_identity(record.locked_by))

    @admin.display(description=gettext_lazy("since"), ordering="locked_at")
    def since(self, record: Any) -> str | SafeString:
        """Return how long ago the lock was taken, and when."""
        if not record.locked_by:
            return NOTHING
        age = _age(record)
        ago = gettext("%(age)s ago") % {"age": rough_length(age)}
        return with_instant(ago, record.locked_at, age)

    @admin.display(description=gettext_lazy("since"))
    def taken(self, record: Any) -> str | SafeString:
        """Return when the lock was taken, and how long ago."""
        if not record.locked_by:
            return NOTHING
        ago = gettext("%(age)s ago") % {"age": rough_length(_age(record))}
        return format_html("{} ({})", instant(record.locked_at), ago)

    @admin.display(description=gettext_lazy("lock until"))
    def ends(self, record: Any) -> str:
        """Return when the lease ends, or ended."""
        return instant(record.lock_until)

    @admin.display(description=gettext_lazy("lock at least until"))
    def kept(self, record: Any) -> str:
        """Return how long the lock is kept after a short run."""
        return instant(record.lock_at_least_until)

    @admin.display(description=gettext_lazy("released at"))
    def given_back(self, record: Any) -> str:
        """Return when the holder, or an operator, gave the lock back."""
        return instant(record.released_at)

    @admin.display(description=gettext_lazy("lease"), ordering="lock_until")
    def lease(self, record: Any) -> str | SafeString:
        """Return how much of the lease is used, and how long the lock stays held."""
        if not LockState(record.state).is_held:
            return NOTHING
        whole = record.lock_until - record.locked_at
        used = round(100 * (1 - record.remaining / whole)) if whole else 100
        left = gettext("%(remaining)s left") % {
            "remaining": format_seconds(record.remaining)
        }
        return format_html(
            '<meter class="shedlock-lease" min="0" max="100" high="80" value="{}" '
            'aria-label="{}">{}</meter> <span class="shedlock-nowrap">{}</span>',
            used,
            gettext("%(percent)s %% of the lease is used") % {"percent": used},
            f"{used} %",
            left,
        )

    @admin.display(description=gettext_lazy("last run"))
    def last_run(self, record: Any) -> str | SafeString:
        """Return how the last run that ended ended, and how long it took."""
        if record.last_outcome is None:
            return NOTHING
        return format_html(
            '{} <span class="shedlock-nowrap">{}</span>',
            outcome_badge(RunOutcome(record.last_outcome)),
            "" if record.last_duration is None else length(record.last_duration),
        )


def _age(record: Any) -> timedelta:
    age: timedelta = record.lock_until - record.locked_at - record.remaining
    return age


def _takes_long(record: Any) -> bool:
    return is_unusual(LockState(record.state), _age(record), record.usual_duration)
