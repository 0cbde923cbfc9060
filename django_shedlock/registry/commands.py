"""Commands of other apps, which ``SHEDLOCK_COMMANDS`` puts under a lock."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from django.core import management
from django.core.checks import CheckMessage, Error
from django.core.management.base import BaseCommand
from django.core.signals import setting_changed
from django.dispatch import receiver

from django_shedlock import conf
from django_shedlock.exceptions import InvalidLockConfiguration, described
from django_shedlock.in_tests import are_databases_temporary
from django_shedlock.locks.configuration import ZERO
from django_shedlock.registry.decorators import scheduler_lock
from django_shedlock.registry.jobs import Job, decorated_job, registered_jobs
from django_shedlock.registry.migrate import before_first_migrate

CommandHandle = Callable[..., str | None]
"""The method ``handle()`` of a command: it returns what is to be printed."""

NEVER_LOCKED_COMMANDS = {
    *("check", "crontab", "dbshell", "runserver", "shedlock", "shell"),
    *("test", "testserver"),
}
"""They serve a person, or start the jobs themselves."""

_locked: dict[tuple[type[BaseCommand], str], type[BaseCommand]] = {}

_load_unlocked = management.load_command_class


def lock_commands() -> None:
    """Let Django load each command of ``SHEDLOCK_COMMANDS`` under its lock."""
    # Both manage.py and call_command() look for the function in this module.
    management.load_command_class = load_command_class


def load_command_class(app_name: str, name: str) -> BaseCommand:
    """Return the command as Django does, under its lock of ``SHEDLOCK_COMMANDS``."""
    command = _load_unlocked(app_name, name)
    return lock_command(command, name) if name in conf.COMMANDS.value else command


def lock_command(command: BaseCommand, name: str) -> BaseCommand:
    """
    Return the command under the lock that the setting gives it by this name.

    One that has a lock of its own keeps it. Raises ``InvalidLockConfiguration`` if the
    lock can't work.
    """
    kind = type(command)
    if name in NEVER_LOCKED_COMMANDS or decorated_job(kind) is not None:
        return command
    if (kind, name) not in _locked:
        options = conf.COMMANDS.value[name]
        if not isinstance(options, dict):
            raise InvalidLockConfiguration(
                f"SHEDLOCK_COMMANDS[{name!r}] = {options!r}: it must be a dict of "
                'options, for example {"lock_at_most_for": "10m"}.'
            )

        @functools.wraps(kind.handle)
        def handle(self: BaseCommand, *args: object, **options: object) -> str | None:
            return kind.handle(self, *args, **options)

        # Subclass it: patching its handle() would lock its subclasses too.
        same = {each: getattr(kind, each) for each in ("__doc__", "__module__")}
        options = {**options}
        decorate = scheduler_lock(options.pop("name", name), **options)
        locked: Any = type(kind.__qualname__, (kind,), same)
        locked.handle = handle  # now: django-typer reads the options of a class's own
        decorate(locked)
        job = decorated_job(locked)
        if name == "migrate" and job is not None:
            locked.handle = _also_before_first(locked.handle, handle, job)
        _locked[kind, name] = locked
    return _locked[kind, name]()


def _also_before_first(
    migrate: CommandHandle, unlocked: CommandHandle, job: Job
) -> CommandHandle:
    @functools.wraps(migrate)
    def handle(*args: object, **options: object) -> str | None:
        # To look needs no lock, and a skip's status 0 would say that all is applied.
        # Nor does a database of this process alone: the lock may be in a store that
        # others use, and its record would stay there.
        looks = options.get("check_unapplied") or options.get("plan")
        if looks or are_databases_temporary():
            return unlocked(*args, **options)
        # The body makes the table, so it can't wait for one that remembers its end.
        request = job.request_for(args, options)
        request = replace(request, schedule=None, lock_at_least_for=ZERO)
        with before_first_migrate(request) as goes_on:
            return migrate(*args, **options) if goes_on else None

    return handle


def import_commands() -> Iterator[CheckMessage]:
    """Make the jobs of the setting known; report each one that gets no lock by it."""
    apps = management.get_commands()
    for name in conf.COMMANDS.value:
        try:
            if name in NEVER_LOCKED_COMMANDS:
                problem = "this command has no business under a lock"
                hint = "Remove it. A job that it starts has a lock of its own."
            elif name not in apps:
                nearest = get_close_matches(str(name), apps, n=1)
                problem = "there is no such command"
                hint = "Give the name of a command of one of INSTALLED_APPS"
                hint += f". Did you mean {nearest[0]!r}?" if nearest else "."
            else:
                command = management.load_command_class(apps[name], name)
                if type(command) in _locked.values():
                    continue
                job = decorated_job(type(command))
                problem = f"it is decorated, with the lock {job and job.name!r}"
                hint = "Its options here have no effect: remove them."
        except InvalidLockConfiguration as error:
            problem, hint = str(error).rstrip("."), "Correct its options."
        except Exception as error:  # whatever the command's module raises
            problem = f"it can't be imported: {described(error)}"
            hint = "Make it importable, or remove it."
        text = f"SHEDLOCK_COMMANDS[{name!r}]: {problem}."
        yield Error(text, hint=hint, id="shedlock.E009")


@receiver(setting_changed)
def lock_commands_again(**kwargs: object) -> None:
    """Lock the commands of the new setting in a test with ``override_settings``."""
    lock_commands()
    for kind in _locked.values():
        if (job := decorated_job(kind)) is not None:
            registered_jobs.discard(job)
    _locked.clear()
