"""The decorator of jobs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from asgiref.sync import iscoroutinefunction
from django.core.management.base import BaseCommand

from django_shedlock.calls import note
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.executor import aexecute_request, execute_request
from django_shedlock.jobs import Job
from django_shedlock.options import LockOptions, make_request

P = ParamSpec("P")
T = TypeVar("T")
CommandT = TypeVar("CommandT", bound=type[BaseCommand])

WAYS_TO_ENQUEUE = ("enqueue", "delay", "send", "schedule", "call_local")
"""Methods of tasks of queues: django.tasks and RQ, Celery, Dramatiq, Huey, djhuey."""


class LockDecorator(Protocol):
    """What ``scheduler_lock(...)`` returns: a skipped call returns ``None``."""

    @overload
    def __call__(self, target: CommandT, /) -> CommandT: ...

    @overload
    def __call__(
        self, target: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Callable[P, Coroutine[Any, Any, T | None]]: ...

    @overload
    def __call__(self, target: Callable[P, T], /) -> Callable[P, T | None]: ...


@overload
def scheduler_lock(target: CommandT, /) -> CommandT: ...


@overload
def scheduler_lock(
    name: str | None = None, /, **options: Unpack[LockOptions]
) -> LockDecorator: ...


@overload
def scheduler_lock(
    target: Callable[P, Coroutine[Any, Any, T]], /
) -> Callable[P, Coroutine[Any, Any, T | None]]: ...


@overload
def scheduler_lock(target: Callable[P, T], /) -> Callable[P, T | None]: ...


def scheduler_lock(target: Any = None, /, **options: Any) -> Any:
    """
    Let a job run only where nobody else runs it: elsewhere it returns ``None``.

    Put it on a function, a coroutine function, a method, or a ``BaseCommand`` class,
    bare or with a name and options. Without a name it is ``module.qualname``; a name
    may have fields for the call's arguments, as in ``"import:{tenant}"``; braces that
    are no field are doubled. Outermost of all decorators, but for those that register
    the job with a scheduler.

    Raises ``InvalidLockConfiguration`` at once if it can't work. For a block of code,
    use ``hold()``.
    """
    if target is None or isinstance(target, str):
        return functools.partial(_lock, name=target, options=options)
    if options:
        raise InvalidLockConfiguration(
            f"scheduler_lock({target!r}, ...): give the name, or nothing, before the "
            "options, and decorate with what that returns."
        )
    return _lock(target, name=None, options={})


def _lock(target: Any, *, name: str | None, options: dict[str, Any]) -> Any:
    if inspect.isclass(target):
        return _lock_command(target, name, options)
    _refuse_unless_function(target, name)
    path = _path(target)
    return _locked(Job(path, target, make_request(_name(name, path), options)))


def _lock_command(
    command: type[Any], name: str | None, options: dict[str, Any]
) -> type[BaseCommand]:
    path = _path(command)
    if not issubclass(command, BaseCommand):
        raise InvalidLockConfiguration(
            f"Lock {_name(name, path)!r}: of classes only management commands can have "
            f"@scheduler_lock, and {path} is no BaseCommand. Decorate a method."
        )
    # handle() and not execute(), so that Django's own checks come first.
    request = make_request(_name(name, path), options)
    command.handle = _locked(Job(path, command.handle, request, command))  # type: ignore[method-assign]
    return command


def _locked(job: Job) -> Callable[..., Any]:
    function = job.function

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        task = functools.partial(function, *args, **kwargs)
        result = execute_request(task, job.request_for(args, kwargs))
        note(job, was_executed=result.was_executed)
        return result.value

    @functools.wraps(function)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        task = functools.partial(function, *args, **kwargs)
        result = await aexecute_request(task, job.request_for(args, kwargs))
        note(job, was_executed=result.was_executed)
        return result.value

    return _with_signature(arun if iscoroutinefunction(function) else run, function)


def _with_signature(
    wrapper: Callable[..., Any], function: Callable[..., Any]
) -> Callable[..., Any]:
    # Who asks for it without following __wrapped__, as Celery does to check the
    # arguments when a task is sent, would be told (*args, **kwargs). Some callables
    # have none, and from Python 3.14 on an annotation may have no value at run time.
    with suppress(NameError, TypeError, ValueError):
        vars(wrapper)["__signature__"] = inspect.signature(function)
    return wrapper


def _path(target: Any) -> str:
    named = target if hasattr(target, "__qualname__") else type(target)
    return f"{named.__module__}.{named.__qualname__}"


def _name(name: str | None, path: str) -> str:
    return path if name is None else name


def _refuse_unless_function(target: Any, name: str | None) -> None:
    if isinstance(target, staticmethod | classmethod):
        kind = type(target).__name__
        problem = f"put @scheduler_lock below @{kind}, next to the function"
    elif any(callable(getattr(target, way, None)) for way in WAYS_TO_ENQUEUE):
        problem = (
            "it is a task of a queue, whose worker would run it without the lock; put "
            "@scheduler_lock below the decorator that makes the task, next to the "
            "function"
        )
    elif not callable(target):
        problem = "decorate a function, a method or a management command's class"
    elif inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        problem = "a generator would give its lock back too early; use hold() in it"
    elif name is None and not hasattr(target, "__qualname__"):
        problem = "it has no name of its own, so give the lock one"
    else:
        return
    lock = "scheduler_lock" if name is None else f"Lock {name!r}"
    raise InvalidLockConfiguration(f"{lock} on {target!r}: {problem}.")
