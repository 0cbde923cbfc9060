"""The decorator of jobs."""

import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload
from urllib.parse import urlsplit

from asgiref.sync import iscoroutinefunction
from django.core.management.base import BaseCommand

from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.execution.executor import (
    aexecute_request,
    execute_request,
    makes_generator,
)
from django_shedlock.locks.configuration import LockOptions, check_options
from django_shedlock.registry.jobs import (
    Job,
    OnSkip,
    decorated_job,
    is_command,
    is_migrate,
    note_executed,
    path_of,
    registered_jobs,
)
from django_shedlock.registry.names import NameTemplate, signature_of
from django_shedlock.registry.unless import only_looks, parse_unless

P = ParamSpec("P")
T = TypeVar("T")
CommandT = TypeVar("CommandT", bound=type[BaseCommand])
CoroutineOf = Coroutine[Any, Any, T]
"""What a coroutine function returns; ``T`` is what it returns when it is awaited."""

ENQUEUE_METHODS = ("enqueue", "delay", "send", "schedule", "call_local", "defer")
"""Of tasks of django.tasks and RQ, Celery, Dramatiq, Huey, djhuey, Procrastinate."""


class JobOptions(LockOptions, total=False):
    """
    The keyword options of ``scheduler_lock()``: a lock's, and a job's.

    ``description`` says what the job is for: by default the first paragraph of its
    docstring, or a command's ``help``. ``runbook`` is a link to the page that says what
    to do if it fails. ``on_skip="fail"`` makes a skip an error, unless the tick was
    run: ``LockNotAcquired``, and of a command ``CommandError`` with exit status 75.
    ``rerun=True`` lets a tick be run once more if its run was interrupted or killed.
    ``unless`` is for commands: with one of these options, each named by its ``dest``, a
    call only looks, so it runs without the lock. By default it is ``["dry_run"]``, if
    that is a flag.
    """

    description: str
    runbook: str
    on_skip: OnSkip
    rerun: bool
    unless: Sequence[str] | None


class LockDecorator(Protocol):
    """What ``scheduler_lock(...)`` returns: a skipped call returns ``None``."""

    @overload
    def __call__(self, target: CommandT, /) -> CommandT: ...

    @overload
    def __call__(
        self, target: Callable[P, CoroutineOf[T]], /
    ) -> Callable[P, CoroutineOf[T | None]]: ...

    @overload
    def __call__(self, target: Callable[P, T], /) -> Callable[P, T | None]: ...


@overload
def scheduler_lock(target: CommandT, /) -> CommandT: ...


@overload
def scheduler_lock(
    name: str | None = None, /, **options: Unpack[JobOptions]
) -> LockDecorator: ...


@overload
def scheduler_lock(
    target: Callable[P, CoroutineOf[T]], /
) -> Callable[P, CoroutineOf[T | None]]: ...


@overload
def scheduler_lock(target: Callable[P, T], /) -> Callable[P, T | None]: ...


def scheduler_lock(target: object = None, /, **options: object) -> object:
    """
    Run a job only if no other worker runs it; a skipped call returns ``None``.

    Put it on a function, a coroutine function, a method, or a ``BaseCommand`` class,
    bare or with a name and options. The name is ``module.qualname`` by default. It may
    have fields for the call's arguments, as in ``"import:{tenant}"``; write other
    braces twice. Make it the outermost decorator, except for those that register the
    job with a scheduler.

    Raises ``InvalidLockConfiguration`` at once if it can't work. For a block of code,
    use ``hold()``.
    """
    if target is None or isinstance(target, str):

        def decorate(decorated: object, /) -> object:
            return _lock(decorated, target, **options)

        return decorate
    if options:
        raise InvalidLockConfiguration(
            f"scheduler_lock({target!r}, ...): give the name, or nothing, before the "
            "options, and put the result as a decorator on the job."
        )
    return _lock(target, None)


def _lock(
    decorated: object,
    name: str | None,
    /,
    *,
    description: object = None,
    runbook: object = None,
    on_skip: object = "skip",
    rerun: object = False,
    unless: object = None,
    **options: object,
) -> object:
    target = _lockable(decorated, name)
    function = target.handle if is_command(target) else target
    path = path_of(target)
    name = path if name is None else name
    check_options(name, options, JobOptions.__annotations__)
    template = NameTemplate(name, function, path)
    job = Job(
        template.name,
        target,
        options=options,
        description=describe_job(target, description),
        runbook=check_runbook(name, runbook),
        on_skip=check_on_skip(name, on_skip),
        rerun=check_rerun(name, rerun),
        unless=_check_unless(name, unless, target),
        name_template=template if template.has_fields else None,
    )
    registered_jobs.add(job)
    locked = _locked(function, job)
    if not is_command(target):
        return locked
    command: Any = target
    command.handle = locked  # not execute(), so that Django's own checks come first
    if command.execute is not BaseCommand.execute:
        command.execute = _locked_execute(command.execute, job)
    return command


def _locked_execute(execute: Callable[..., Any], job: Job) -> Callable[..., object]:
    """Lock an ``execute()`` that may do the work itself; handle() re-enters."""
    locked = _locked(execute, job)

    @functools.wraps(execute)
    def run(self: BaseCommand, *args: object, **options: object) -> object:
        # A subclass that overrides handle() is not locked, so its execute() isn't.
        is_locked = decorated_job(type(self)) is job
        return (locked if is_locked else execute)(self, *args, **options)

    return run


