"""The entries of ``SHEDLOCK_SCHEDULE``: what starts, when, and under which lock."""

import importlib
import inspect
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, ClassVar

from django.core import management
from django.core.management.base import BaseCommand
from django.utils.functional import cached_property

from django_shedlock import conf
from django_shedlock.exceptions import InvalidLockConfiguration, described
from django_shedlock.execution.executor import makes_generator
from django_shedlock.locks.configuration import (
    ZERO,
    LockOptions,
    check_name,
    check_options,
    make_schedule,
    parse_option,
)
from django_shedlock.providers import get_provider
from django_shedlock.registry.decorators import (
    check_on_skip,
    check_rerun,
    check_runbook,
    describe_job,
)
from django_shedlock.registry.jobs import Job, decorated_job, is_command
from django_shedlock.registry.names import signature_of
from django_shedlock.schedules.cron import Schedule
from django_shedlock.signals import logger

TASK_MODULES = ("django.tasks.base", "django_tasks.base")
"""Where the class of tasks is: in Django from version 6 on, and in django-tasks."""

_reported: set[tuple[object, str]] = set()
"""The wrong entries that were logged, and why: each is logged once in a process."""


class WrongEntry(ValueError):
    """An entry that can't run, apart from its lock."""


@dataclass(frozen=True)
class ScheduleEntry(ABC):
    """
    An entry of ``SHEDLOCK_SCHEDULE``.

    ``name`` is its key, and the name of its lock. ``path`` says what it starts, with
    ``args`` and ``kwargs``. ``options`` are all other options.
    """

    option: ClassVar[str]
    """The option that has the ``path``."""

    name: str
    path: str
    args: Sequence[object]
    kwargs: Mapping[str, object]
    options: Mapping[str, object]

    def __str__(self) -> str:
        return f"SHEDLOCK_SCHEDULE[{self.name!r}]"

    @cached_property
    @abstractmethod
    def target(self) -> Any:
        """
        What the job calls.

        Raises whatever importing it raises, and ``WrongEntry`` if it can't be started.
        """

    @property
    def described_target(self) -> object:
        """What has the text that describes the job."""
        return self.target

    @property
    def lock_of_target(self) -> Job | None:
        """The decorated job that runs inside this one, if its target is one."""
        return decorated_job(self.target)

    @property
    def inner_name(self) -> str | None:
        """
        The name of the lock that the target has by itself; ``None`` if not known.

        Raises ``InvalidLockConfiguration`` if the arguments make no name.
        """
        inner = self.lock_of_target
        if inner is None or inner.name_template is None:
            return None if inner is None else inner.name
        return inner.name_template.fill(self.args, self.kwargs)

    @abstractmethod
    def check_arguments(self) -> None:
        """Raise an error unless the target takes the arguments."""

    def make_job(self) -> Job:
        """
        Return the job of this entry.

        Raises ``InvalidLockConfiguration`` if its lock can't work, ``WrongEntry`` if it
        can't run, and whatever importing its target raises.
        """
        name, options = self.name, self.options
        lock = {
            key: options[key] for key in options if key in LockOptions.__annotations__
        }
        job = Job(
            name,
            self.target,
            self.args,
            self.kwargs,
            {**lock, "schedule": self._make_schedule()},
            description=describe_job(self.described_target, options.get("description")),
            runbook=check_runbook(name, options.get("runbook")),
            on_skip=check_on_skip(name, options.get("on_skip", "skip")),
            rerun=check_rerun(name, options.get("rerun", False)),
            time_limit=self._parse_time_limit(),
        )
        self.check_arguments()
        if job.needs_arguments:
            problem = f"{self.path} has no signature, so its arguments are not known"
            raise WrongEntry(problem)
        if job.only_looks:
            problem = "with these arguments it only looks, which is no run"
            raise WrongEntry(problem)
        configuration = job.request.configuration()
        get_provider(job.provider).check_configuration(configuration)
        return job

    def _make_schedule(self) -> Schedule | None:
        schedule: Any = self.options["schedule"]
        time_zone: Any = self.options.get("time_zone")
        if isinstance(schedule, Schedule) and time_zone is not None:
            raise InvalidLockConfiguration(
                f"Lock {self.name!r}: its schedule is a Schedule. So give that the "
                "time zone, and remove time_zone."
            )
        return make_schedule(self.name, schedule, time_zone)

    def _parse_time_limit(self) -> timedelta | None:
        given: Any = self.options.get("time_limit")
        if given is None:
            return None
        time_limit = parse_option(self.name, "time_limit", given)
        if time_limit <= ZERO:
            raise InvalidLockConfiguration(
                f"Lock {self.name!r}: time_limit ({given!r}) must be positive."
            )
        return time_limit


