"""The entries of ``CRONJOBS``, and the functions and commands that they call."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management import (
    BaseCommand,
    call_command,
    get_commands,
    load_command_class,
)
from django.utils.module_loading import import_string

from django_shedlock.contrib.crontab.commands import locked_command
from django_shedlock.jobs import registry
from django_shedlock.jobs.registry import Job

APP = "django_shedlock.contrib.crontab"
"""The app whose command ``crontab`` locks all entries."""
FORMS = "(time, path), (time, path, suffix) or (time, path, [args], {kwargs}, suffix)"
KINDS: tuple[Any, ...] = (str, str, (list, tuple), dict, (str, type(None)))


@dataclass(frozen=True)
class Entry:
    """When to call what. ``suffix`` ends the line of the crontab."""

    time: str
    path: str
    args: list[Any] | tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    suffix: str | None = None

    @classmethod
    def parse(cls, job: Any) -> Entry:
        """Return an entry of ``CRONJOBS``. Raises ``ValueError`` if it is malformed."""
        parts = list(job) if isinstance(job, list | tuple) else []
        if len(parts) == 3 and isinstance(parts[2], str):
            parts[2:2] = [(), {}]
        has_length = 2 <= len(parts) <= len(KINDS)
        if not has_length or not all(map(isinstance, parts, KINDS)):
            raise ValueError(f"it has to be {FORMS}")
        return cls(*parts)

    def __str__(self) -> str:
        try:
            call = self.call
        except (TypeError, ValueError):  # another check reports its arguments
            call = f"{self.path} with {[*self.args, self.kwargs]!r}"
        return f"The entry {call} ({self.time}) of CRONJOBS"

    @property
    def call(self) -> str:
        """Path and arguments. Raises ``TypeError`` or ``ValueError`` if not JSON."""
        dump = partial(json.dumps, sort_keys=True)
        named = [f"{key}={dump(value)}" for key, value in sorted(self.kwargs.items())]
        arguments = ", ".join([*map(dump, self.args), *named])
        return f"{self.path}({arguments})" if arguments else self.path

    @property
    def function(self) -> Any:
        """The target of the path. Raises whatever importing it raises."""
        return import_string(self.path)


def locks_all_entries() -> bool:
    """Return whether ``manage.py crontab`` is the command of this app."""
    names = [app.name for app in apps.get_app_configs()]
    both = {APP, "django_crontab"} <= set(names)
    return both and names.index(APP) < names.index("django_crontab")


def is_tick() -> bool:
    """Return whether cron has started this process to run one entry."""
    return sys.argv[1:3] == ["crontab", "run"]


def target_modules() -> Iterator[str]:
    """Return the modules of the targets of ``CRONJOBS``, which may be anywhere."""
    entries = getattr(settings, "CRONJOBS", ())
    is_used = apps.is_installed("django_crontab") and isinstance(entries, list | tuple)
    if is_used and not is_tick():  # a tick needs its own target only
        for entry in entries:
            with suppress(ValueError):  # a check reports it
                yield Entry.parse(entry).path.rpartition(".")[0]


def own_lock(entry: Entry) -> object | None:
    """Return the target that brings its own lock: a job or ``locked_command``."""
    return locked_command if entry.function is locked_command else find_job(entry)


def find_job(entry: Entry) -> Job | None:
    """Return the decorated job that the entry runs, which may be a command."""
    function = entry.function
    if function is not call_command:
        return registry.find_job(function)
    command = find_command(entry)
    return None if command is None else registry.find_job(command.handle)


def find_command(entry: Entry) -> BaseCommand | None:
    """Return the command that the entry calls by its name, if it exists."""
    name = entry.args[0] if entry.args else None
    app = get_commands().get(name) if isinstance(name, str) else None
    if app is None or isinstance(app, BaseCommand):
        return app
    return load_command_class(app, str(name))
