"""Commands of other apps, which ``SHEDLOCK_COMMANDS`` puts under a lock."""

import functools
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, cast

from django.core import management
from django.core.checks import CheckMessage, Error, Warning
from django.core.management.base import BaseCommand
from django.core.signals import setting_changed
from django.dispatch import receiver

from django_shedlock import conf
from django_shedlock.exceptions import InvalidLockConfiguration, described
from django_shedlock.locks.configuration import check_options
from django_shedlock.registry.decorators import JobOptions, scheduler_lock
from django_shedlock.registry.jobs import (
    Job,
    decorated_job,
    is_migrate,
    registered_jobs,
)

NEVER_LOCKED_COMMANDS = {
    *("check", "crontab", "dbshell", "runserver", "shedlock", "shell"),
    *("test", "testserver"),
}
"""They serve a person, or start the jobs themselves."""

COMMAND_OPTIONS = ("name", *JobOptions.__annotations__, "migrates")
"""The options of an entry."""

MIGRATE_OPTIONS = ("wait", "unless", "migrates")
"""The options of a command that migrates."""

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


def lock_command(command: Any, name: str) -> BaseCommand:
    """
    Return the command under the lock that the setting gives it by this name.

    One that has a lock of its own keeps it. Raises ``InvalidLockConfiguration`` if the
    lock can't work. What is no ``BaseCommand`` stays as it is: a check reports it.
    """
    if not isinstance(command, BaseCommand):
        return cast(BaseCommand, command)  # as Django's own function does
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
        locked: Any = type(kind.__qualname__, (kind,), same)
        locked.handle = handle  # now: django-typer reads the options of a class's own
        if migrates(kind, name, options):
            # Only deploys need it, and every process would load it.
            from django_shedlock.registry.migrate import lock_migrate

            if kind.execute is BaseCommand.execute:
                locked.handle = lock_migrate(handle, name, options)
            else:  # it may do its work there
                locked.execute = lock_migrate(kind.execute, name, options)
        else:
            check_options(name, options, COMMAND_OPTIONS)
            options = {**options}
            options.pop("migrates", None)
            scheduler_lock(options.pop("name", name), **options)(locked)
        _locked[kind, name] = locked
    return _locked[kind, name]()


def migrates(kind: type[BaseCommand], name: str, options: Mapping[str, object]) -> bool:
    """
    Return whether the command needs this lock: it is ``migrate``, or like it.

    Raises ``InvalidLockConfiguration`` if its option ``migrates`` is no boolean.
    """
    is_like_it = options.get("migrates", False)
    if not isinstance(is_like_it, bool):
        raise InvalidLockConfiguration(
            f"Lock {name!r}: migrates ({is_like_it!r}) must be True or False."
        )
    return name == "migrate" or is_like_it or is_migrate(kind)


def migrations_of_setting() -> Iterator[tuple[type[BaseCommand], str]]:
    """Return each command that migrates and is locked by the setting, and its name."""
    for (kind, name), locked in _locked.items():
        if decorated_job(locked) is None:
            yield kind, name


def is_locked_by_setting(job: Job) -> bool:
    """Return whether ``SHEDLOCK_COMMANDS`` has put the job's command under its lock."""
    return job.target in _locked.values()


def is_name_shared_on_purpose(jobs: Collection[Job]) -> bool:
    """
    Return whether ``SHEDLOCK_COMMANDS`` gives these jobs one name, and says so.

    Then one of the commands calls the others, which go into its lock. One of them may
    have the name by itself.
    """
    if not all(map(is_locked_by_setting, jobs)):
        return False
    own = [
        name
        for (kind, name), locked in _locked.items()
        if any(job.target is locked for job in jobs)
        and "name" not in cast(dict[str, object], conf.COMMANDS.value[name])
    ]
    return len(own) < 2


def import_commands() -> Iterator[CheckMessage]:
    """Make the jobs of the setting known; report each one that gets no lock by it."""
    apps = management.get_commands()
    for name in conf.COMMANDS.value:
        entry = f"SHEDLOCK_COMMANDS[{name!r}]"
        if name in NEVER_LOCKED_COMMANDS:
            problem = "this command has no business under a lock"
            hint = "Remove it. A job that it starts has a lock of its own."
        elif name not in apps:
            nearest = get_close_matches(str(name), apps, n=1)
            problem = "there is no such command"
            hint = "Give the name of a command of one of INSTALLED_APPS"
            hint += f". Did you mean {nearest[0]!r}?" if nearest else "."
        else:
            try:
                command: Any = _load_unlocked(apps[name], name)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # whatever its module raises, or an exit
                text = f"{entry}: it can't be imported, so it can't run: "
                hint = "Install what it needs, or remove the entry."
                # A warning: other hosts may have what it needs.
                yield Warning(text + described(error), hint=hint, id="shedlock.W002")
                continue
            if not isinstance(command, BaseCommand):
                yield _foreign_command(entry, command)
                continue
            try:
                command = lock_command(command, name)
            except InvalidLockConfiguration as error:
                yield _wrong_entry(entry, str(error), "Correct its options.")
                continue
            except Exception as error:  # whatever the metaclass of its class raises
                problem = f"it can't be locked: {described(error)}"
                hint = "Remove it, and start the command by `shedlock run`."
            else:
                if type(command) in _locked.values():
                    yield from _check_migrate(type(command), name)
                    continue
                job = decorated_job(type(command))
                problem = f"it is decorated, with the lock {job and job.name!r}"
                hint = "Its options here have no effect: remove them."
        yield _wrong_entry(entry, f"{problem}.", hint)


def _wrong_entry(entry: str, problem: str, hint: str) -> CheckMessage:
    return Error(f"{entry}: {problem}", hint=hint, id="shedlock.E009")


def _foreign_command(entry: str, command: object) -> CheckMessage:
    kind = type(command)
    return Warning(
        f"{entry}: it runs without a lock, because it is no BaseCommand but a "
        f"{kind.__module__}.{kind.__qualname__}.",
        hint="Remove the entry. If the command is yours, put @scheduler_lock below "
        "@click.command(), next to the function; otherwise start it by "
        "`manage.py shedlock run NAME -- ...`.",
        id="shedlock.W020",
    )


def _check_migrate(kind: type[BaseCommand], name: str) -> Iterator[CheckMessage]:
    options: Any = conf.COMMANDS.value[name]
    others = sorted(options.keys() - set(MIGRATE_OPTIONS))
    if others and migrates(kind, name, options):
        nearest = get_close_matches(others[0], MIGRATE_OPTIONS, n=1)
        meant = f" Did you mean {nearest[0]}?" if nearest else ""
        yield Warning(
            f"SHEDLOCK_COMMANDS[{name!r}]: {', '.join(map(repr, others))} has no "
            "effect, since the lock of a command that migrates is one of the database "
            "itself, and no record.",
            hint=f"Remove it. Only {', '.join(MIGRATE_OPTIONS)} apply.{meant}",
            id="shedlock.W011",
        )


@receiver(setting_changed)
def lock_commands_again(**kwargs: object) -> None:
    """Lock the commands of the new setting in a test with ``override_settings``."""
    lock_commands()
    for kind in _locked.values():
        if (job := decorated_job(kind)) is not None:
            registered_jobs.discard(job)
    _locked.clear()