class CallEntry(ScheduleEntry):
    """An entry that calls a function, or a method, at a dotted path."""

    option = "call"

    @cached_property
    def target(self) -> Any:
        target = import_path(self.path)
        if is_task(target):
            problem = f'{self.path} is a task: write "task" in place of "call"'
        elif is_command(target):
            problem = f'{self.path} is a command: write its name as "command"'
        elif not callable(target):
            problem = f"{self.path} is no function"
        elif makes_generator(target):
            problem = f"{self.path} is a generator, whose body a call does not run"
        else:
            return target
        raise WrongEntry(problem)

    @property
    def described_target(self) -> object:
        # The docstring of a method such as delay() says nothing about the job.
        return None if inspect.ismethod(self.target) else self.target

    def check_arguments(self) -> None:
        bind_arguments(self.target, self.args, self.kwargs)
        _ = self.inner_name


class CommandEntry(ScheduleEntry):
    """
    An entry that calls a management command by its name.

    ``args`` are its command line, and ``kwargs`` its options as ``call_command()`` has
    them.
    """

    option = "command"

    @cached_property
    def target(self) -> Any:
        commands = management.get_commands()
        app = commands.get(self.path)
        if app is None:
            nearest = get_close_matches(self.path, commands, n=1)
            meant = f". Did you mean {nearest[0]!r}?" if nearest else ""
            problem = f"there is no command {self.path!r}{meant}"
            raise WrongEntry(problem)
        command: object = app
        if not isinstance(app, BaseCommand):
            # The function of this module gives it the lock of SHEDLOCK_COMMANDS.
            command = management.load_command_class(app, self.path)
        if not isinstance(command, BaseCommand):
            problem = f"the command {self.path!r} is no BaseCommand"
            raise WrongEntry(problem)
        return type(command)

    @property
    def inner_name(self) -> str | None:
        inner = self.lock_of_target
        # The fields of a template are filled when the command line is parsed.
        return None if inner is None or inner.name_template else inner.name

    def check_arguments(self) -> None:
        command = self.target()
        command.execute = _execute_nothing
        management.call_command(command, *self.args, **self.kwargs)


class TaskEntry(ScheduleEntry):
    """
    An entry that enqueues a task of django.tasks, or of its backport django-tasks.

    The run of the job ends when the task is enqueued. A worker runs the task later, so
    a lock that its function has is not held within this one.
    """

    option = "task"

    @cached_property
    def task(self) -> Any:
        """The task at the path. Raises as ``target`` does."""
        task = import_path(self.path)
        if is_task(task):
            return task
        if callable(getattr(task, "delay", None)):
            problem = (
                f"{self.path} is no task of django.tasks. If it is one of Celery, "
            )
            problem += f'write "call": "{self.path}.delay"'
        else:
            problem = f"{self.path} is no task of django.tasks"
        raise WrongEntry(problem)

    @property
    def target(self) -> Any:
        return self.task.enqueue

    @property
    def described_target(self) -> object:
        return self.task.func

    @property
    def lock_of_target(self) -> Job | None:
        return None

    def check_arguments(self) -> None:
        context = [None] if self.task.takes_context else []
        bind_arguments(self.task.func, [*context, *self.args], self.kwargs)
        json.dumps([self.args, self.kwargs])


