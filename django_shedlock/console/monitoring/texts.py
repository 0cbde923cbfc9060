"""What findings say of a lock: why somebody should look, and what helps."""

from __future__ import annotations

from datetime import datetime, timedelta
from shlex import quote

from django.utils import timezone

from django_shedlock.clocks import aware
from django_shedlock.console.monitoring.summaries import MOST_FAILURES, LockSummary
from django_shedlock.durations import format_seconds
from django_shedlock.locks.states import LockState, LockStatus, RunOutcome
from django_shedlock.providers.base import LockProvider

BAD_ENDS = {
    RunOutcome.FAILED: "its last run failed with {exception}{again}. {history} shows "
    "its runs, and {trigger} runs it now.",
    RunOutcome.LOST: "its last run lost the lock before it ended{again}; it may have "
    "run twice at the same time. {history} shows for how long it runs: give it a "
    "longer lock_at_most_for, or keep_alive=True.",
    RunOutcome.ABANDONED: "the worker of its last run died{again}. {history} shows "
    "where, and {trigger} runs it now.",
}


def expired(provider: LockProvider, status: LockStatus) -> str | None:
    """Return the text if the lease is over without a release."""
    if status.state is not LockState.EXPIRED:
        return None
    release = command(provider, f"release {quote(status.name)} --force")
    return (
        f"its lease is over and {status.locked_by} never released it: the worker "
        "died, or its job runs for longer than lock_at_most_for. The next start "
        "acquires it, but not `shedlock catch-up`. If the worker is dead, "
        f"{release} releases it."
    )


def bad_end(provider: LockProvider, summary: LockSummary) -> str | None:
    """Return the text if the last run of the job ended badly."""
    if summary.last_outcome not in BAD_ENDS:
        return None
    again, name = "", quote(summary.name)
    if summary.failures > 1:
        limit = "at least " if summary.failures == MOST_FAILURES else ""
        again = f", and {limit}{summary.failures} runs in a row have not succeeded"
    return BAD_ENDS[summary.last_outcome].format(
        exception=summary.last_exception_type,
        again=again,
        history=command(provider, f"history {name}"),
        trigger=command(provider, f"trigger {name}"),
    )


def too_long(
    provider: LockProvider, status: LockStatus, held_for: timedelta
) -> str | None:
    """Return the text if the job runs for longer than this."""
    if not status.state.is_running or status.held_for <= held_for:
        return None
    return f"{running(status)}. {if_it_hangs(provider, status)}"


def skipping(
    provider: LockProvider, status: LockStatus, grace: timedelta
) -> str | None:
    """Return the text if the job still runs, and a tick after its own is overdue."""
    tick = status.skips_since(grace)
    if tick is None:
        return None
    return (
        f"{running(status)}, since the tick of {_local(tick)} ({status.schedule}), so "
        f"later ones are skipped. {if_it_hangs(provider, status)}"
    )


def if_it_hangs(provider: LockProvider, status: LockStatus) -> str:
    """Return what to do with a job that runs for too long."""
    release = command(provider, f"release {quote(status.name)} --force")
    return f"If it hangs, end its process; then {release} releases its lock."


def running(status: LockStatus) -> str:
    """Return for how long the job has run, and where, without a full stop."""
    return (
        f"its job has run for {format_seconds(status.held_for)} as {status.locked_by}"
    )


def overdue(provider: LockProvider, status: LockStatus, grace: timedelta) -> str | None:
    """Return the text if the job is overdue by ``grace``: why, and what helps."""
    since = status.overdue_since(grace)
    if since is None:
        return None
    # Without cronsim nobody can read the schedule.
    schedule = f" ({status.schedule})" if status.schedule else ""
    return (
        f"it is overdue: the tick of {_local(since)}{schedule} has not succeeded, "
        f"{_why(status, since, grace)}. If it is a job of this project"
        f"{_remedy(provider, status, grace)} runs it now."
    )


def _why(status: LockStatus, since: datetime, grace: timedelta) -> str:
    tick = status.schedule_state.tick
    if tick is None:
        return "and no run ever began. Check whether its scheduler runs"
    if not status.schedule_state.was_started(aware(status.clock), grace):
        begun = f"and no run began since that of {_local(tick)}"
        return f"{begun}. Check whether its scheduler runs"
    if tick == since:
        return "although its job ran. Find out why"
    return f"and neither has the last one that ran, {_local(tick)}. Find out why"


def _remedy(provider: LockProvider, status: LockStatus, grace: timedelta) -> str:
    subcommand = "catch-up" if status.may_catch_up(grace) else "trigger"
    if status.state is not LockState.EXPIRED:
        return f", {command(provider, subcommand)}"
    name = quote(status.name)
    exactly = f"catch-up --include-expired {name}"
    arguments = exactly if subcommand == "catch-up" else f"trigger {name}"
    return f", and its worker is dead, {command(provider, arguments)}"


def command(provider: LockProvider, arguments: str) -> str:
    """Return the command line for these arguments."""
    if provider.alias == "default":
        return f"`shedlock {arguments}`"
    return f"`shedlock --provider {provider.alias} {arguments}`"


def _local(moment: datetime) -> str:
    return timezone.localtime(moment).isoformat(sep=" ", timespec="seconds")
