"""What is doubtful about the lock of an entry of ``CRONJOBS``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.core.checks import CheckMessage, Warning

from django_shedlock.configuration import LockConfiguration
from django_shedlock.contrib.crontab.apps import CrontabConfig, locks_all_entries
from django_shedlock.contrib.crontab.mistakes import described
from django_shedlock.contrib.crontab.plans import Plan
from django_shedlock.durations import format_duration


def find_doubts(plan: Plan) -> Iterator[CheckMessage]:
    """Look at the lock's durations, or tell that there is no lock."""
    if plan.configuration is not None:
        yield from _at_least(plan, plan.configuration)
        yield from _at_most(plan, plan.configuration)
    elif not locks_all_entries():
        yield Warning(
            f"{described(plan.entry)} has no lock, so each host runs it.",
            hint=f"Decorate its target, name locked_command for a command, or put "
            f"{CrontabConfig.name!r} before 'django_crontab' into INSTALLED_APPS.",
            id="shedlock.W006",
        )


def _at_least(plan: Plan, lock: LockConfiguration) -> Iterator[CheckMessage]:
    if lock.lock_at_least_for >= plan.interval:
        yield Warning(
            f"{described(plan.entry)} starves: lock_at_least_for "
            f"({format_duration(lock.lock_at_least_for)}) of its lock {lock.name!r} is "
            f"not shorter than {_interval(plan)}, so its own next tick is skipped.",
            hint="Take half of that, or less; a minute is mostly enough.",
            id="shedlock.W008",
        )
    if lock.lock_at_least_for == timedelta(0):
        yield Warning(
            f"{described(plan.entry)} may run on two hosts: its lock {lock.name!r} has "
            "no lock_at_least_for, so a short job is over before another host begins.",
            hint="Give the time by which hosts may start a tick apart, such as 30s.",
            id="shedlock.W009",
        )


def _at_most(plan: Plan, lock: LockConfiguration) -> Iterator[CheckMessage]:
    if lock.lock_at_most_for >= plan.interval and not plan.is_kept_alive:
        yield Warning(
            f"{described(plan.entry)} waits for the dead: lock_at_most_for "
            f"({lock.lease}) of its lock {lock.name!r} is not shorter than "
            f"{_interval(plan)}, so after a crash a tick is skipped.",
            hint="Make it shorter, with keep_alive=True if the job may take longer.",
            id="shedlock.W010",
        )


def _interval(plan: Plan) -> str:
    return f"the time between two ticks ({format_duration(plan.interval)})"
