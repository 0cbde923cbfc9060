"""The entries of ``CRONJOBS``: what each of them calls, and under which lock."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.apps import apps
from django.conf import settings
from django.core import management
from django.utils.functional import cached_property
from django.utils.module_loading import import_string

from django_shedlock import conf
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.locks.configuration import (
    ZERO,
    LockOptions,
    check_options,
    default_duration,
    make_request,
)
from django_shedlock.providers import get_provider
from django_shedlock.registry.jobs import Job, call_target, decorated_job
from django_shedlock.schedules.cron import Schedule, WrittenSchedule
from django_shedlock.scrubbing import scrubbed
from django_shedlock.signals import logger

CALL_COMMAND_PATH = "django.core.management.call_command"
CRONTAB_APP = "django_shedlock.contrib.crontab"
SYSTEM_ZONE_FILE = Path("/etc/localtime")


def locks_all_entries() -> bool:
    """Return whether ``manage.py crontab`` is the command of this app."""
    names = [app.name for app in apps.get_app_configs()]
    both = {CRONTAB_APP, "django_crontab"} <= set(names)
    return both and names.index(CRONTAB_APP) < names.index("django_crontab")


def cron_time_zone() -> str:
    """
    Return the name of the time zone in which cron counts.

    It is ``SHEDLOCK_CRONTAB_TIME_ZONE``, or else the zone to which ``/etc/localtime``
    links, or else UTC. A wrong setting stops no job; a check reports it. The zone of
    this process does not help: Django has set it to the project's.
    """
    names = [conf.CRONTAB_TIME_ZONE.value]
    with suppress(OSError):
        linked = str(SYSTEM_ZONE_FILE.readlink()).partition("zoneinfo/")[2]
        # These two folders repeat all zones, without leap seconds and with them.
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
    """
    An entry of ``CRONJOBS``: when cron calls what.

    ``time`` is a cron expression, ``path`` that of the function to call with ``args``
    and ``kwargs``. ``suffix`` ends the crontab's line. ``job`` is what the entry starts
    under a lock.
    """

    forms: ClassVar[str] = (
        "(time, path), (time, path, suffix) or (time, path, [args], {kwargs}, suffix)"
    )

    time: str
    path: str
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    suffix: str | None = None

    @classmethod
    def parse(cls, line: object) -> "CrontabEntry":
        """Return an entry of ``CRONJOBS``. Raises ``ValueError`` if it is malformed."""
        match list(line) if isinstance(line, list | tuple) else []:
            case [str(time), str(path)]:
                return cls(time, path)
            case [str(time), str(path), str(suffix)]:
                return cls(time, path, suffix=suffix)
            case [str(time), str(path), list() | tuple() as args]:
                return cls(time, path, args)
            case [str(time), str(path), list() | tuple() as args, dict(kwargs)]:
                return cls(time, path, args, kwargs)
            case [
                str(time),
                str(path),
                list() | tuple() as args,
                dict(kwargs),
                str() | None as suffix,
            ]:
                return cls(time, path, args, kwargs, suffix)
        raise ValueError(f"it has to be {cls.forms}")

    def __str__(self) -> str:
        return f"The entry {self.call} ({self.time}) of CRONJOBS"

    @property
    def call(self) -> str:
        """
        The path and the arguments, as in ``reports.send("daily", to=7)``.

        A command has its own name in place of the path, as in ``send_report("daily")``.
        Raises ``TypeError`` or ``ValueError`` if JSON can't hold an argument.
        """
        if self.command_name is None:
            return self._written_call
        return _write_call(self.command_name, self.args[1:], self._command_kwargs)

    @property
    def keys(self) -> list[str]:
        """
        The keys of ``SHEDLOCK_CRONTAB`` for this entry. Each overrides those before it.

        Raises what ``call`` raises.
        """
        keys = [self.path, self.command_name, self._written_call, self.call]
        return list(dict.fromkeys(key for key in keys if key is not None))

    @property
    def command_name(self) -> str | None:
        """The name of the command that the entry calls, whether it exists or not."""
        name = self.first_argument
        is_command = self.path == CALL_COMMAND_PATH and isinstance(name, str)
        return str(name) if is_command else None

    @property
    def first_argument(self) -> object:
        """What ``call_command`` gets as the command's name, also by its keyword."""
        return self.args[0] if self.args else self.kwargs.get("command_name")

    @property
    def _command_kwargs(self) -> Mapping[str, object]:
        """The options of the command that the entry calls."""
        if self.args:
            return self.kwargs
        return {
            name: value for name, value in self.kwargs.items() if name != "command_name"
        }

    @property
    def _written_call(self) -> str:
        return _write_call(self.path, self.args, self.kwargs)

    @property
    def is_at_boot(self) -> bool:
        """Whether cron starts the entry when its host boots, and at no other time."""
        return self.time.strip(" \t") == "@reboot"

    @cached_property
    def function(self) -> Any:
        """What is at the path, if anything. Raises whatever importing it raises."""
        return import_string(self.path)

    @cached_property
    def command(self) -> management.BaseCommand | None:
        """The command whose name the entry gives to ``call_command``, if it exists."""
        name = self.first_argument
        app = management.get_commands().get(name) if isinstance(name, str) else None
        if app is None or isinstance(app, management.BaseCommand):
            return app
        return management.load_command_class(app, str(name))

    @cached_property
    def decorated(self) -> Job | None:
        """The decorated job that the entry runs, if its function or command is one."""
        if self.function is not management.call_command:
            return decorated_job(self.function)
        return None if self.command is None else decorated_job(type(self.command))

    def parse_time(self) -> Schedule:
        """Return when cron starts the entry; ``ValueError`` if cron can't read it."""
        if "|" in self.time:  # a schedule may have several expressions, but no line
            raise ValueError(f"{self.time!r} has a |: write an entry for each time")
        schedule = Schedule(self.time, cron_time_zone())
        if schedule.five_fields is None:  # cron would refuse the whole crontab
            raise ValueError(
                f"{self.time!r} is no cron expression, and cron knows no intervals: "
                "give the job its interval in @scheduler_lock instead"
            )
        return schedule

    @cached_property
    def ticks(self) -> Schedule | None:
        """When cron starts the entry; ``None`` for ``@reboot`` or a wrong time."""
        try:
            return self.parse_time()
        except ValueError:  # a check reports it, and the job runs anyway
            return None

    @cached_property
    def ticks_of_call(self) -> Schedule | None:
        """
        When cron starts the entry's call, by this entry or another of ``CRONJOBS``.

        If the expressions of all these entries are too long for one schedule, only the
        entry's own counts. ``None`` if the entry has no ticks.
        """
        if self.ticks is None:
            return None
        others = (entry for entry in crontab_entries() if entry.path == self.path)
        times = [
            entry.ticks.expression
            for entry in others
            if entry.ticks is not None and entry.call == self.call
        ]
        try:
            return Schedule([*times, self.time], self.ticks.time_zone)
        except ValueError:
            return self.ticks

    @property
    def options(self) -> dict[str, Any]:
        """
        The options in ``SHEDLOCK_CRONTAB``: of the path, and over them of the call.

        Raises ``InvalidLockConfiguration`` if they are no dict.
        """
        options: dict[str, Any] = {}
        for key in self.keys:
            of_key = conf.CRONTAB.value.get(key, {})
            if not isinstance(of_key, dict):
                raise InvalidLockConfiguration(
                    f"SHEDLOCK_CRONTAB[{key!r}] = {of_key!r}: it must be a dict of "
                    "options."
                )
            options |= of_key
        return options

    @cached_property
    def job(self) -> Job | None:
        """
        The job that the entry starts; ``None`` if it runs without a lock.

        A decorated target keeps its lock. If the app locks all entries, the other
        entries get a lock: see ``_make_job()``. Raises ``InvalidLockConfiguration`` if
        the options contradict each other.
        """
        if self.decorated is not None:
            return self._keep_lock(self.decorated)
        return self._make_job() if locks_all_entries() else None

    def _keep_lock(self, decorated: Job) -> Job:
        """Return the job of the decorated target with the entry's arguments."""
        name, target = decorated.name, self.function
        args, kwargs = self.args, self.kwargs
        if target is management.call_command:
            target, args = type(self.command), args[1:]
            kwargs = self._command_kwargs
        elif decorated.name_template is not None:
            name = decorated.name_template.fill(args, kwargs)
        options = decorated.options
        if locks_all_entries() and decorated.request.schedule is None:
            options = {**options, "schedule": self._schedule_in(decorated.provider)}
        return replace(
            decorated,
            name=name,
            target=target,
            args=args,
            kwargs=kwargs,
            options=options,
            name_template=None,
            decorated=decorated,
        )

    def _make_job(self) -> Job | None:
        """
        Return the job of a target without a lock of its own; ``None`` if not locked.

        ``SHEDLOCK_CRONTAB`` has the options. By default the name comes from the path
        and the arguments, and the durations come from the schedule.
        """
        options = {"keep_alive": True, **self.options, "schedule": None}
        if not options.pop("locked", True):
            return None
        name = options.pop("name", f"cron:{self.call}")
        check_options(name, options, (*LockOptions.__annotations__, "name", "locked"))
        request = make_request(name, options)
        schedule = self._schedule_in(request.provider)
        ticks = self.ticks_of_call
        interval = timedelta(days=1) if ticks is None else ticks.interval
        at_most, at_least = request.lock_at_most_for, request.lock_at_least_for
        minute = timedelta(minutes=1)
        if at_most is None:
            # The lease of a job that still ran at a shutdown must not skip the boot.
            is_short = self.is_at_boot and request.keep_alive
            longest = minute if is_short else interval * 0.9
            at_most = min(longest, default_duration(conf.LOCK_AT_MOST_FOR))
            at_most = max(at_most, at_least or ZERO)
        # Without ticks, the lock must be held until all other hosts have tried it.
        if at_least is None and schedule is None:
            # They try it within a minute, unless a check warns about their clocks.
            at_least = min(interval / 2, minute, at_most)
        durations = {"lock_at_most_for": at_most, "lock_at_least_for": at_least}
        options |= {**durations, "schedule": schedule}
        return Job(name, self.function, self.args, self.kwargs, options)

    def _schedule_in(self, provider: str) -> Schedule | WrittenSchedule | None:
        """Return the schedule whose ticks run once each, if the store keeps ticks."""
        schedule = self.options.get("schedule", self.ticks_of_call)
        return schedule if get_provider(provider).keeps_ticks else None

    def run(self) -> None:
        """
        Run the entry; skip it if somebody else holds its lock or has run its tick.

        Raises what the target raises, and ``LockProviderError`` if the store fails.
        """
        if self.job is None:
            call_target(self.function, self.args, self.kwargs)
        else:
            self.job.start()


