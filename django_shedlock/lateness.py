"""What is said of a job that is late, or runs for too long."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from django_shedlock.clocks import aware
from django_shedlock.durations import format_seconds
from django_shedlock.occasions import Occasion
from django_shedlock.providers.base import LockProvider
from django_shedlock.states import LockStatus
from django_shedlock.triggers import Trigger


def too_long(status: LockStatus, held_for: timedelta) -> str | None:
    """Say so if the job runs for longer than that."""
    if not status.state.is_running or status.held_for <= held_for:
        return None
    return f"{running(status)}."


def skipping(status: LockStatus, grace: timedelta) -> str | None:
    """Say so if the job still runs, though a tick after its own is overdue."""
    tick = status.skips_since(grace)
    if tick is None:
        return None
    return (
        f"{running(status)}, since the tick of {_local(tick)} ({status.schedule}), so "
        "later ones are skipped."
    )


def running(status: LockStatus) -> str:
    """Say for how long the job has run, and where, without a full stop."""
    return (
        f"its job has run for {format_seconds(status.held_for)} as {status.locked_by}"
    )


def overdue(provider: LockProvider, status: LockStatus, grace: timedelta) -> str | None:
    """Say so if a tick has not succeeded so long after it, why, and what helps."""
    since = status.overdue_since(grace)
    if since is None:
        return None
    return (
        f"it is overdue: the tick of {_local(since)} ({status.schedule}) has not "
        f"succeeded, {_why(status, since, grace)}. If it is a job of this project, "
        f"{_remedy(provider, status, grace)} runs it now."
    )


def _why(status: LockStatus, since: datetime, grace: timedelta) -> str:
    tick = status.progress.tick
    if tick is None:
        return "and no run ever began. Look whether its scheduler runs"
    if not status.progress.was_started(aware(status.clock), grace):
        begun = f"and no run began since that of {_local(tick)}"
        return f"{begun}. Look whether its scheduler runs"
    if tick == since:
        return "though it was run. Find out why"
    return f"and neither has the last that was run, {_local(tick)}. Find out why"


def _remedy(provider: LockProvider, status: LockStatus, grace: timedelta) -> str:
    occasion = Occasion(Trigger.CATCH_UP, status.schedule, grace)
    may_catch_up = status.progress.allows(occasion, aware(status.clock))
    subcommand = "catch-up" if may_catch_up else "trigger"
    if provider.alias == "default":
        return f"`shedlock {subcommand}`"
    return f"`shedlock --provider {provider.alias} {subcommand}`"


def _local(moment: datetime) -> str:
    return timezone.localtime(moment).isoformat(sep=" ", timespec="seconds")
