"""The system checks of settings, providers and decorated jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, Warning
from django.core.exceptions import ImproperlyConfigured

from django_shedlock import conf
from django_shedlock.durations import format_duration, parse_duration
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.jobs.discovery import FailedImport, import_decorated_modules
from django_shedlock.jobs.registry import Job, registered_jobs
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import Place


def register_checks() -> None:
    """Register the checks of this module with Django."""
    checks.register(check_settings)
    checks.register(check_providers)
    checks.register(check_jobs)
    checks.register(check_stores, Tags.database)


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Check the types of the settings, and that no duration is negative."""
    return [
        Error(problem, id="shedlock.E001")
        for setting in conf.SETTINGS
        if (problem := _setting_problem(setting))
    ]


def check_providers(**kwargs: Any) -> list[CheckMessage]:
    """Check that each provider works, and that no two of them share their locks."""
    messages: list[CheckMessage] = []
    places = {}
    for alias in _aliases():
        try:
            provider = get_provider(alias)
            messages += provider.check()
        except ImproperlyConfigured as error:
            messages.append(Error(str(error), id="shedlock.E002"))
            continue
        places[alias] = provider.place()
    messages += check_shared(places)
    if not messages and "default" not in _aliases():
        text = 'SHEDLOCK_PROVIDERS has no "default", which locks without provider= use.'
        messages.append(Error(text, id="shedlock.E002"))
    return messages


def check_jobs(**kwargs: Any) -> list[CheckMessage]:
    """Check each decorated job of the project, and whether their names clash."""
    if any(_setting_problem(setting) for setting in conf.SETTINGS):
        return []
    failed = import_decorated_modules()
    jobs = sorted(registered_jobs, key=lambda job: job.path)
    return [
        *_check_imports(failed),
        *_check_each(jobs),
        *_check_same_names(jobs),
        *_check_similar_names(jobs),
    ]


def check_stores(
    databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Let each provider check its store, if that is in one of the databases."""
    messages: list[CheckMessage] = []
    for alias in _aliases():
        try:
            provider = get_provider(alias)
        except ImproperlyConfigured:  # check_providers() tells why
            continue
        messages += provider.check_store(databases or ())
    return messages


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


def check_shared(places: Mapping[str, Place | None]) -> Iterator[CheckMessage]:
    """Return an error for each place of several providers; they are by their alias."""
    sharing: dict[Place, list[str]] = defaultdict(list)
    for alias, place in places.items():
        if place is not None:
            sharing[place].append(alias)
    for place, aliases in sharing.items():
        if len(aliases) > 1:
            yield Error(
                f"The providers {' and '.join(map(repr, aliases))} of "
                f"SHEDLOCK_PROVIDERS keep their locks in {place.text}. So one name is "
                "one lock, whose holder can't enter it by both aliases.",
                hint="Remove all of them but one, and give its alias as `provider`.",
                id="shedlock.E013",
            )


def _check_imports(failed: Sequence[FailedImport]) -> Iterator[CheckMessage]:
    for module in failed:
        if not module.is_of_app:  # a check of the setting that names it tells why
            continue
        text = f"{module.module} can't be imported, so its jobs are not known: "
        if module.has_invalid_lock:
            yield Error(
                text + module.reason,
                hint="Correct that lock's name or options. Its job can't run before.",
                id="shedlock.E012",
            )
        else:
            # A warning, since the module may need what the command is about to make.
            yield Warning(
                text + module.reason,
                hint="Make it importable. If it is a script, put what it runs below "
                '`if __name__ == "__main__"`.',
                id="shedlock.W019",
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
                hint="Look at SHEDLOCK_NAMESPACE, SHEDLOCK_PROVIDERS and the defaults.",
                id="shedlock.E004",
            )


def _check_lock(job: Job) -> Iterator[CheckMessage]:
    request = job.request
    lock = request.configuration()
    if request.provider not in _aliases():
        return
    with suppress(ImproperlyConfigured):  # check_providers() tells why
        get_provider(request.provider).check_configuration(lock)
        if (schedule := lock.schedule) is not None:
            yield from find_too_long(job.path, lock, schedule.interval)
            yield from find_useless(job.path, lock)


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
                hint="Spell them the same way if they are meant to be one lock.",
                id="shedlock.W002",
            )


def find_too_long(
    job: str, lock: LockConfiguration, interval: timedelta
) -> Iterator[CheckMessage]:
    """Warn of durations that skip a tick which comes ``interval`` later."""
    between = f"the time between two ticks ({format_duration(interval)})"
    if lock.lock_at_least_for >= interval:
        yield Warning(
            f"{job} starves: lock_at_least_for "
            f"({format_duration(lock.lock_at_least_for)}) of its lock {lock.name!r} is "
            f"not shorter than {between}, so its own next tick is skipped.",
            hint="Use half of that, or less; a minute is usually enough.",
            id="shedlock.W008",
        )
    if lock.lock_at_most_for >= interval:
        yield Warning(
            f"{job}: lock_at_most_for ({lock.lease}) of its lock {lock.name!r} is not "
            f"shorter than {between}. If a worker dies, its lock stays held for up to "
            f"{lock.lease}, and the job is skipped at each tick until then "
            f"({lock.lock_at_most_for // interval} at the most).",
            hint="Shorten it, with keep_alive=True if the job may take longer.",
            id="shedlock.W010",
        )


def find_useless(job: str, lock: LockConfiguration) -> Iterator[CheckMessage]:
    """Warn of a ``lock_at_least_for`` beside a schedule."""
    if lock.schedule is not None and lock.lock_at_least_for:
        yield Warning(
            f"{job}: lock_at_least_for ({format_duration(lock.lock_at_least_for)}) of "
            f"its lock {lock.name!r} adds nothing, because each tick of its schedule "
            "runs once anyway. It only delays retries.",
            hint="Leave lock_at_least_for out.",
            id="shedlock.W018",
        )
