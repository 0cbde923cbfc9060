"""The system checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, Warning
from django.core.exceptions import ImproperlyConfigured

from django_shedlock import conf
from django_shedlock.configuration import ZERO
from django_shedlock.discovery import import_decorated_modules
from django_shedlock.durations import parse_duration
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.intervals import find_too_long
from django_shedlock.jobs import Job, registered_jobs
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider


def register_checks() -> None:
    """Register the checks of this module with Django."""
    checks.register(check_settings)
    checks.register(check_providers)
    checks.register(check_jobs)
    checks.register(check_stores, Tags.database)


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Check the types of the settings, and their durations."""
    return [
        Error(problem, id="shedlock.E001")
        for setting in conf.SETTINGS
        if (problem := _setting_problem(setting))
    ]


def check_providers(**kwargs: Any) -> list[CheckMessage]:
    """Check that each provider can be made, and let it check its options."""
    messages: list[CheckMessage] = []
    for alias in _aliases():
        try:
            messages += get_provider(alias).check()
        except ImproperlyConfigured as error:
            messages.append(Error(str(error), id="shedlock.E002"))
    if not messages and "default" not in _aliases():
        messages.append(_missing_default())
    return messages


def check_jobs(**kwargs: Any) -> list[CheckMessage]:
    """Check the decorated jobs of the project, one by one and against each other."""
    if any(_setting_problem(setting) for setting in conf.SETTINGS):
        return []
    import_decorated_modules()
    jobs = sorted(registered_jobs, key=lambda job: job.path)
    return [*_check_each(jobs), *_check_same_names(jobs), *_check_similar_names(jobs)]


def check_stores(
    databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Let each provider look at its store, as far as ``databases`` may be asked."""
    return [
        message
        for provider in _providers()
        for message in provider.check_store(databases or ())
    ]


def _setting_problem(setting: conf.Setting[Any]) -> str | None:
    try:
        value = setting.value
        if setting.types == conf.DURATION and parse_duration(value) < ZERO:
            return f"{setting.name} = {value!r}: it must not be negative."
    except ImproperlyConfigured as error:
        return str(error)
    except ValueError as error:
        return f"{setting.name}: {error}."
    return None


def _aliases() -> list[str]:
    return [] if _setting_problem(conf.PROVIDERS) else list(conf.PROVIDERS.value)


def _providers() -> Iterator[LockProvider]:
    for alias in _aliases():
        try:
            yield get_provider(alias)
        except ImproperlyConfigured:
            continue


def _missing_default() -> CheckMessage:
    return Error(
        'SHEDLOCK_PROVIDERS has no "default", which every lock uses that names no '
        "provider.",
        id="shedlock.E002",
    )


def _check_each(jobs: Sequence[Job]) -> Iterator[CheckMessage]:
    for job in jobs:
        if job.request.provider not in _aliases():
            yield Error(
                f"Lock {job.request.name!r} of {job.path} names the provider "
                f"{job.request.provider!r}, which is not in SHEDLOCK_PROVIDERS.",
                hint=f"SHEDLOCK_PROVIDERS has {', '.join(map(repr, _aliases()))}.",
                id="shedlock.E003",
            )
        try:
            yield from _check_lock(job)
        except InvalidLockConfiguration as error:
            yield Error(
                f"{job.path} can't run under its lock: {error}",
                hint="Mind SHEDLOCK_NAMESPACE, SHEDLOCK_PROVIDERS and the defaults.",
                id="shedlock.E004",
            )


def _check_lock(job: Job) -> Iterator[CheckMessage]:
    request = job.request
    lock = request.configuration()
    schedule = lock.occasion.schedule
    if schedule is None or request.provider not in _aliases():
        return
    with suppress(ImproperlyConfigured):  # another check tells of the provider
        get_provider(request.provider).check_configuration(lock)
        yield from find_too_long(job.path, lock, schedule.interval)


def _check_same_names(jobs: Sequence[Job]) -> Iterator[CheckMessage]:
    paths: dict[tuple[str, str], set[str]] = defaultdict(set)
    for job in jobs:
        paths[job.request.provider, job.request.name].add(job.path)
    for (_, name), owners in paths.items():
        if len(owners) > 1:
            yield Warning(
                f"The lock {name!r} belongs to several jobs, so each skips while "
                f"another one runs: {', '.join(sorted(owners))}.",
                hint="Give each job a name of its own, or silence this if you mean it.",
                id="shedlock.W001",
            )


def _check_similar_names(jobs: Sequence[Job]) -> Iterator[CheckMessage]:
    spellings: dict[tuple[str, str], set[str]] = defaultdict(set)
    for job in jobs:
        name = job.request.name
        spellings[job.request.provider, name.casefold()].add(name)
    for names in spellings.values():
        if len(names) > 1:
            yield Warning(
                "These locks are different, though their names differ only by case: "
                f"{', '.join(map(repr, sorted(names)))}.",
                hint="Spell them alike if they are meant to be one.",
                id="shedlock.W002",
            )
