"""What findings say of a lock: who, since when, what it means, and what helps."""

from __future__ import annotations

from datetime import datetime, timedelta
from shlex import quote

from django.utils import timezone

from django_shedlock.clocks import aware
from django_shedlock.console.monitoring.summaries import MOST_FAILURES, LockSummary
from django_shedlock.durations import format_seconds
from django_shedlock.locks.states import LockState, LockStatus, RunOutcome
from django_shedlock.providers.base import LockProvider

Told = tuple[str, str]
"""The sentence of a finding, and its command."""
BAD_ENDS = {
    RunOutcome.FAILED: ("failed with {exception}{again}. Find out why.", "history"),
    RunOutcome.LOST: (
        "lost the lock before it ended{again}: it may have run twice at the same time. "
        "Give it a longer lock_at_most_for, or keep_alive=True.",
        "history",
    ),
    RunOutcome.ABANDONED: ("did not end: its worker died{again}.", "trigger"),
}


def expired(provider: LockProvider, status: LockStatus) -> Told | None:
    """Tell that the lease is over without a release."""
    if status.state is not LockState.EXPIRED:
        return None
    return (
        f"Its lease ended at {_local(status.lock_until)}, but {status.locked_by} never "
        "released the lock: the worker died, or the job runs for longer than "
        "lock_at_most_for. The next start acquires the lock, a catch-up does not. If "
        "the worker is dead, release the lock."
    ), _release(provider, status)


def bad_end(provider: LockProvider, summary: LockSummary) -> Told | None:
    """Tell that the last run of the job ended badly."""
    if summary.last_outcome not in BAD_ENDS:
        return None
    sentence, subcommand = BAD_ENDS[summary.last_outcome]
    again, last = "", ""
    if summary.failures > 1:
        limit = "at least " if summary.failures == MOST_FAILURES else ""
        again = f", and {limit}{summary.failures} runs in a row have not succeeded"
    if summary.last_success is not None:
        last = f" It last succeeded at {_local(summary.last_success)}."
    ended = sentence.format(exception=summary.last_exception_type, again=again)
    arguments = f"{subcommand} {quote(summary.name)}"
    return f"Its last run {ended}{last}", command(provider, arguments)


def too_long(
    provider: LockProvider, status: LockStatus, held_for: timedelta
) -> Told | None:
    """Tell that the job runs for longer than this."""
    if not status.state.is_running or status.held_for <= held_for:
        return None
    return running(provider, status, "")


def skipping(
    provider: LockProvider, status: LockStatus, grace: timedelta
) -> Told | None:
    """Tell that the job still runs, and a tick after its own is overdue."""
    tick = status.skips_since(grace)
    if tick is None:
        return None
    since = f"since the tick of {_local(tick)} ({status.schedule})"
    return running(provider, status, f", {since}, so later ticks are skipped")


def running(provider: LockProvider, status: LockStatus, why: str) -> Told:
    """Tell for how long the job has run, and where."""
    return (
        f"Its job has run for {format_seconds(status.held_for)} as {status.locked_by}"
        f"{why}. If it hangs, end its process, then release the lock."
    ), _release(provider, status)


def overdue(
    provider: LockProvider, status: LockStatus, grace: timedelta
) -> Told | None:
    """Tell that the job is overdue by ``grace``, and why."""
    since = status.overdue_since(grace)
    if since is None:
        return None
    # Without cronsim nobody can read the schedule.
    schedule = f" ({status.schedule})" if status.schedule else ""
    tick = status.schedule_state.tick
    if tick is None:
        why = "No run has ever begun: check whether its scheduler runs."
    elif not status.schedule_state.was_started(aware(status.clock), grace):
        why = (
            f"No run has begun since the tick of {_local(tick)}: check whether its "
            "scheduler runs."
        )
    elif tick == since:
        why = "Its job ran, but did not succeed: find out why."
    else:
        why = f"Nor has the last tick that ran, {_local(tick)}: find out why."
    is_expired = status.state is LockState.EXPIRED
    name = quote(status.name)
    if not status.may_catch_up(grace):
        arguments = f"trigger {name}"
    else:
        arguments = f"catch-up --include-expired {name}" if is_expired else "catch-up"
    return (f"The tick of {_local(since)}{schedule} has not succeeded. {why}"), command(
        provider, arguments
    )


def command(provider: LockProvider, arguments: str) -> str:
    """Return the command line for these arguments."""
    if provider.alias == "default":
        return f"shedlock {arguments}"
    return f"shedlock --provider {quote(provider.alias)} {arguments}"


def _release(provider: LockProvider, status: LockStatus) -> str:
    return command(provider, f"release {quote(status.name)} --force")


def _local(moment: datetime) -> str:
    return timezone.localtime(aware(moment)).isoformat(sep=" ", timespec="seconds")
