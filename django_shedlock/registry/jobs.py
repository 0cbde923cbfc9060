"""
Jobs: everything that can be started by name, under a lock.

The decorator and ``SHEDLOCK_COMMANDS`` make jobs, and so do apps whose configs have
``shedlock_jobs()``, as that of django-crontab's entries.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Literal, TypeGuard
from weakref import WeakSet

from asgiref.sync import iscoroutinefunction
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_shedlock.exceptions import InvalidLockConfiguration, LockNotAcquired
from django_shedlock.execution.cancellation import run_async
from django_shedlock.execution.executor import (
    SKIPPED_EXIT_STATUS,
    TaskResult,
    aexecute_request,
    execute_request,
)
from django_shedlock.execution.skips import operator_command, refusal, show_skip
from django_shedlock.locks.configuration import (
    ZERO,
    LockRequest,
    full_name,
    make_request,
)
from django_shedlock.locks.status import LockHolder
from django_shedlock.registry.names import NameTemplate, signature_of
from django_shedlock.registry.unless import only_looks
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import BY_SCHEDULER, Start

OnSkip = Literal["skip", "fail"]
"""What a skip of a job is to its caller: a result, or an error."""


@dataclass(eq=False)
class Job:
    """
    Something that can be started by name, under its lock.

    ``name`` is the name of the lock. ``target`` is a callable or the class of a
    management command, which ``start()`` gives ``args`` and ``kwargs``. ``options``
    are those of the lock, as ``hold()`` has them. ``description`` says what the job is
    for, and ``runbook`` is a link to the page that says what to do if it fails.
    ``on_skip`` says what a caller gets that is skipped, and ``unless`` with which
    options a call of the command only looks, so that it needs no lock. ``rerun`` says
    whether a tick is run once more if its run was interrupted or killed.
    ``time_limit`` is how long a run may take before it is ended; ``None`` has no limit.

    If the name of a decorated job's lock depends on the arguments of a call, ``name``
    is the text with the fields, and ``name_template`` fills them. Nobody can start such
    a job by name. ``decorated`` is the job whose decorated function is the target of
    this one: the function brings its lock, and gets no other one.

    Raises ``InvalidLockConfiguration`` if no lock can have the options.
    """

    name: str
    target: Callable[..., Any]
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    description: str = ""
    runbook: str = ""
    on_skip: OnSkip = "skip"
    rerun: bool = False
    time_limit: timedelta | None = None
    unless: Sequence[str] | None = None
    name_template: NameTemplate | None = None
    decorated: "Job | None" = None

    def __post_init__(self) -> None:
        self.request: LockRequest = make_request(self.name, self.options)
        if self.rerun:
            start = replace(BY_SCHEDULER, rerun=True)
            self.request = replace(self.request, start=start)

    @property
    def full_name(self) -> str:
        """The name of the lock as it stands in the store, with the namespace."""
        return full_name(self.name)

    @property
    def provider(self) -> str:
        """The alias of the provider that keeps the lock."""
        return self.request.provider

    @property
    def schedule(self) -> Schedule | None:
        """
        The schedule whose ticks run once each, with its time zone.

        Raises ``InvalidLockConfiguration`` if the settings make no lock of the options.
        """
        return self.request.configuration().schedule

    @property
    def path(self) -> str:
        """The name of the target in messages: module and qualified name."""
        return path_of(self.target)

    @cached_property
    def needs_arguments(self) -> bool:
        """Whether ``start()`` can't work, because the target needs arguments."""
        if self.args or self.kwargs:  # a check says whether they are the right ones
            return False
        try:
            if is_command(self.target):
                parser_of(self.target).parse_args([])
            else:
                signature_of(self.target).bind()
        except CommandError:
            return True
        except Exception:
            # Some functions have no signature. A command raises this again when it is
            # started; the other jobs must be known.
            return not is_command(self.target)
        return False

    @cached_property
    def only_looks(self) -> bool:
        """Whether the arguments make this a call that only looks: it is no run."""
        arguments = [str(each) for each in self.args]
        if not is_command(self.target) or not (arguments or self.kwargs):
            return False
        options: dict[str, object] = {}
        with suppress(Exception, SystemExit):  # a start raises it again
            parsed, _ = parser_of(self.target).parse_known_args(arguments)
            options = vars(parsed)
        return only_looks(self.unless, {**options, **self.kwargs})

    def start(self, start: Start = BY_SCHEDULER) -> bool:
        """
        Run the job here and now, under its lock; return whether it was executed.

        It was not if somebody else holds the lock, or has run the tick, whatever
        ``on_skip`` says. A call that only looks needs no lock. Raises what the target
        raises, and ``LockProviderError`` if the store fails.
        """
        start = replace(start, rerun=start.rerun or self.rerun)
        decorated = self.decorated
        if is_command(self.target) and decorated_job(self.target) is self:
            decorated = self  # its handle() brings the lock
        if decorated is not None:
            with starting(start, decorated, self.request.schedule) as context:
                call_target(self.target, self.args, self.kwargs)
            return context.was_executed
        request = with_start(self.request, start)
        request = replace(request, is_for_process=True)

        async def execute_coroutine() -> TaskResult[object]:
            return await aexecute_request(self._arun, request)

        if iscoroutinefunction(self.target):
            # In one loop with its lock, so that a loss cancels the coroutine.
            return run_async(execute_coroutine).was_executed
        return execute_request(self._run, request).was_executed

    def _run(self) -> object:
        return call_target(self.target, self.args, self.kwargs)

    async def _arun(self) -> object:
        return await self.target(*self.args, **self.kwargs)

    def request_for(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> LockRequest:
        """
        Return the request for a call of the decorated target with these arguments.

        Raises ``InvalidLockConfiguration`` if no lock can have the name they make.
        """
        request = self.request
        if self.name_template is not None:
            name = self.name_template.fill(args, kwargs)
            request = replace(request, name=name)
        if args and is_own_command(args[0]) and is_command(self.target):
            request = replace(request, is_for_process=True)
        context = start_context.get()
        return request if context is None else context.apply(self, request)

    def answer_skip(
        self,
        request: LockRequest,
        holder: LockHolder,
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> None:
        """
        Raise if a skip is an error, or tell a person who waits for the command.

        ``args`` and ``kwargs`` are those of the call of the target. What starts the job
        by name gets the answer of ``start()`` instead.
        """
        context = start_context.get()
        if context is not None and context.job is self:
            return
        name = full_name(request.name)
        if self.on_skip == "fail" and holder.tick is None:  # else the work is done
            advice = "Its job did not run. Try again later, or give it `wait`."
            text = refusal(name, holder, advice)
            if is_command(self.target):
                raise CommandError(text, returncode=SKIPPED_EXIT_STATUS)
            raise LockNotAcquired(text)
        if args and is_own_command(args[0]) and is_command(self.target):
            command: Any = args[0]
            alias, run_now = request.provider, ""
            if self.name_template is None:
                run_now = f"`{operator_command(alias, 'trigger', name)}`"
            verbosity = kwargs.get("verbosity")
            show_skip(
                command.stderr, verbosity, name, holder, alias=alias, run_now=run_now
            )


registered_jobs: WeakSet[Job] = WeakSet()
"""The decorated jobs whose functions or commands still exist."""


def jobs_with_fixed_names() -> Iterator[Job]:
    """
    Return the decorated jobs of this process whose locks have a fixed name.

    They are those whose modules are imported already, sorted by their paths. A job
    with options that make no lock is left out, because a system check reports it.
    """
    for job in sorted(_registered_by_now(), key=attrgetter("path")):
        if job.name_template is not None:
            continue
        try:
            job.request.configuration()
        except InvalidLockConfiguration:
            continue
        yield job


def _registered_by_now() -> list[Job]:
    while True:
        # A thread of a web server may import a module with jobs meanwhile.
        with suppress(RuntimeError):
            return list(registered_jobs)


def registered_by_name(provider: str) -> dict[str, Job]:
    """
    Return the decorated jobs of this process, by the full names of their locks.

    They are those whose locks the provider with this alias keeps. Nothing is imported
    to find them, so a web process may ask. Whatever starts, checks or prunes jobs needs
    all of them: see ``named_jobs()``.
    """
    jobs = jobs_with_fixed_names()
    return {job.full_name: job for job in jobs if job.provider == provider}


def decorated_job(target: object) -> Job | None:
    """Return the job of a decorated target, also below other decorators."""
    function = target.handle if is_command(target) else target
    while function is not None:
        # functools.wraps() copies it, but a Celery task only has __wrapped__.
        job = getattr(function, "shedlock_job", None)
        if isinstance(job, Job):
            return job
        below = "func" if isinstance(function, partial) else "__wrapped__"
        function = getattr(function, below, None)
    return None


def is_command(target: object) -> TypeGuard[type[BaseCommand]]:
    """Return whether the target is the class of a management command."""
    return isinstance(target, type) and issubclass(target, BaseCommand)


def is_migrate(target: object) -> bool:
    """Return whether the target is Django's ``migrate``, or a subclass of it."""
    # Who has not imported Django's command has no subclass of it.
    module = sys.modules.get("django.core.management.commands.migrate")
    return (
        module is not None and is_command(target) and issubclass(target, module.Command)
    )


def is_own_command(command: object) -> bool:
    """Return whether this process was started for the command, as by ``manage.py``."""
    return getattr(command, "_called_from_command_line", False) is True


def parser_of(command: type[BaseCommand]) -> CommandParser:
    """Return the parser of the command's arguments; raises what making it raises."""
    return command().create_parser("", command.__module__)


def path_of(target: object) -> str:
    """Return the module and the qualified name of the target, or those of its class."""
    named = target if hasattr(target, "__qualname__") else type(target)
    return f"{named.__module__}.{named.__qualname__}"


def call_target(
    target: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """Run a command, or call a function, to its end; return what it returns."""

    async def call_coroutine_function() -> object:
        return await target(*args, **kwargs)

    if is_command(target):
        return call_command(target(), *args, **kwargs)
    if iscoroutinefunction(target):
        return run_async(call_coroutine_function)
    return target(*args, **kwargs)


@dataclass
class StartContext:
    """
    What starts the decorated jobs that are called in this context.

    It is for one job, or for all of them if ``job`` is ``None``. ``schedule`` is for a
    job that has none of its own. The job notes whether it ``was_executed``.
    """

    start: Start
    job: Job | None = None
    schedule: Schedule | None = None
    was_executed: bool = False

    def apply(self, job: Job, request: LockRequest) -> LockRequest:
        """Return the job's request, started by this if it is for that job."""
        if self.job not in (None, job):
            return request
        if request.schedule is None:
            request = replace(request, schedule=self.schedule)
        if self.job is job:
            request = replace(request, is_for_process=True)
        start = self.start
        if self.job is not job or self.was_executed:
            start = replace(start, acquisition="")  # one identity is one acquisition
        return with_start(request, start)


start_context: ContextVar[StartContext | None] = ContextVar(
    "django_shedlock_start", default=None
)


def note_executed(job: Job) -> None:
    """Keep that the job was executed, for what starts this job alone."""
    context = start_context.get()
    if context is not None and context.job is job:
        context.was_executed = True


@contextmanager
def starting(
    start: Start, job: Job | None = None, schedule: Schedule | None = None
) -> Iterator[StartContext]:
    """Let this start the job, or all of them, if the body calls it: see its class."""
    context = StartContext(start, job, schedule)
    token = start_context.set(context)
    try:
        yield context
    finally:
        start_context.reset(token)


def with_start(request: LockRequest, start: Start) -> LockRequest:
    """
    Return the request for this start; one for an operator's request never waits.

    ``rerun`` is an option of the job, so it stays whoever starts the job.
    """
    # The operator's request waits on the record, and another host may carry it out.
    wait = request.wait if start.request is None else ZERO
    start = replace(start, rerun=start.rerun or request.start.rerun)
    return replace(request, start=start, wait=wait)