ENTRY_CLASSES: Sequence[type[ScheduleEntry]] = (CallEntry, CommandEntry, TaskEntry)
ENTRY_OPTIONS = (
    *(each.option for each in ENTRY_CLASSES),
    *("args", "kwargs", "time_zone", *LockOptions.__annotations__),
    *("description", "runbook", "on_skip", "rerun", "time_limit"),
)
"""The options of an entry."""


def parse_entry(name: object, given: object) -> ScheduleEntry:
    """
    Return the entry that the setting gives by this key.

    Raises ``WrongEntry`` if it is malformed, and ``InvalidLockConfiguration`` if it has
    an unknown option, or if its key is no name of a lock.
    """
    check_name(name)
    if not isinstance(given, dict):
        problem = (
            'it must be a dict, as {"call": "shop.jobs.tidy", "schedule": "@daily"}'
        )
        raise WrongEntry(problem)
    check_options(str(name), given, ENTRY_OPTIONS)
    options = dict(given)
    kinds = [each for each in ENTRY_CLASSES if each.option in options]
    args, kwargs = options.pop("args", ()), options.pop("kwargs", {})
    if len(kinds) != 1:
        problem = 'it must have one of "call", "command" and "task"'
    elif not isinstance(path := options.pop(kinds[0].option), str):
        problem = f'"{kinds[0].option}" ({path!r}) must be a text'
    elif options.get("schedule") is None:
        problem = 'it has no "schedule"'
    elif not isinstance(args, list | tuple):
        problem = f'"args" ({args!r}) must be a list'
    elif not isinstance(kwargs, dict) or not all(
        isinstance(key, str) for key in kwargs
    ):
        problem = f'"kwargs" ({kwargs!r}) must be a dict of names'
    else:
        return kinds[0](str(name), path, args, kwargs, options)
    raise WrongEntry(problem)


def import_path(path: str) -> Any:
    """
    Return what is at the dotted path: in a module, or in a class or an object of one.

    Raises ``ImportError`` if there is nothing, and whatever importing a module raises.
    """
    first, *names = path.split(".")
    target: Any = importlib.import_module(first) if first else None
    for name in names:
        if inspect.ismodule(target) and not hasattr(target, name):
            module = f"{target.__name__}.{name}"
            try:
                target = importlib.import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
                text = f"{target.__name__} has no {name!r}"
                raise ImportError(text) from error
            continue
        try:
            target = getattr(target, name)
        except AttributeError as error:
            raise ImportError(f"{path!r}: there is no {name!r}") from error
    return target


def is_task(target: object) -> bool:
    """Return whether the target is a task of django.tasks or django-tasks."""
    # Who has a task has imported the module of its class.
    modules = (sys.modules.get(name) for name in TASK_MODULES)
    kinds = [module.Task for module in modules if module is not None]
    return isinstance(target, tuple(kinds))


def bind_arguments(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> None:
    """Raise ``TypeError`` unless the function takes the arguments."""
    try:
        signature = signature_of(function)
    except ValueError:  # some callables have none
        return
    signature.bind(*args, **kwargs)


def _execute_nothing(*args: object, **options: object) -> None:
    """Be the ``execute()`` of a command whose arguments are only parsed."""


def schedule_jobs() -> Iterator[Job]:
    """Return the jobs of the entries; log each entry that is wrong."""
    for name, given in conf.SCHEDULE.value.items():
        try:
            job = parse_entry(name, given).make_job()
        except (Exception, SystemExit) as error:  # whatever its module raises
            _report(name, described(error))
        else:
            yield job


def _report(name: object, problem: str) -> None:
    if (name, problem) not in _reported:
        _reported.add((name, problem))
        log = "SHEDLOCK_SCHEDULE[%r] can't run, so it is left out: %s"
        logger.warning(log, name, problem)
