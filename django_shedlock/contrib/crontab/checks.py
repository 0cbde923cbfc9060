"""The system checks of ``CRONJOBS``."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command

from django_shedlock import conf
from django_shedlock.contrib.crontab.commands import locked_command
from django_shedlock.contrib.crontab.entries import (
    APP,
    Entry,
    find_command,
    find_job,
    is_tick,
    locks_all_entries,
    target_modules,
)
from django_shedlock.contrib.crontab.lock_checks import find_doubts, find_shared
from django_shedlock.contrib.crontab.locks import Plan
from django_shedlock.contrib.crontab.zones import (
    cron_time_zone,
    is_misnamed,
    is_time_zone,
)
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.jobs import discovery
from django_shedlock.schedules.cron import Schedule

FIRST = f"Put {APP!r} before 'django_crontab' in INSTALLED_APPS"

BREAKS_LINE = re.compile(r"#|(?<!\\)%")


def register_checks() -> None:
    """Register the check, and let it find the jobs that ``CRONJOBS`` names."""
    checks.register(check_crontab)
    if target_modules not in discovery.sources:
        discovery.sources.append(target_modules)


def check_crontab(**kwargs: Any) -> list[CheckMessage]:
    """Check the entries of ``CRONJOBS``, and the settings for all of them."""
    # django-crontab runs checks at each tick: one wrong entry would stop the others.
    if not apps.is_installed("django_crontab") or is_tick():
        return []
    try:
        return [*_check_settings(), *_check_entries(getattr(settings, "CRONJOBS", []))]
    except ImproperlyConfigured:  # another check reports the setting
        return []


def _check_settings() -> Iterator[CheckMessage]:
    for name in ("CRONTAB_COMMAND_PREFIX", "CRONTAB_COMMAND_SUFFIX"):
        yield from _broken_line(name, getattr(settings, name, ""))
    if getattr(settings, "CRONTAB_LOCK_JOBS", False):
        yield Warning(
            "CRONTAB_LOCK_JOBS locks a file of this host only, so it does not stop "
            "other hosts.",
            hint="Remove it. The locks of this package also work within one host.",
            id="shedlock.W007",
        )
    if apps.is_installed(APP) and not locks_all_entries():
        yield Warning(
            f"{APP!r} has no effect, because it comes after 'django_crontab'.",
            hint=f"{FIRST}.",
            id="shedlock.W012",
        )
    yield from _check_time_zone(conf.CRONTAB_TIME_ZONE.value)
    if locks_all_entries() and find_spec("cronsim") is None:
        yield Error(
            "cronsim is missing, so nothing can read the schedules of CRONJOBS, and no "
            "entry can run.",
            hint="Install django-shedlock[crontab].",
            id="shedlock.E010",
        )


def _check_time_zone(zone: str) -> Iterator[CheckMessage]:
    if zone and not is_time_zone(zone):
        yield Error(
            f"SHEDLOCK_CRONTAB_TIME_ZONE: there is no time zone {zone!r}, so ticks are "
            "counted in this host's.",
            hint='Give a name such as "Europe/Berlin", or leave the setting empty.',
            id="shedlock.E010",
        )
    if locks_all_entries() and is_misnamed():
        yield Warning(
            f"Ticks of CRONJOBS are counted in {cron_time_zone()!r}, but cron uses "
            "this host's /etc/localtime, which is another time zone.",
            hint="Set SHEDLOCK_CRONTAB_TIME_ZONE to cron's zone, such as "
            '"Europe/Berlin".',
            id="shedlock.W016",
        )


def _check_entries(jobs: Any) -> Iterator[CheckMessage]:
    if not isinstance(jobs, list | tuple):
        yield _malformed(jobs, ValueError("CRONJOBS must be a list"))
        return
    plans: list[Plan] = []
    for job in jobs:
        try:
            yield from _check_entry(Entry.parse(job), plans)
        except ValueError as error:
            yield _malformed(job, error)
    yield from find_shared(plans)
    if len(plans) == len(jobs):
        yield from _check_options(plans)


def _check_entry(entry: Entry, plans: list[Plan]) -> Iterator[CheckMessage]:
    mistakes = list(_find_mistakes(entry))
    yield from mistakes
    if mistakes:
        return
    try:
        plan = Plan(entry)
        plans.append(plan)
        yield from find_doubts(plan)
    except ImportError:  # without cronsim nothing can read a schedule
        return
    except InvalidLockConfiguration as error:
        if find_job(entry) is None:  # another check reports decorated jobs
            yield Error(
                f"{entry} can't run under its lock: {error}",
                hint="Check its keyword arguments, SHEDLOCK_CRONTAB and the defaults.",
                id="shedlock.E010",
            )


def _check_options(plans: Sequence[Plan]) -> Iterator[CheckMessage]:
    known = {key for plan in plans for key in (plan.entry.path, plan.entry.call)}
    for key in conf.CRONTAB.value:
        if locks_all_entries() and key not in known:
            yield Warning(
                f"SHEDLOCK_CRONTAB[{key!r}] has no effect, because it is neither the "
                "path of an entry of CRONJOBS nor its path and arguments.",
                hint="Write arguments as in the lock's name.",
                id="shedlock.W013",
            )


def _malformed(job: Any, error: ValueError) -> CheckMessage:
    return Error(
        f"The entry {job!r} of CRONJOBS is malformed: {error}.",
        hint="django-crontab can't run it, or writes a wrong line to the crontab.",
        id="shedlock.E005",
    )


def _broken_line(where: str, text: str) -> Iterator[CheckMessage]:
    if BREAKS_LINE.search(text):
        yield Error(
            f"{where} has a % or #, which breaks the line of the crontab: {text!r}.",
            hint="cron ends the line at %, so write \\%. If the line has a #, "
            "django-crontab can't find it again to remove it.",
            id="shedlock.E009",
        )


def _find_mistakes(entry: Entry) -> Iterator[CheckMessage]:
    try:
        _ = Schedule(entry.time).interval
    except ValueError as error:
        yield _malformed((entry.time, entry.path), error)
    except ImportError:  # _check_settings() reports it
        pass
    yield from _broken_line(f"The suffix of {entry}", entry.suffix or "")
    try:
        problem = _target_problem(entry)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if problem is None:
        yield from _check_call(entry)
    else:
        yield Error(
            f"{entry} can't be run: {problem}.",
            hint="Give the dotted path of a function, or the name of a command.",
            id="shedlock.E006",
        )


def _target_problem(entry: Entry) -> str | None:
    function = entry.function
    if not callable(function):
        return f"{entry.path} is no function"
    is_command = function in (call_command, locked_command) and entry.args
    if is_command and find_command(entry) is None:
        return f"there is no command {entry.args[0]!r}"
    return None


def _check_call(entry: Entry) -> Iterator[CheckMessage]:
    problem = _argument_problem(entry)
    if problem is not None:
        yield Error(
            f"{entry} has arguments that don't work: {problem}.",
            hint="Write (time, path, [args], {kwargs}), with strings and numbers only. "
            "A string in third place is a suffix of the line.",
            id="shedlock.E007",
        )
    if iscoroutinefunction(entry.function) and not locks_all_entries():
        yield Error(
            f"{entry} names a coroutine function, which django-crontab never awaits.",
            hint=f"{FIRST}, or name a function that calls async_to_sync().",
            id="shedlock.E008",
        )


def _argument_problem(entry: Entry) -> str | None:
    try:
        json.dumps([entry.args, entry.kwargs], sort_keys=True)
    except (TypeError, ValueError) as error:
        return f"{error}, so all entries fail"
    try:
        signature = inspect.signature(entry.function)
    except (TypeError, ValueError):  # some builtins have none
        return None
    try:
        signature.bind(*entry.args, **entry.kwargs)
    except TypeError as error:
        return str(error)
    return None
