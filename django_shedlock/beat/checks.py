"""The system checks of ``SHEDLOCK_SCHEDULE``, and of what a beat needs."""

from collections.abc import Iterator

from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured

from django_shedlock import conf
from django_shedlock.beat.entries import ScheduleEntry, WrongEntry, parse_entry
from django_shedlock.beat.looks import BEAT_LOOK_INTERVAL
from django_shedlock.checks import find_too_long, invalid_lock, shared_name
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import InvalidLockConfiguration, described
from django_shedlock.locks.configuration import default_duration
from django_shedlock.registry.discovery import import_jobs_to_check
from django_shedlock.registry.jobs import Job, registered_jobs


def check_entries() -> Iterator[CheckMessage]:
    """Check each entry of ``SHEDLOCK_SCHEDULE``, and whether names clash."""
    try:
        if conf.SCHEDULE.value:
            import_jobs_to_check()  # another check reports what can't be imported
        for name, given in conf.SCHEDULE.value.items():
            yield from _check_entry(name, given)
    except ImproperlyConfigured:  # another check reports the setting
        return


def check_grace() -> Iterator[CheckMessage]:
    """Warn of a ``SHEDLOCK_GRACE`` in which a beat may not look even once."""
    try:
        grace = default_duration(conf.GRACE)
    except (ImproperlyConfigured, ValueError):  # another check reports the setting
        return
    if grace <= BEAT_LOOK_INTERVAL:
        every = format_duration(BEAT_LOOK_INTERVAL)
        yield Warning(
            f"{conf.GRACE.name} is {format_duration(grace)}, but a beat looks every "
            f"{every} for ticks that are owed. A tick may be too old at the next look, "
            "so it is never begun.",
            hint=f"Give {conf.GRACE.name} a duration of more than {every}.",
            id="shedlock.W028",
        )


def _check_entry(name: object, given: object) -> Iterator[CheckMessage]:
    label = f"SHEDLOCK_SCHEDULE[{name!r}]"
    try:
        entry = parse_entry(name, given)
        job = entry.make_job()
    except ImproperlyConfigured:
        raise
    except InvalidLockConfiguration as error:
        yield invalid_lock(label, error)
        return
    except WrongEntry as error:
        yield _wrong_entry(label, str(error))
        return
    except (Exception, SystemExit) as error:  # whatever its module raises
        yield _wrong_entry(label, described(error))
        return
    lock = job.request.configuration()
    if lock.schedule is not None:
        yield from find_too_long(label, lock, lock.schedule.interval, in_setting=True)
    yield from _check_inner_lock(entry, job)
    yield from _check_shared_name(entry, job)


def _wrong_entry(label: str, problem: str) -> CheckMessage:
    return Warning(
        f"{label} can't run, so it is left out: {problem}.",
        hint='Give it "call", "command" or "task", with "args" and "kwargs" that fit, '
        'and a "schedule".',
        id="shedlock.W025",
    )


def _check_inner_lock(entry: ScheduleEntry, job: Job) -> Iterator[CheckMessage]:
    """Warn of a target that is locked under another name, so that it has two locks."""
    inner, name = entry.lock_of_target, entry.inner_name
    if inner is None or name is None:
        return
    if (inner.provider, name) == (job.provider, job.name):
        return
    yield Warning(
        f"{entry} runs under two locks: its own, and {name!r} of {inner.path}. If "
        "somebody else holds the inner one, the body is skipped, but the tick has run.",
        hint=f"Give the entry the key {name!r}, and the same provider. Then it is one "
        "lock.",
        id="shedlock.W027",
    )


def _check_shared_name(entry: ScheduleEntry, job: Job) -> Iterator[CheckMessage]:
    """Warn of decorated jobs that have the name of the entry."""
    inner = entry.lock_of_target
    owners = set()
    for other in registered_jobs:
        if (other.provider, other.name) != (job.provider, job.name):
            continue
        if other is not inner:
            owners.add(other.path)
        elif other.request.schedule is not None:
            yield Warning(
                f"The lock {job.name!r} has two schedules: that of {entry}, and "
                f"{other.request.schedule.expression!r} of {other.path}.",
                hint="Remove one of them.",
                id="shedlock.W012",
            )
    if owners:
        yield shared_name(job.name, {str(entry), *owners})