def _lockable(target: object, name: str | None) -> Callable[..., object]:
    """Return what is decorated, or raise why it can't have a lock."""
    is_class = isinstance(target, type)
    if isinstance(target, staticmethod | classmethod):
        kind = type(target).__name__
        problem = f"put @scheduler_lock below @{kind}, next to the function"
    elif is_class and not is_command(target):
        problem = "this class is no BaseCommand. Decorate a method"
    elif not is_class and any(
        callable(getattr(target, way, None)) for way in ENQUEUE_METHODS
    ):
        problem = (
            "it is a task of a queue, whose worker would run it without the lock; put "
            "@scheduler_lock below the decorator that makes the task, next to the "
            "function"
        )
    elif not callable(target):
        problem = "decorate a function, a method or a management command's class"
    elif makes_generator(target.handle if is_command(target) else target):
        problem = "a generator would release its lock too early; use hold() in it"
    elif is_migrate(target):
        problem = (
            "it makes the table of locks, so it can't have a lock there. Give it an "
            "entry in SHEDLOCK_COMMANDS, which is a lock of the database itself"
        )
    elif name is None and not hasattr(target, "__qualname__"):
        problem = "it has no name of its own, so give the lock one"
    else:
        return target
    lock = "scheduler_lock" if name is None else f"Lock {name!r}"
    raise InvalidLockConfiguration(f"{lock} on {target!r}: {problem}.")


def describe_job(target: object, description: object = None) -> str:
    """
    Return the description in one line.

    By default it is the first paragraph of the target's docstring, or of a command's
    ``help``.
    """
    if description is None:
        has_own = inspect.isroutine(target) or isinstance(target, type)
        text = getattr(target, "help", "") or (target.__doc__ if has_own else "")
        description = inspect.cleandoc(str(text or "")).partition("\n\n")[0]
    return " ".join(str(description).split())


def check_runbook(name: str, runbook: object) -> str:
    """Return the link, or raise ``InvalidLockConfiguration`` naming the lock."""
    if runbook is None:
        return ""
    if isinstance(runbook, str):
        parts = urlsplit(runbook)
        if parts.scheme in {"http", "https"} and parts.netloc:
            return runbook
    raise InvalidLockConfiguration(
        f"Lock {name!r}: runbook ({runbook!r}) must be a link that begins with "
        "https:// or http://, for example https://wiki.example.com/nightly."
    )


def check_on_skip(name: str, on_skip: object) -> OnSkip:
    """Return the option, or raise ``InvalidLockConfiguration`` naming the lock."""
    if on_skip == "skip" or on_skip == "fail":
        return on_skip
    raise InvalidLockConfiguration(
        f'Lock {name!r}: on_skip ({on_skip!r}) must be "skip" or "fail".'
    )


def check_rerun(name: str, rerun: object) -> bool:
    """Return the option, or raise ``InvalidLockConfiguration`` naming the lock."""
    if isinstance(rerun, bool):
        return rerun
    raise InvalidLockConfiguration(
        f"Lock {name!r}: rerun ({rerun!r}) must be True or False."
    )


def _check_unless(
    name: str, unless: object, target: Callable[..., object]
) -> tuple[str, ...] | None:
    parsed = parse_unless(name, unless)
    if parsed is None or is_command(target):
        return parsed
    raise InvalidLockConfiguration(
        f"Lock {name!r} on {target!r}: unless ({unless!r}) is for management commands. "
        "Put the lock on the part of the function that does not only look."
    )


def _locked(function: Callable[..., Any], job: Job) -> Callable[..., object]:
    takes_options = is_command(job.target)

    # With partial() there is no frame of this package around the body.
    @functools.wraps(function)
    def run(*args: object, **kwargs: object) -> object:
        if takes_options and only_looks(job.unless, kwargs):
            note_executed(job)
            return function(*args, **kwargs)
        task = functools.partial(function, *args, **kwargs)
        request = job.request_for(args, kwargs)
        result = execute_request(task, request)
        if (holder := result.holder) is None:
            note_executed(job)
        elif takes_options or job.on_skip == "fail":
            job.answer_skip(request, holder, args, kwargs)
        return result.value

    @functools.wraps(function)
    async def arun(*args: object, **kwargs: object) -> object:
        if takes_options and only_looks(job.unless, kwargs):
            note_executed(job)
            return await function(*args, **kwargs)
        task = functools.partial(function, *args, **kwargs)
        request = job.request_for(args, kwargs)
        result = await aexecute_request(task, request)
        if (holder := result.holder) is None:
            note_executed(job)
        elif takes_options or job.on_skip == "fail":
            job.answer_skip(request, holder, args, kwargs)
        return result.value

    wrapper = arun if iscoroutinefunction(function) else run
    vars(wrapper)["shedlock_job"] = job  # see decorated_job()
    # A caller that does not follow __wrapped__ would see (*args, **kwargs): Celery
    # checks a task's arguments when it is sent. Some callables have no signature.
    with suppress(TypeError, ValueError):
        vars(wrapper)["__signature__"] = signature_of(function)
    return wrapper
