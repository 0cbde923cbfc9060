"""The system checks of ``CRONJOBS``."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured

from django_shedlock import conf
from django_shedlock.contrib.crontab.apps import CrontabConfig, locks_all_entries
from django_shedlock.contrib.crontab.entries import Entry
from django_shedlock.contrib.crontab.leases import find_doubts
from django_shedlock.contrib.crontab.mistakes import (
    broken_line,
    described,
    find_mistakes,
    malformed,
)
from django_shedlock.contrib.crontab.plans import Plan
from django_shedlock.contrib.crontab.targets import find_job
from django_shedlock.exceptions import InvalidLockConfiguration

AT_EACH_TICK = ["crontab", "run"]
"""django-crontab runs the checks there: one wrong entry would stop the others."""
FIRST = f"Put {CrontabConfig.name!r} before 'django_crontab' into INSTALLED_APPS."


def register_checks() -> None:
    """Register the checks of this module with Django."""
    checks.register(check_crontab)


def check_crontab(**kwargs: Any) -> list[CheckMessage]:
    """Check the entries of ``CRONJOBS``, and what is set for all of them."""
    if not apps.is_installed("django_crontab") or sys.argv[1:3] == AT_EACH_TICK:
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
    if locks_all_entries() and find_spec("cronsim") is None:
        yield Error(
            "The schedules of CRONJOBS can't be read, so no entry can run: cronsim is "
            "missing.",
            hint="Install django-shedlock[crontab].",
            id="shedlock.E010",
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
    yield from _check_same_names(plans)
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


def _check_same_names(plans: Sequence[Plan]) -> Iterator[CheckMessage]:
    targets: dict[tuple[str, str], set[str]] = defaultdict(set)
    for plan in plans:
        if plan.request is not None:
            targets[plan.request.provider, plan.request.name].add(plan.target)
    decorated = {plan.target for plan in plans if plan.job is not None}
    for (_, name), of_name in targets.items():
        if len(of_name) > 1 and not of_name <= decorated:
            yield Warning(
                f"The lock {name!r} belongs to several targets of CRONJOBS, so each "
                f"skips while another one runs: {', '.join(sorted(of_name))}.",
                hint="Give each a name of its own, or silence this if you mean it.",
                id="shedlock.W011",
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
