"""Hold a lock, or execute a task under it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
)
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar, Unpack

from asgiref.sync import iscoroutinefunction, sync_to_async

from django_shedlock.attempts import aattempt, attempt
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import (
    InvalidLockConfiguration,
    LockNotAcquired,
)
from django_shedlock.locks.configuration import (
    LockOptions,
    LockRequest,
    make_request,
)
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder

T = TypeVar("T")

USE_HOLD = "Lock a function that uses up the generator, or use hold() in it."
"""What to do where a generator was to be locked."""


@dataclass(frozen=True)
class TaskResult(Generic[T]):
    """Whether a task was executed, and what it returned (``None`` if it was not)."""

    was_executed: bool
    value: T | None


def hold(name: str, /, **options: Unpack[LockOptions]) -> AbstractContextManager[Lock]:
    """
    Hold the lock while the body of the ``with`` statement runs.

    Raises ``LockNotAcquired`` if another worker holds it for longer than ``wait``,
    ``LockProviderError`` if the store fails. It is no decorator: use
    ``@scheduler_lock``.
    """
    return _Hold(make_request(name, options))


def ahold(
    name: str, /, **options: Unpack[LockOptions]
) -> AbstractAsyncContextManager[Lock]:
    """See hold()."""
    return _AsyncHold(make_request(name, options))


class _NoDecorator:
    # contextlib would let it decorate a generator or a coroutine function, too, whose
    # body runs after the release.
    def __init__(self, request: LockRequest):
        self._name = request.name

    def __call__(self, target: object) -> NoReturn:
        raise InvalidLockConfiguration(
            f"Lock {self._name!r} on {target!r}: hold() and ahold() are no decorators. "
            f"Use @scheduler_lock({self._name!r}), or a `with` statement in the body."
        )


class _Hold(_NoDecorator, AbstractContextManager[Lock]):
    def __init__(self, request: LockRequest):
        super().__init__(request)
        self._attempt = attempt(request)

    def __enter__(self) -> Lock:
        lock = self._attempt.__enter__()
        if isinstance(lock, LockHolder):
            self._attempt.__exit__(None, None, None)
            raise _refusal(self._name, lock)
        return lock

    def __exit__(self, *error: Any) -> bool | None:
        return self._attempt.__exit__(*error)


class _AsyncHold(_NoDecorator, AbstractAsyncContextManager[Lock]):
    def __init__(self, request: LockRequest):
        super().__init__(request)
        self._attempt = aattempt(request)

    async def __aenter__(self) -> Lock:
        lock = await self._attempt.__aenter__()
        if isinstance(lock, LockHolder):
            await self._attempt.__aexit__(None, None, None)
            raise await sync_to_async(_refusal)(self._name, lock)
        return lock

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._attempt.__aexit__(*error)


def execute(
    task: Callable[[], T], name: str, /, **options: Unpack[LockOptions]
) -> TaskResult[T]:
    """
    Run ``task`` under the lock, or skip it if another worker holds the lock.

    Raises what ``task`` raises, and ``LockProviderError`` if the store fails.
    """
    if iscoroutinefunction(task):
        raise TypeError(
            f"Lock {name!r}: {task!r} is a coroutine function: use aexecute()."
        )
    if makes_generator(task):
        raise TypeError(
            f"Lock {name!r}: a call of {task!r} only makes a generator, which would "
            f"run after the lock is released. {USE_HOLD}"
        )
    return execute_request(task, make_request(name, options))


async def aexecute(
    task: Callable[[], Awaitable[T]], name: str, /, **options: Unpack[LockOptions]
) -> TaskResult[T]:
    """See execute(); ``task`` is a coroutine function."""
    return await aexecute_request(task, make_request(name, options))


def execute_request(task: Callable[[], T], request: LockRequest) -> TaskResult[T]:
    """See execute()."""
    with attempt(request) as lock:
        if isinstance(lock, LockHolder):
            return TaskResult(was_executed=False, value=None)
        return TaskResult(was_executed=True, value=_refuse_late(task(), request))


async def aexecute_request(
    task: Callable[[], Awaitable[T]], request: LockRequest
) -> TaskResult[T]:
    """See execute()."""
    async with aattempt(request) as lock:
        if isinstance(lock, LockHolder):
            return TaskResult(was_executed=False, value=None)
        awaitable: Any = task()
        if not inspect.isawaitable(awaitable):
            _refuse_late(awaitable, request)
        value = await awaitable
        if inspect.isasyncgen(value):
            await value.aclose()
        return TaskResult(was_executed=True, value=_refuse_late(value, request))


def makes_generator(task: object) -> bool:
    """
    Return whether a call of the task only makes a generator, whose body runs later.

    ``__wrapped__`` is not followed, since a decorator may use up the generator of the
    function below it. What such a task returns is checked when it has run.
    """
    while isinstance(task, partial):
        task = task.func
    call = getattr(type(task), "__call__", None)  # noqa: B004
    return any(
        inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        for function in (task, call)
    )


def _refuse_late(value: T, request: LockRequest) -> T:
    if inspect.isawaitable(value):
        advice = "Lock the coroutine function itself, and await all of it there."
    elif inspect.isgenerator(value) or inspect.isasyncgen(value):
        advice = USE_HOLD
    else:
        return value
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()
    raise TypeError(
        f"Lock {request.name!r}: the task returned {value!r}, which would run after "
        f"the lock is released. {advice}"
    )


def _refusal(name: str, holder: LockHolder) -> LockNotAcquired:
    if holder.tick is not None:
        return LockNotAcquired(f"Lock {name!r} is not for now: {holder.reason}.")
    left = format_duration(holder.remaining)
    return LockNotAcquired(
        f"Lock {name!r} is held by {holder}, for {left} more at the most. Give `wait` "
        "to wait for it, or use execute() to skip."
    )
