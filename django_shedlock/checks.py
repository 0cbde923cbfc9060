"""The system checks of settings, providers and decorated jobs."""

import inspect
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from difflib import get_close_matches
from importlib.util import find_spec
from operator import attrgetter
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import management
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand

from django_shedlock import conf
from django_shedlock.durations import format_duration, parse_duration
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import Place
from django_shedlock.registry.commands import (
    is_locked_by_setting,
    is_name_shared_on_purpose,
)
from django_shedlock.registry.discovery import import_jobs_to_check
from django_shedlock.registry.flags import (
    find_calls_that_look,
    find_migrations_that_look,
)
from django_shedlock.registry.jobs import (
    Job,
    decorated_job,
    is_command,
    path_of,
    registered_jobs,
)
from django_shedlock.registry.proposals import propose_options

APPS_OF_SETTINGS = {
    conf.SCHEDULE.name: "django_shedlock.beat",
    conf.PINGS.name: "django_shedlock.contrib.pings",
}
"""The app that reads the setting, where that is not this one."""


def check_settings(**kwargs: object) -> list[CheckMessage]:
    """Check the names and types of the settings, and that no duration is negative."""
    problems = map(_setting_problem, conf.SETTINGS)
    errors = [Error(problem, id="shedlock.E001") for problem in problems if problem]
    return [*errors, *_unknown_settings()]


def _unknown_settings() -> Iterator[CheckMessage]:
    prefix = "SHEDLOCK_"
    known = [setting.name.removeprefix(prefix) for setting in conf.SETTINGS]
    for name in sorted(name for name in dir(settings) if name.startswith(prefix)):
        own_name = name.removeprefix(prefix)
        if own_name in known:
            continue
        nearest = get_close_matches(own_name, known, n=1)
        yield Warning(
            f"{name} has no effect: there is no such setting.",
            hint=f"Did you mean {prefix}{nearest[0]}?" if nearest else "Remove it.",
            id="shedlock.W023",
        )


def check_tenants(**kwargs: object) -> list[CheckMessage]:
    """Refuse a table of locks for each tenant's schema: there is one for a database."""
    tenant_apps = getattr(settings, "TENANT_APPS", ())
    names = {"django_shedlock", "django_shedlock.apps.ShedLockConfig"}
    if names.isdisjoint(tenant_apps):
        return []
    return [
        Error(
            "TENANT_APPS has django_shedlock, so each tenant's schema would get a "
            "table of locks. A lock inside a transaction, a heartbeat and a late "
            "release use connections that look for the table in one schema only.",
            hint='Move "django_shedlock" to SHARED_APPS, and put the tenant into the '
            'names of its locks, as in "invoices:{tenant}".',
            id="shedlock.E010",
        )
    ]


def check_providers(**kwargs: object) -> list[CheckMessage]:
    """Check that each provider works, and that no two of them share their locks."""
    messages: list[CheckMessage] = []
    places: dict[Place, list[str]] = defaultdict(list)
    for alias in _aliases():
        try:
            provider = get_provider(alias)
            messages += provider.check()
        except ImproperlyConfigured as error:
            messages.append(Error(str(error), id="shedlock.E002"))
            continue
        if (place := provider.place()) is not None:
            places[place].append(alias)
    for place, aliases in places.items():
        if len(aliases) > 1:
            message = Error(
                f"The providers {' and '.join(map(repr, aliases))} of "
                f"SHEDLOCK_PROVIDERS keep their locks in {place.text}. So one name is "
                "one lock, whose holder can't enter it by both aliases.",
                hint="Remove all of them but one, and give its alias as `provider`.",
                id="shedlock.E005",
            )
            messages.append(message)
    is_wrong = any(message.is_serious() for message in messages)
    if not is_wrong and "default" not in _aliases():
        text = 'SHEDLOCK_PROVIDERS has no "default", which locks without provider= use.'
        messages.append(Error(text, id="shedlock.E002"))
    return messages


