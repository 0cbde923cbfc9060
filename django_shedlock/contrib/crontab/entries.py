"""The entries of ``CRONJOBS``: what each of them calls, and under which lock."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from asgiref.sync import iscoroutinefunction
from django.apps import apps
from django.conf import settings
from django.core import management
from django.utils.functional import cached_property
from django.utils.module_loading import import_string

from django_shedlock import conf
from django_shedlock.contrib.crontab import locked_command, parse_command
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.execution.cancellation import run_async
from django_shedlock.locks.configuration import (
    ZERO,
    LockRequest,
    default_duration,
    make_request,
)
from django_shedlock.registry import jobs as registry
from django_shedlock.registry.discovery import NamedJob, named_job, run_locked
from django_shedlock.registry.jobs import Job, invoked_by, with_schedule
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import BY_SCHEDULER, Start
from django_shedlock.signals import logger

APP = "django_shedlock.contrib.crontab"
"""The app whose command ``crontab`` locks all entries."""
FORMS = "(time, path), (time, path, suffix) or (time, path, [args], {kwargs}, suffix)"
KINDS: tuple[Any, ...] = (str, str, (list, tuple), dict, (str, type(None)))
LOCALTIME = Path("/etc/localtime")
LONGEST_AT_LEAST = timedelta(minutes=1)
"""Hosts whose clocks raise no warning start a tick within this time."""


def locks_all_entries() -> bool:
    """Return whether ``manage.py crontab`` is the command of this app."""
    names = [app.name for app in apps.get_app_configs()]
    both = {APP, "django_crontab"} <= set(names)
    return both and names.index(APP) < names.index("django_crontab")


def cron_time_zone() -> str:
    """
    Return the name of the time zone in which cron counts.

    It is ``SHEDLOCK_CRONTAB_TIME_ZONE``, else what ``/etc/localtime`` links to, else
    UTC. A wrong setting stops no job; a check reports it. The process's own zone is no
    help: Django has set it to the project's.
    """
    names = [conf.CRONTAB_TIME_ZONE.value]
    with suppress(OSError):
        linked = str(LOCALTIME.readlink()).partition("zoneinfo/")[2]
        # These two folders repeat all zones, without and with leap seconds.
        names.append(linked.removeprefix("posix/").removeprefix("right/"))
    return next(filter(is_time_zone, names), "UTC")


def is_time_zone(name: str) -> bool:
    """Return whether there is a time zone of that name."""
    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        return False
    return True


@dataclass(frozen=True)
class CrontabEntry:
    """When to call what. ``suffix`` ends the line of the crontab."""

    time: str
    path: str
    args: list[Any] | tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    suffix: str | None = None

    @classmethod
    def parse(cls, job: Any) -> "CrontabEntry":
        """Return an entry of ``CRONJOBS``. Raises ``ValueError`` if it is malformed."""
        parts = list(job) if isinstance(job, list | tuple) else []
        if len(parts) == 3 and isinstance(parts[2], str):
            parts[2:2] = [(), {}]
        has_length = 2 <= len(parts) <= len(KINDS)
        if not has_length or not all(map(isinstance, parts, KINDS)):
            raise ValueError(f"it has to be {FORMS}")
        return cls(*parts)

    def __str__(self) -> str:
        return f"The entry {self.call} ({self.time}) of CRONJOBS"

    @property
    def call(self) -> str:
        """Path and arguments. Raises ``TypeError`` or ``ValueError`` if not JSON."""
        dump = partial(json.dumps, sort_keys=True)
        named = [f"{key}={dump(value)}" for key, value in sorted(self.kwargs.items())]
        arguments = ", ".join([*map(dump, self.args), *named])
        return f"{self.path}({arguments})" if arguments else self.path

    @cached_property
    def function(self) -> Any:
        """The target of the path. Raises whatever importing it raises."""
        return import_string(self.path)

    @property
    def command(self) -> management.BaseCommand | None:
        """The command that the entry calls by its name, if it exists."""
        name = self.args[0] if self.args else None
        app = management.get_commands().get(name) if isinstance(name, str) else None
        if app is None or isinstance(app, management.BaseCommand):
            return app
        return management.load_command_class(app, str(name))

    @cached_property
    def job(self) -> Job | None:
        """The decorated job that the entry runs, which may be a command."""
        if self.function is management.call_command:
            return registry.find_job(getattr(self.command, "handle", None))
        return registry.find_job(self.function)

    @cached_property
    def ticks(self) -> Schedule | None:
        """When cron starts the entry; ``None`` for ``@reboot``, or if it is wrong."""
        try:
            schedule = Schedule(self.time, cron_time_zone())
            _ = schedule.interval
        except ValueError:  # a check reports it, the job runs anyway
            return None
        return schedule

    @property
    def options(self) -> dict[str, Any]:
        """What ``SHEDLOCK_CRONTAB`` says about the path, and about this call."""
        options: dict[str, Any] = {}
        for key in (self.path, self.call):
            of_key = conf.CRONTAB.value.get(key, {})
            if not isinstance(of_key, dict):
                raise InvalidLockConfiguration(
                    f"SHEDLOCK_CRONTAB[{key!r}] = {of_key!r}: it must be a dict of "
                    "options."
                )
            options |= of_key
        return options

    @property
    def schedule(self) -> Schedule | str | None:
        """The schedule whose ticks run once each: by default the entry's own."""
        return self.options.get("schedule", self.ticks)

    @cached_property
    def own_request(self) -> LockRequest | None:
        """The lock that the target brings."""
        if self.function is locked_command:
            return parse_command(*self.args, **self.kwargs)[0]
        if self.job is None:
            return None
        if self.function is management.call_command:
            return self.job.request
        return self.job.request_for(tuple(self.args), self.kwargs)

    @cached_property
    def request(self) -> LockRequest | None:
        """
        The lock under which the entry runs, if it has one.

        If the target brings none, ``SHEDLOCK_CRONTAB`` has the options. By default the
        name comes from the path and the arguments, the durations from the schedule.
        Raises ``InvalidLockConfiguration`` if the options contradict each other.
        """
        if not locks_all_entries():
            return self.own_request
        if self.own_request is not None:
            return with_schedule(self.own_request, self.schedule)
        options = {"keep_alive": True, **self.options, "schedule": None}
        if not options.pop("locked", True):
            return None
        name = options.pop("name", f"cron:{self.call}")
        request = with_schedule(make_request(name, options), self.schedule)
        interval = timedelta(days=1) if self.ticks is None else self.ticks.interval
        at_most, at_least = request.lock_at_most_for, request.lock_at_least_for
        if at_most is None:
            at_most = min(interval * 0.9, default_duration(conf.LOCK_AT_MOST_FOR))
            at_most = max(at_most, at_least or ZERO)
        # Without ticks, it must be held until all other hosts have tried to start.
        if at_least is None and request.schedule is None:
            at_least = min(interval / 2, LONGEST_AT_LEAST, at_most)
        return replace(request, lock_at_most_for=at_most, lock_at_least_for=at_least)

    def run(self, start: Start = BY_SCHEDULER) -> bool:
        """
        Run the entry, or skip it if somebody else holds its lock or has run its tick.

        A target that brings its own lock gets no other one. Return whether the target
        was executed. Raises what it raises, and ``LockProviderError`` if the store
        fails.
        """
        own = locked_command if self.function is locked_command else self.job
        if own is not None:
            with invoked_by(start, own, schedule=self.schedule) as invocation:
                self._call()
            return invocation.was_executed is True
        if self.request is None:
            self._call()
            return True
        request = registry.started_by(self.request, start)
        return run_locked(request, self.function, *self.args, **self.kwargs)

    def _call(self) -> None:
        call = partial(self.function, *self.args, **self.kwargs)
        if iscoroutinefunction(self.function):
            run_async(call)
        else:
            call()


def entries_as_jobs() -> Iterator[NamedJob]:
    """Return the entries that run under a lock; log the entries that are wrong."""
    if not locks_all_entries():
        return
    for job in getattr(settings, "CRONJOBS", []):
        try:
            entry = CrontabEntry.parse(job)
            if entry.request is not None:
                yield named_job(entry.request, entry.run)
        except Exception:  # whatever importing a target raises
            logger.warning("The entry %r of CRONJOBS is wrong.", job, exc_info=True)