def _write_call(path: str, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    named = [f"{key}={_dump(value)}" for key, value in sorted(kwargs.items())]
    arguments = ", ".join([*map(_dump, args), *named])
    return f"{path}({arguments})" if arguments else path


def _dump(argument: object) -> str:
    return json.dumps(argument, sort_keys=True)


def crontab_entries() -> Iterator[CrontabEntry]:
    """Return the entries of ``CRONJOBS`` that have a form and a call."""
    for line in _lines():
        with suppress(TypeError, ValueError):  # a check reports it
            entry = CrontabEntry.parse(line)
            _ = entry.call
            yield entry


def _lines() -> Sequence[object]:
    lines = getattr(settings, "CRONJOBS", [])
    return lines if isinstance(lines, list | tuple) else []


def crontab_jobs() -> Iterator[Job]:
    """
    Return the jobs of the entries under a lock; log each entry that is wrong.

    Entries that make the same call by the same schedule are one job.
    """
    if not locks_all_entries():
        return
    known = set()
    for line in _lines():
        try:
            entry = CrontabEntry.parse(line)
            # Its lock may contradict the settings.
            if (job := entry.job) is None or (entry.call, job.schedule) in known:
                continue
            known.add((entry.call, job.schedule))
            yield job
        except Exception:  # importing a target may raise anything
            text = "The entry %s of CRONJOBS is wrong."
            logger.warning(text, scrubbed(repr(line)), exc_info=True)
