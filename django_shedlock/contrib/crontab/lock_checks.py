"""The system checks of the locks of ``CRONJOBS``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Warning

from django_shedlock.checks import find_too_long, find_useless
from django_shedlock.contrib.crontab.entries import APP, Entry, locks_all_entries
from django_shedlock.contrib.crontab.locks import Plan, written_options
from django_shedlock.locks.configuration import (
    ZERO,
    LockConfiguration,
    LockOptions,
    make_request,
)
from django_shedlock.schedules.cron import Schedule


def find_doubts(plan: Plan) -> Iterator[CheckMessage]:
    """Check the options of the entry's lock, or warn that it has none."""
    lock = plan.configuration
    if lock is not None:
        yield from _may_run_twice(plan.entry, lock)
        if plan.job is None or plan.job.request.schedule is None:  # see check_jobs()
            interval = Schedule(plan.entry.time).interval
            yield from find_too_long(str(plan.entry), lock, interval)
        yield from _other_schedule(plan.entry, lock)
        yield from _without_effect(plan)
        if "lock_at_least_for" in written_options(plan.entry):
            yield from find_useless(str(plan.entry), lock)
    elif not locks_all_entries():
        yield Warning(
            f"{plan.entry} has no lock, so each host runs it.",
            hint=f"Decorate its target, use locked_command for a command, or put "
            f"{APP!r} before 'django_crontab' in INSTALLED_APPS.",
            id="shedlock.W006",
        )


def _may_run_twice(entry: Entry, lock: LockConfiguration) -> Iterator[CheckMessage]:
    if lock.lock_at_least_for == ZERO and lock.schedule is None:
        yield Warning(
            f"{entry} may run on two hosts: its lock {lock.name!r} has no "
            "lock_at_least_for, so a short job may end before another host starts it.",
            hint="Set it to the time by which hosts may start a tick apart, such as "
            "30s, or give the lock a schedule, whose ticks run once each.",
            id="shedlock.W009",
        )


def _other_schedule(entry: Entry, lock: LockConfiguration) -> Iterator[CheckMessage]:
    schedule = lock.schedule
    if schedule is not None and not schedule.has_ticks_of(Schedule(entry.time)):
        yield Warning(
            f"{entry} does not start its job by the schedule {schedule.expression!r} "
            f"of its lock {lock.name!r}, so ticks are skipped, or overdue.",
            hint="Write the same in both places, or leave out the lock's schedule.",
            id="shedlock.W014",
        )


def _without_effect(plan: Plan) -> Iterator[CheckMessage]:
    written = written_options(plan.entry) if locks_all_entries() else {}
    for option, value in written.items():
        may_be_in_vain = plan.own_request is not None or option == "schedule"
        if may_be_in_vain and not _has_effect(plan, option, value):
            yield Warning(
                f"{plan.entry} runs without the {option} of SHEDLOCK_CRONTAB, which is "
                f"{value!r}.",
                hint="A target that brings its own lock keeps its options, and some "
                "providers keep no ticks of a schedule. Leave the option out.",
                id="shedlock.W013",
            )


def _has_effect(plan: Plan, option: str, value: Any) -> bool:
    if plan.request is None or option not in LockOptions.__annotations__:
        return value is True
    asked_for = make_request(plan.request.name, {option: value})
    return bool(getattr(plan.request, option) == getattr(asked_for, option))


def find_shared(plans: Sequence[Plan]) -> Iterator[CheckMessage]:
    """Check the entries that share a lock against each other."""
    shared: dict[tuple[str, str], list[Plan]] = defaultdict(list)
    for plan in plans:
        if plan.request is not None:
            shared[plan.request.provider, plan.request.name].append(plan)
    for (_, name), of_name in shared.items():
        yield from _several_calls(name, of_name)
        yield from _several_targets(name, of_name)
        yield from _several_schedules(name, of_name)


def _several_calls(name: str, plans: Sequence[Plan]) -> Iterator[CheckMessage]:
    counted = [p for p in plans if p.configuration and p.configuration.schedule]
    calls = sorted({plan.call for plan in counted})
    if len(calls) > 1:
        yield Error(
            f"The lock {name!r} counts the ticks of several calls in CRONJOBS, so "
            f"only one runs if two are due at the same tick: {', '.join(calls)}.",
            hint="Give each call its own lock name, or turn counting off with "
            '`"schedule": None`.',
            id="shedlock.E011",
        )


def _several_targets(name: str, plans: Sequence[Plan]) -> Iterator[CheckMessage]:
    targets = {plan.target for plan in plans}
    decorated = {plan.target for plan in plans if plan.job is not None}
    if len(targets) > 1 and targets != decorated:
        yield Warning(
            f"The lock {name!r} belongs to several targets of CRONJOBS, so each "
            f"skips while another one runs: {', '.join(sorted(targets))}.",
            hint="Give each its own lock name, or silence this if you mean it.",
            id="shedlock.W011",
        )


def _several_schedules(name: str, plans: Sequence[Plan]) -> Iterator[CheckMessage]:
    schedules: list[Schedule] = []
    for plan in plans:
        schedule = plan.configuration and plan.configuration.schedule
        if schedule and not any(_is_same(schedule, other) for other in schedules):
            schedules.append(schedule)
    if len(schedules) > 1:
        yield Warning(
            f"The lock {name!r} has several schedules in CRONJOBS, but counts only the "
            "ticks of the one that ran last, so nobody notices missed runs of the "
            f"others: {', '.join(repr(str(schedule)) for schedule in schedules)}.",
            hint="Write one expression. Or give each time its own lock name: by a "
            "function for each, or by `lock` of locked_command.",
            id="shedlock.W017",
        )


def _is_same(schedule: Schedule, other: Schedule) -> bool:
    return schedule.time_zone == other.time_zone and schedule.has_ticks_of(other)
