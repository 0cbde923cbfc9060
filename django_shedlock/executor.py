"""Hold a lock, or execute a task under it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar, Unpack

from asgiref.sync import iscoroutinefunction

from django_shedlock.attempts import aattempt, attempt
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import LockNotAcquired
from django_shedlock.holders import LockHolder
from django_shedlock.locks import Lock
from django_shedlock.options import LockOptions, LockRequest, make_request

T = TypeVar("T")


@dataclass(frozen=True)
class TaskResult(Generic[T]):
    """Whether a task was executed, and what it returned (``None`` if it was not)."""

    was_executed: bool
    value: T | None


@contextmanager
def hold(name: str, /, **options: Unpack[LockOptions]) -> Iterator[Lock]:
    """
    Hold the lock while the body of the ``with`` statement runs.

    Raises ``LockNotAcquired`` if somebody else holds it for longer than ``wait``,
    ``LockProviderError`` if the store fails.
    """
    with attempt(make_request(name, options)) as lock:
        yield _require(name, lock)


@asynccontextmanager
async def ahold(name: str, /, **options: Unpack[LockOptions]) -> AsyncIterator[Lock]:
    """See hold()."""
    async with aattempt(make_request(name, options)) as lock:
        yield _require(name, lock)


def execute(
    task: Callable[[], T], name: str, /, **options: Unpack[LockOptions]
) -> TaskResult[T]:
    """
    Run ``task`` under the lock, or not at all if somebody else holds it.

    Raises what ``task`` raises, and ``LockProviderError`` if the store fails.
    """
    if iscoroutinefunction(task):
        raise TypeError(
            f"Lock {name!r}: {task!r} is a coroutine function: use aexecute()."
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
        return TaskResult(was_executed=True, value=_refuse_awaitable(task(), request))


async def aexecute_request(
    task: Callable[[], Awaitable[T]], request: LockRequest
) -> TaskResult[T]:
    """See execute()."""
    async with aattempt(request) as lock:
        if isinstance(lock, LockHolder):
            return TaskResult(was_executed=False, value=None)
        return TaskResult(was_executed=True, value=await task())


def _refuse_awaitable(value: T, request: LockRequest) -> T:
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise TypeError(
        f"Lock {request.name!r}: the task returned {value!r}, which would run after "
        "the lock is released. Lock the coroutine function itself."
    )


def _require(name: str, lock: Lock | LockHolder) -> Lock:
    if isinstance(lock, Lock):
        return lock
    if lock.tick is not None:
        raise LockNotAcquired(f"Lock {name!r} is not for now: {lock.reason}.")
    raise LockNotAcquired(
        f"Lock {name!r} is held by {lock}, for {format_duration(lock.remaining)} more "
        "at the most. Give `wait` to wait for it, or use execute() to skip."
    )
