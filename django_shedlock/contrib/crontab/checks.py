"""The system checks of ``CRONJOBS``."""

import json
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from zoneinfo import ZoneInfo

from asgiref.sync import iscoroutinefunction
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command

from django_shedlock import conf
from django_shedlock.checks import find_too_long, invalid_lock, shared_name
from django_shedlock.clocks import host_now
from django_shedlock.contrib.crontab.entries import (
    CRONTAB_APP,
    SYSTEM_ZONE_FILE,
    CrontabEntry,
    cron_time_zone,
    is_time_zone,
    locks_all_entries,
)
from django_shedlock.contrib.crontab.lines import (
    find_emptied_file,
    find_line_breaks,
    find_todays_date,
)
from django_shedlock.exceptions import InvalidLockConfiguration, described
from django_shedlock.providers import get_provider
from django_shedlock.registry.commands import is_locked_by_setting
from django_shedlock.registry.names import signature_of

APP_ORDER_FIX = f"Put {CRONTAB_APP!r} before 'django_crontab' in INSTALLED_APPS"


def check_crontab(**kwargs: object) -> list[CheckMessage]:
    """Check the entries of ``CRONJOBS``, and the settings for all of them."""
    if not apps.is_installed("django_crontab"):
        return []
    try:
        return [*_check_settings(), *_check_entries(getattr(settings, "CRONJOBS", []))]
    except ImproperlyConfigured:  # another check reports the setting
        return []


def _check_settings() -> Iterator[CheckMessage]:
    for name in ("CRONTAB_COMMAND_PREFIX", "CRONTAB_COMMAND_SUFFIX"):
        yield from find_line_breaks(name, getattr(settings, name, "") or "")
    zone = conf.CRONTAB_TIME_ZONE.value
    has_zone = is_time_zone(zone)
    if zone and not has_zone:
        text = f"SHEDLOCK_CRONTAB_TIME_ZONE: there is no time zone {zone!r}."
        hint = 'Give a name such as "Europe/Berlin", or leave the setting empty.'
        yield Error(text, hint=hint, id="shedlock.E001")
    if not locks_all_entries():
        if apps.is_installed(CRONTAB_APP):
            text = f"{CRONTAB_APP!r} has no effect"
            text += ", because it comes after 'django_crontab'."
            text += " So it locks no entry of CRONJOBS."
            yield Warning(text, hint=f"{APP_ORDER_FIX}.", id="shedlock.W010")
    elif not has_zone and _has_unnamed_zone():
        yield Warning(
            f"Ticks of CRONJOBS are counted in {cron_time_zone()!r}, but cron uses "
            "this host's /etc/localtime, which is another time zone.",
            hint="Set SHEDLOCK_CRONTAB_TIME_ZONE to cron's zone, such as "
            '"Europe/Berlin".',
            id="shedlock.W014",
        )


def _has_unnamed_zone() -> bool:
    """Return whether cron uses another time zone than ``cron_time_zone()``."""
    try:
        with SYSTEM_ZONE_FILE.open("rb") as file:
            actual = ZoneInfo.from_file(file)
    except (OSError, ValueError, struct.error):
        actual = ZoneInfo("UTC")  # cron can't read the file either, and counts in UTC
    # Compare the zones in both halves of the year, because of daylight saving time.
    year, named = host_now().year, ZoneInfo(cron_time_zone())
    return any(
        datetime(year, month, 15, tzinfo=actual).utcoffset()
        != datetime(year, month, 15, tzinfo=named).utcoffset()
        for month in (1, 7)
    )


def _check_entries(jobs: object) -> Iterator[CheckMessage]:
    if not isinstance(jobs, list | tuple):
        yield Warning("CRONJOBS must be a list.", id="shedlock.W025")
        return
    locked = []
    for job in jobs:
        if flaw := _flaw(job):
            yield Warning(
                f"The entry {job!r} of CRONJOBS can't run: {flaw}.",
                hint=f"Write {CrontabEntry.forms}. The path leads to a function, and "
                "its arguments are strings and numbers.",
                id="shedlock.W025",
            )
            continue
        entry = CrontabEntry.parse(job)
        if _is_reported_as_command(entry):
            continue
        yield from find_line_breaks(f"{entry}: its suffix", entry.suffix or "")
        yield from find_todays_date(entry)
        try:
            yield from _check_lock(entry)
            locked.append(entry)
        except InvalidLockConfiguration as error:
            yield invalid_lock(str(entry), error)
    yield from _check_shared(locked)
    if any(entry.job is not None for entry in locked):
        name = "CRONTAB_COMMAND_SUFFIX"
        yield from find_emptied_file(name, getattr(settings, name, "") or "")
    known = {key for entry in locked for key in entry.keys}
    if locks_all_entries() and len(locked) == len(jobs):
        for key in conf.CRONTAB.value.keys() - known:
            yield _no_effect(
                f"SHEDLOCK_CRONTAB[{key!r}]",
                "no entry of CRONJOBS has this path, this command, or this call",
            )


