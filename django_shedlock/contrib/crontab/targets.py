"""Which lock the target of an entry brings with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.management import (
    BaseCommand,
    call_command,
    get_commands,
    load_command_class,
)

from django_shedlock.contrib.crontab.commands import locked_command
from django_shedlock.contrib.crontab.entries import Entry
from django_shedlock.jobs import Job, registered_jobs


def has_own_lock(entry: Entry) -> bool:
    """Return whether the entry's target runs under a lock by itself."""
    return entry.function is locked_command or find_job(entry) is not None


def find_job(entry: Entry) -> Job | None:
    """Return the decorated job that the entry runs, also one that is a command."""
    function = entry.function
    if function is not call_command:
        return _job_of(function)
    command = find_command(entry)
    return None if command is None else _job_of(command.handle)


def find_command(entry: Entry) -> BaseCommand | None:
    """Return the command that the entry calls by its name, if there is such one."""
    name = entry.args[0] if entry.args else None
    app = get_commands().get(name) if isinstance(name, str) else None
    if app is None or isinstance(app, BaseCommand):
        return app
    return load_command_class(app, str(name))


def _job_of(function: Any) -> Job | None:
    # The wrapper of a job has the function of the job below it; others may wrap it.
    jobs = {id(job.function): job for job in registered_jobs}
    while function is not None:
        below = _below(function)
        if id(below) in jobs and not isinstance(function, partial):
            return jobs[id(below)]
        function = below
    return None


def _below(function: Any) -> Callable[..., Any] | None:
    if isinstance(function, partial):
        return function.func
    below: Callable[..., Any] | None = getattr(function, "__wrapped__", None)
    return below