def check_jobs(**kwargs: object) -> list[CheckMessage]:
    """Check each decorated job that is known, and whether names clash."""
    if any(map(_setting_problem, conf.SETTINGS)):
        return []
    messages = [*import_jobs_to_check(), *find_migrations_that_look()]
    sharers: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in sorted(registered_jobs, key=attrgetter("path")):
        sharers[job.provider, job.name].append(job)
        messages += find_shadowed(job)
        messages += find_unlocked_body(job)
        messages += find_calls_that_look(job)
        try:
            provider = get_provider(job.provider)
            lock = job.request.configuration()
            provider.check_configuration(lock)
        except ImproperlyConfigured:  # check_providers() reports it
            continue
        except InvalidLockConfiguration as error:
            messages.append(invalid_lock(job.path, error))
            continue
        if (schedule := lock.schedule) is not None:
            in_setting = is_locked_by_setting(job)
            messages += find_too_long(
                job.path, lock, schedule.interval, in_setting=in_setting
            )
    for (_, name), jobs in sharers.items():
        owners = {job.path for job in jobs}
        if len(owners) > 1 and not is_name_shared_on_purpose(jobs):
            messages.append(shared_name(name, owners))
    return messages


def check_celery(**kwargs: object) -> list[CheckMessage]:
    """Check that retries of tasks with a schedule are not skipped."""
    app = "django_shedlock.contrib.celery"
    if apps.is_installed(app) or find_spec("celery") is None:
        return []
    if "celery" not in sys.modules:  # check_jobs() has imported what it covers
        return []
    from celery import Task
    from celery.local import Proxy

    messages: list[CheckMessage] = []
    for job in sorted(registered_jobs, key=attrgetter("path")):
        module, _, name = job.path.rpartition(".")
        # By its type alone: access to a proxy makes Celery finalize its app, which
        # reads the settings and calls the project's receivers.
        kind = type(getattr(sys.modules.get(module), name, None))
        if job.request.schedule is not None and issubclass(kind, Task | Proxy):
            message = Warning(
                f"A retry of the task {job.path} is skipped, because its job has a "
                "schedule, and the first attempt was already the run of that tick.",
                hint=f"Put {app!r} into INSTALLED_APPS.",
                id="shedlock.W015",
            )
            messages.append(message)
    return messages


def check_stores(
    databases: Sequence[str] | None = None, **kwargs: object
) -> list[CheckMessage]:
    """Let each provider check its store, if that is in one of the databases."""
    messages: list[CheckMessage] = []
    for alias in _aliases():
        try:
            provider = get_provider(alias)
        except ImproperlyConfigured:  # check_providers() reports it
            continue
        if not any(message.is_serious() for message in provider.check()):
            messages += provider.check_store(databases or ())
    return messages


def invalid_lock(job: str, error: InvalidLockConfiguration) -> CheckMessage:
    """Return the error for a job, or an entry of a setting, whose lock is wrong."""
    return Error(
        f"{job} can't run under its lock: {error}",
        hint="Look at the options of the lock, and at the settings of this package.",
        id="shedlock.E003",
    )


def shared_name(name: str, owners: Collection[str]) -> CheckMessage:
    """Return the warning for a name that belongs to several jobs or commands."""
    return Warning(
        f"The lock {name!r} belongs to several jobs, so each skips while another one "
        f"runs: {', '.join(sorted(owners))}.",
        hint="Give each job a name of its own, or silence this if you mean it.",
        id="shedlock.W001",
    )


def find_shadowed(job: Job) -> Iterator[CheckMessage]:
    """Warn of a decorated command that another app's command of this name replaces."""
    module = job.target.__module__ if is_command(job.target) else ""
    app, _, name = module.rpartition(".management.commands.")
    runs = management.get_commands().get(name, app)
    if runs == app:
        return
    with suppress(Exception):  # whatever the other app's module raises
        if decorated_job(type(management.load_command_class(runs, name))) is not None:
            return
    yield Warning(
        f"{job.path} is never run: `manage.py {name}` runs the command of {runs}, "
        f"which stands before {app} in INSTALLED_APPS, and has no lock.",
        hint=f"Put {app} first, or lock the other one: give it an entry in "
        "SHEDLOCK_COMMANDS.",
        id="shedlock.W020",
    )