def _flaw(job: object) -> str | None:
    """Return why the entry can't run, apart from its lock; ``None`` if it can."""
    try:
        entry = CrontabEntry.parse(job)
        if not entry.is_at_boot:
            entry.parse_time()
        json.dumps([entry.args, entry.kwargs], sort_keys=True)
        function = entry.function
        if not callable(function):
            return f"{entry.path} is no function"
        if _is_reported_as_command(entry):
            return None
        if iscoroutinefunction(function) and not locks_all_entries():
            return f"django-crontab never awaits a coroutine function. {APP_ORDER_FIX}"
        with suppress(ValueError):  # some callables have no signature
            signature_of(function).bind(*entry.args, **entry.kwargs)
        if function is call_command and entry.command is None:
            return f"there is no command {entry.first_argument!r}"
    except Exception as error:
        return described(error)
    return None


def _is_reported_as_command(entry: CrontabEntry) -> bool:
    """Return whether the checks of commands say why the entry's command can't run."""
    if entry.command_name not in conf.COMMANDS.value:
        return False
    try:
        _ = entry.command
    except InvalidLockConfiguration:
        return True
    return False


def _check_lock(entry: CrontabEntry) -> Iterator[CheckMessage]:
    job = entry.job
    if job is None:
        is_explained = locks_all_entries() or apps.is_installed(CRONTAB_APP)
        if not is_explained and not entry.is_at_boot:
            yield Warning(
                f"{entry} has no lock, so each host runs it.",
                hint="Decorate its target, give a command an entry in "
                f"SHEDLOCK_COMMANDS, or put {CRONTAB_APP!r} before 'django_crontab' in "
                "INSTALLED_APPS.",
                id="shedlock.W006",
            )
        return
    after = getattr(settings, "CRONTAB_COMMAND_SUFFIX", "") or ""
    yield from find_emptied_file(f"{entry}: its suffix", entry.suffix or "", after)
    get_provider(job.provider)  # raises if the settings lack the alias
    lock = job.request.configuration()
    schedule = lock.schedule
    # At a boot no other host starts the job, unless it boots at the same time.
    is_single = lock.lock_at_least_for or schedule is not None or entry.is_at_boot
    if not is_single:
        yield Warning(
            f"{entry} may run on two hosts: its lock {lock.name!r} has no "
            "lock_at_least_for, so a short job may end before another host starts it.",
            hint="Set it to the time by which hosts may start a tick apart, such as "
            "30s, or give the lock a schedule, whose ticks run once each.",
            id="shedlock.W009",
        )
    if locks_all_entries() and entry.decorated is not None:
        for option in sorted(entry.options.keys() - {"schedule"}):
            yield _no_effect(
                f"{option!r} of SHEDLOCK_CRONTAB for {entry}",
                "the lock of its target keeps its own options",
            )
    ticks = entry.ticks_of_call
    if ticks is None:
        return
    decorated = entry.decorated
    in_setting = decorated is None or is_locked_by_setting(decorated)
    yield from find_too_long(str(entry), lock, ticks.interval, in_setting=in_setting)
    if schedule is not None and not schedule.has_ticks_of(ticks):
        yield Warning(
            f"{entry} does not start its job by the schedule {schedule.expression!r} "
            f"of its lock {lock.name!r}, so ticks are skipped, or overdue.",
            hint="Write the same in both places, or leave out the lock's schedule.",
            id="shedlock.W012",
        )


def _no_effect(what: str, reason: str) -> CheckMessage:
    return Warning(
        f"{what} has no effect: {reason}.",
        hint="Write arguments as in the lock's name, and options where the lock is "
        "defined.",
        id="shedlock.W011",
    )


def _check_shared(entries: Sequence[CrontabEntry]) -> Iterator[CheckMessage]:
    shared: dict[tuple[str, str], list[CrontabEntry]] = defaultdict(list)
    for entry in entries:
        if entry.job is not None:
            shared[entry.job.provider, entry.job.name].append(entry)
    for (_, name), owners in shared.items():
        targets = {
            f"manage.py {entry.first_argument}"
            if entry.function is call_command
            else entry.path
            for entry in owners
        }
        if len(targets) > 1 and not all(entry.decorated for entry in owners):
            yield shared_name(name, targets)
        counted = set()
        for entry in owners:
            if entry.job is not None and entry.job.schedule is not None:
                counted.add(f"{entry.call} ({entry.job.schedule})")
        if len(counted) > 1:
            yield Warning(
                f"The lock {name!r} counts the ticks of several entries of CRONJOBS, "
                "but only by the schedule of the one that ran last. So nobody notices "
                "missed runs of the others, and if two are due at the same tick, only "
                f"one runs: {', '.join(sorted(counted))}.",
                hint="Give each call its own lock name, shorten the expressions of a "
                'call, or turn counting off with `"schedule": None`.',
                id="shedlock.W013",
            )
