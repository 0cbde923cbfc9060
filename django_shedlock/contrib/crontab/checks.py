"""The system checks of ``CRONJOBS``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured

from django_shedlock import conf, discovery
from django_shedlock.contrib.crontab.apps import (
    CrontabConfig,
    is_tick,
    locks_all_entries,
)
from django_shedlock.contrib.crontab.entries import Entry
from django_shedlock.contrib.crontab.leases import find_doubts
from django_shedlock.contrib.crontab.mistakes import (
    broken_line,
    described,
    find_mistakes,
    malformed,
)
from django_shedlock.contrib.crontab.plans import Plan
from django_shedlock.contrib.crontab.shared_locks import find_shared
from django_shedlock.contrib.crontab.targets import find_job, target_modules
from django_shedlock.contrib.crontab.zones import (
    cron_time_zone,
    is_misnamed,
    is_time_zone,
)
from django_shedlock.exceptions import InvalidLockConfiguration

FIRST = f"Put {CrontabConfig.name!r} before 'django_crontab' into INSTALLED_APPS."


def register_checks() -> None:
    """Register the checks of this module with Django, and let it find the jobs."""
    checks.register(check_crontab)
    if target_modules not in discovery.sources:
        discovery.sources.append(target_modules)


def check_crontab(**kwargs: Any) -> list[CheckMessage]:
    """Check the entries of ``CRONJOBS``, and what is set for all of them."""
    # django-crontab checks at each tick, where one wrong entry would stop the others.
    if not apps.is_installed("django_crontab") or is_tick():
        return []
    try:
        return [*_check_settings(), *_check_entries(getattr(settings, "CRONJOBS", []))]
    except ImproperlyConfigured:  # another check tells of the setting
        return []


def _check_settings() -> Iterator[CheckMessage]:
    for name in ("CRONTAB_COMMAND_PREFIX", "CRONTAB_COMMAND_SUFFIX"):
        yield from broken_line(name, getattr(settings, name, ""))
    if getattr(settings, "CRONTAB_LOCK_JOBS", False):
        yield Warning(
            "CRONTAB_LOCK_JOBS locks a file of this host only, so it protects no job "
            "from other hosts.",
            hint="Remove it. The locks of this package also protect from this host.",
            id="shedlock.W007",
        )
    if apps.is_installed(CrontabConfig.name) and not locks_all_entries():
        yield Warning(
            f"{CrontabConfig.name!r} has no effect, since it comes after "
            "'django_crontab'.",
            hint=FIRST,
            id="shedlock.W012",
        )
    yield from _check_time_zone(conf.CRONTAB_TIME_ZONE.value)
    if locks_all_entries() and find_spec("cronsim") is None:
        yield Error(
            "The schedules of CRONJOBS can't be read, so no entry can run: cronsim is "
            "missing.",
            hint="Install django-shedlock[crontab].",
            id="shedlock.E010",
        )


def _check_time_zone(zone: str) -> Iterator[CheckMessage]:
    if zone and not is_time_zone(zone):
        yield Error(
            f"SHEDLOCK_CRONTAB_TIME_ZONE: there is no time zone {zone!r}, so ticks are "
            "counted in this host's.",
            hint='Name one as in "Europe/Berlin", or leave it empty.',
            id="shedlock.E010",
        )
    if locks_all_entries() and is_misnamed():
        yield Warning(
            f"Ticks of CRONJOBS are counted in {cron_time_zone()!r}, but cron goes by "
            "/etc/localtime of this host, which is another time zone.",
            hint='Name it in SHEDLOCK_CRONTAB_TIME_ZONE, as in "Europe/Berlin".',
            id="shedlock.W016",
        )


def _check_entries(jobs: Any) -> Iterator[CheckMessage]:
    if not isinstance(jobs, list | tuple):
        yield malformed(jobs, ValueError("CRONJOBS has to be a list"))
        return
    plans: list[Plan] = []
    for job in jobs:
        try:
            yield from _check_entry(Entry.parse(job), plans)
        except ValueError as error:
            yield malformed(job, error)
    yield from find_shared(plans)
    if len(plans) == len(jobs):
        yield from _check_options(plans)


def _check_entry(entry: Entry, plans: list[Plan]) -> Iterator[CheckMessage]:
    mistakes = list(find_mistakes(entry))
    yield from mistakes
    if mistakes:
        return
    try:
        plan = Plan(entry)
        plans.append(plan)
        yield from find_doubts(plan)
    except ImportError:  # without cronsim no schedule can be judged
        return
    except InvalidLockConfiguration as error:
        if find_job(entry) is None:  # of decorated jobs another check tells
            yield Error(
                f"{described(entry)} can't run under its lock: {error}",
                hint="Mind its keyword arguments, SHEDLOCK_CRONTAB and the defaults.",
                id="shedlock.E010",
            )


def _check_options(plans: Sequence[Plan]) -> Iterator[CheckMessage]:
    known = {key for plan in plans for key in (plan.entry.path, plan.entry.call)}
    for key in conf.CRONTAB.value:
        if locks_all_entries() and key not in known:
            yield Warning(
                f"SHEDLOCK_CRONTAB[{key!r}] has no effect, since it is neither the "
                "path of an entry of CRONJOBS nor its path and arguments.",
                hint="Arguments are written as in the lock's name.",
                id="shedlock.W013",
            )
