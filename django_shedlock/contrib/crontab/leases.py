"""What is doubtful about the lock of an entry of ``CRONJOBS``."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage, Warning

from django_shedlock.configuration import ZERO, LockConfiguration
from django_shedlock.contrib.crontab.apps import CrontabConfig, locks_all_entries
from django_shedlock.contrib.crontab.mistakes import described
from django_shedlock.contrib.crontab.plans import Plan
from django_shedlock.contrib.crontab.requests import written_options
from django_shedlock.intervals import find_too_long
from django_shedlock.schedules import Schedule


def find_doubts(plan: Plan) -> Iterator[CheckMessage]:
    """Look at the lock's durations, or tell that there is no lock."""
    if plan.configuration is not None:
        yield from _may_run_twice(plan, plan.configuration)
        yield from _too_long(plan, plan.configuration)
        yield from _schedule(plan, plan.configuration)
        yield from _without_effect(plan)
    elif not locks_all_entries():
        yield Warning(
            f"{described(plan.entry)} has no lock, so each host runs it.",
            hint=f"Decorate its target, name locked_command for a command, or put "
            f"{CrontabConfig.name!r} before 'django_crontab' into INSTALLED_APPS.",
            id="shedlock.W006",
        )


def _may_run_twice(plan: Plan, lock: LockConfiguration) -> Iterator[CheckMessage]:
    runs_ticks_once = lock.occasion.schedule is not None
    if lock.lock_at_least_for == ZERO and not runs_ticks_once:
        yield Warning(
            f"{described(plan.entry)} may run on two hosts: its lock {lock.name!r} has "
            "no lock_at_least_for, so a short job is over before another host begins.",
            hint="Give the time by which hosts may start a tick apart, such as 30s, or "
            "a schedule, whose ticks run once each.",
            id="shedlock.W009",
        )


def _too_long(plan: Plan, lock: LockConfiguration) -> Iterator[CheckMessage]:
    if plan.job is not None and plan.job.request.schedule is not None:
        return  # another check tells, whatever starts the job
    yield from find_too_long(described(plan.entry), lock, plan.interval)


def _schedule(plan: Plan, lock: LockConfiguration) -> Iterator[CheckMessage]:
    schedule = lock.occasion.schedule
    if schedule is not None and not schedule.has_ticks_of(Schedule(plan.entry.time)):
        yield Warning(
            f"{described(plan.entry)} does not start its job by the schedule "
            f"{schedule.expression!r} of its lock {lock.name!r}, so ticks are skipped, "
            "or overdue.",
            hint="Write the same in both places, or leave the lock's schedule out.",
            id="shedlock.W014",
        )


def _without_effect(plan: Plan) -> Iterator[CheckMessage]:
    written = written_options(plan.entry) if locks_all_entries() else {}
    for option, value in written.items():
        may_be_in_vain = plan.own_request is not None or option == "schedule"
        if may_be_in_vain and getattr(plan.request, option, True) != value:
            yield Warning(
                f"{described(plan.entry)} runs without the {option} of "
                f"SHEDLOCK_CRONTAB, which is {value!r}.",
                hint="A target that brings its own lock keeps its options, and a "
                "provider may keep no ticks of a schedule. Leave the option out.",
                id="shedlock.W013",
            )
