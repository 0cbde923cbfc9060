"""Which lock the target of an entry brings with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from django.apps import apps
from django.conf import settings
from django.core.management import (
    BaseCommand,
    call_command,
    get_commands,
    load_command_class,
)

from django_shedlock import jobs
from django_shedlock.contrib.crontab.apps import is_tick
from django_shedlock.contrib.crontab.commands import locked_command
from django_shedlock.contrib.crontab.entries import Entry
from django_shedlock.jobs import Job


def target_modules() -> Iterator[str]:
    """Return the modules whose functions ``CRONJOBS`` names, which may be anywhere."""
    entries = getattr(settings, "CRONJOBS", ())
    is_used = apps.is_installed("django_crontab") and isinstance(entries, list | tuple)
    if is_used and not is_tick():  # a tick needs its own target only
        for entry in entries:
            with suppress(ValueError):  # a check tells of it
                yield Entry.parse(entry).path.rpartition(".")[0]


def own_lock(entry: Entry) -> object | None:
    """Return what brings its own lock: the decorated job, or ``locked_command``."""
    return locked_command if entry.function is locked_command else find_job(entry)


def find_job(entry: Entry) -> Job | None:
    """Return the decorated job that the entry runs, also one that is a command."""
    function = entry.function
    if function is not call_command:
        return jobs.find_job(function)
    command = find_command(entry)
    return None if command is None else jobs.find_job(command.handle)


def find_command(entry: Entry) -> BaseCommand | None:
    """Return the command that the entry calls by its name, if there is such one."""
    name = entry.args[0] if entry.args else None
    app = get_commands().get(name) if isinstance(name, str) else None
    if app is None or isinstance(app, BaseCommand):
        return app
    return load_command_class(app, str(name))