def find_unlocked_body(job: Job) -> Iterator[CheckMessage]:
    """Warn of a command whose ``run_from_argv()`` does the work, without the lock."""
    if not is_command(job.target):
        return
    # The arguments are not parsed yet, so there is no lock for this method.
    kinds = job.target.__mro__[: job.target.__mro__.index(BaseCommand)]
    for kind in (kind for kind in kinds if "run_from_argv" in vars(kind)):
        method = inspect.unwrap(vars(kind)["run_from_argv"])
        called = getattr(getattr(method, "__code__", None), "co_names", ())
        if not {"run_from_argv", "execute", "handle"}.isdisjoint(called):
            continue
        yield Warning(
            f"{job.path}, with the lock {job.name!r}: `manage.py` runs it without its "
            f"lock, because run_from_argv() of {path_of(kind)} neither calls super() "
            "nor handle().",
            hint="Move the work into handle(). If the command is not yours, start it "
            "by `manage.py shedlock run NAME -- ...` instead.",
            id="shedlock.W020",
        )
        return


def find_too_long(
    job: str, lock: LockConfiguration, interval: timedelta, *, in_setting: bool
) -> Iterator[CheckMessage]:
    """
    Warn of durations that skip a tick which comes ``interval`` later.

    ``in_setting`` says whether the lock's options are in the dict of a setting.
    """
    between = f"the time between two ticks ({format_duration(interval)})"
    lock_at_least_for = lock.lock_at_least_for
    if lock_at_least_for >= interval:
        lock_at_least_for = min(timedelta(minutes=1), interval / 2)
        options = {"lock_at_least_for": format_duration(lock_at_least_for)}
        proposal = propose_options(options, in_setting=in_setting)
        yield Warning(
            f"{job} starves: lock_at_least_for "
            f"({format_duration(lock.lock_at_least_for)}) of its lock {lock.name!r} is "
            f"not shorter than {between}, so its own next tick is skipped.",
            hint=f"Write, for example: {proposal}.",
            id="shedlock.W007",
        )
    if lock.lock_at_most_for >= interval:
        shorter = max(_rounded_down(interval * 4 / 5), lock_at_least_for)
        proposal = propose_options(
            {"lock_at_most_for": format_duration(shorter), "keep_alive": True},
            in_setting=in_setting,
        )
        yield Warning(
            f"{job}: lock_at_most_for ({lock.lease}) of its lock {lock.name!r} is not "
            f"shorter than {between}. If a worker dies, its lock stays held for up to "
            f"{lock.lease}, and the job is skipped at each tick until then "
            f"({lock.lock_at_most_for // interval} at the most).",
            hint=f"Write, for example: {proposal}. Then the lease is extended while "
            "the job runs.",
            id="shedlock.W008",
        )


def _rounded_down(duration: timedelta) -> timedelta:
    """Return it in whole minutes, unless it is shorter than two."""
    minute = timedelta(minutes=1)
    return duration // minute * minute if duration >= 2 * minute else duration


def _setting_problem(setting: conf.Setting[Any]) -> str | None:
    try:
        value = setting.value
        is_duration = set(conf.DURATION_TYPES) <= set(setting.types)
        if is_duration and value is not None and parse_duration(value) < ZERO:
            return f"{setting.name} = {value!r}: it must not be negative."
        # A default is sound, and its module may be one that nothing else needs.
        is_own = setting.types == conf.FUNCTION_TYPES and value != setting.default
        if is_own and not callable(setting.function):
            return f"{setting.name} = {value!r}: it is no function."
        app = APPS_OF_SETTINGS.get(setting.name)
        if app is not None and value and not apps.is_installed(app):
            return f"{setting.name} has no effect: put {app!r} into INSTALLED_APPS."
    except ImproperlyConfigured as error:
        return str(error)
    except (ValueError, ImportError) as error:
        return f"{setting.name}: {error}."
    return None


def _aliases() -> list[str]:
    return [] if _setting_problem(conf.PROVIDERS) else list(conf.PROVIDERS.value)
