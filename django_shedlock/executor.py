"""Hold a lock, or execute a task under it: ask, wait, run, release."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar, Unpack

from asgiref.sync import iscoroutinefunction, sync_to_async

from django_shedlock import conf
from django_shedlock.active import activated, find_active_lock, held
from django_shedlock.cancellation import cancelled_when_lost
from django_shedlock.clocks import Backoff
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import (
    InvalidLockConfiguration,
    LockLost,
    LockNotAcquired,
    LockProviderError,
)
from django_shedlock.keepalive import (
    kept_alive,
    late_releases,
    release_aside,
    release_later,
    told_in_time,
)
from django_shedlock.locks.configuration import (
    LockConfiguration,
    LockOptions,
    LockRequest,
    make_request,
)
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.unlocked import UnlockedProvider
from django_shedlock.signals import lock_acquired, lock_not_acquired

T = TypeVar("T")

USE_HOLD = "Lock a function that uses up the generator, or use hold() in it."
"""What to do where a generator was to be locked."""

logger = logging.getLogger("django_shedlock")


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


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


@contextmanager
def attempt(
    request: LockRequest, *, sleep: Callable[[float], None] = _sleep
) -> Iterator[Lock | LockHolder]:
    """
    Run the body with the lock, or with its holder; release the lock after it.

    While it waits for the lock it sleeps with ``sleep``, a second at most at a time.
    """
    configuration = request.configuration()
    active = _without_store(request, configuration)
    if active is not None:
        with activated(active):
            yield active
        return
    provider = get_provider(request.provider)
    provider.check_configuration(configuration)
    backoff = Backoff(request.wait)
    lock, holder = Lock(provider, configuration), None
    is_acquired = False
    try:
        holder = provider.take(lock)
        while holder and (pause := next_pause(backoff, holder)) is not None:
            sleep(pause)
            lock, holder = Lock(provider, configuration), None
            holder = provider.take(lock)
        if holder is None:
            is_acquired = True
            with held(lock), _looked_after(lock, request):
                lock_acquired.send_robust(type(provider), lock=lock)
                _refuse_if_lost(lock)
                yield lock
            _release(lock, None)
            return
    except BaseException as error:
        if is_acquired:
            _release(lock, error)
        elif holder is None:
            _give_back(lock, error)
        raise
    lock_not_acquired.send_robust(type(provider), **_refused(lock, holder))
    yield holder


@asynccontextmanager
async def aattempt(request: LockRequest) -> AsyncIterator[Lock | LockHolder]:
    """See attempt()."""
    configuration = request.configuration()
    active = _without_store(request, configuration)
    if active is not None:
        with activated(active), told_in_time(active):
            async with cancelled_when_lost(active):
                yield active
        return
    provider = get_provider(request.provider)
    provider.check_configuration(configuration)
    backoff = Backoff(request.wait)
    lock = Lock(provider, configuration)
    holder = await _atake(provider, lock)
    while holder is not None and not backoff.is_over:
        # In a thread, since it may read the holder.
        if (pause := await sync_to_async(next_pause)(backoff, holder)) is None:
            break
        await asyncio.sleep(pause)
        lock = Lock(provider, configuration)
        holder = await _atake(provider, lock)
    if holder is not None:
        refused = _refused(lock, holder)
        await lock_not_acquired.asend_robust(type(provider), **refused)
        yield holder
        return
    try:
        with held(lock), _looked_after(lock, request, is_async=True):
            await lock_acquired.asend_robust(type(provider), lock=lock)
            _refuse_if_lost(lock)
            async with cancelled_when_lost(lock):
                yield lock
    except BaseException as error:
        await _arelease(lock, error)
        raise
    await _arelease(lock, None)


def _without_store(
    request: LockRequest, configuration: LockConfiguration
) -> Lock | None:
    if not conf.ENABLED.value:
        provider = UnlockedProvider(request.provider)
        return Lock(provider, configuration, lease_end=math.inf)
    return find_active_lock(request.provider, configuration.name)


async def _atake(provider: LockProvider, lock: Lock) -> LockHolder | None:
    # Else a cancelled caller would leave a lock behind that nobody releases.
    taking = asyncio.ensure_future(provider.atake(lock))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError as cancellation:
        await asyncio.shield(_release_if_taken(lock, taking, cancellation))
        raise
    except BaseException as error:
        _give_back(lock, error)
        raise


async def _release_if_taken(
    lock: Lock, taking: asyncio.Future[LockHolder | None], cancellation: BaseException
) -> None:
    # The cancellation is what the caller is told.
    try:
        if await taking is None:
            await _arelease(lock, cancellation)
    except LockProviderError as error:
        _give_back(lock, error)
    except asyncio.CancelledError:  # the loop ends, but perhaps the UPDATE goes on
        release = partial(lock.provider.release, lock, succeeded=False)
        release_later(lock, release, was_acquired=False)
        raise


def _give_back(lock: Lock, error: BaseException) -> None:
    """Release a lock that may be acquired, though its caller was told nothing of it."""
    release = partial(lock.provider.release, lock, succeeded=False)
    if not isinstance(error, LockProviderError):
        # A signal's handler raised, perhaps after the UPDATE.
        release_aside(lock, release, was_acquired=False)
    elif error.is_uncertain:
        release_later(lock, release, was_acquired=False)


def _refused(lock: Lock, holder: LockHolder) -> dict[str, Any]:
    return {
        "configuration": lock.configuration,
        "holder": holder,
        "provider": lock.provider,
    }


def _looked_after(
    lock: Lock, request: LockRequest, *, is_async: bool = False
) -> AbstractContextManager[None]:
    wanted = request.keep_alive
    if lock.provider.keeps_alive if wanted is None else wanted:
        return kept_alive(lock)
    return told_in_time(lock) if is_async else nullcontext()


def _refuse_if_lost(lock: Lock) -> None:
    # The store answered late, or a receiver took its time.
    if lock.is_lost:
        raise LockLost(
            f"Lock {lock.name!r}: its lease of {lock.configuration.lease} was over "
            "before its job began, so the job did not run. The store or a receiver of "
            "lock_acquired took too long."
        )


def _release(lock: Lock, error: BaseException | None) -> None:
    if not late_releases.is_done(lock):  # it was interrupted, and goes on there
        return
    try:
        lock.release(error)
    except Exception as failure:
        _report_failed_release(lock, error, failure)
    except BaseException:  # Ctrl-C, perhaps before the UPDATE
        release_aside(lock, partial(lock.release, error))
        raise


async def _arelease(lock: Lock, error: BaseException | None) -> None:
    releasing = asyncio.ensure_future(lock.arelease(error))
    try:
        await asyncio.shield(releasing)
    except Exception as failure:
        _report_failed_release(lock, error, failure)
    except asyncio.CancelledError:
        releasing.add_done_callback(partial(_report_unless_released, lock, error))
        raise


def _report_unless_released(
    lock: Lock, error: BaseException | None, releasing: asyncio.Future[bool]
) -> None:
    if releasing.cancelled():
        release_later(lock, partial(lock.release, error))
    elif isinstance(failure := releasing.exception(), Exception):
        _report_failed_release(lock, error, failure)


def _report_failed_release(
    lock: Lock, error: BaseException | None, failure: Exception
) -> None:
    logger.error(
        "Lock %r could not be released, and is tried again until its lease ends: %s",
        lock.name,
        failure,
    )
    if error is not None:
        error.add_note(f"Then lock {lock.name!r} could not be released: {failure}")
    release_later(lock, partial(lock.release, error))


def next_pause(backoff: Backoff, holder: LockHolder) -> float | None:
    """Return the seconds until the next try; ``None`` if waiting is useless."""
    # The wait first, since the holder may have to be read.
    if backoff.is_over or holder.tick is not None:
        return None
    lease = holder.remaining.total_seconds()
    return backoff.pause(lease if lease > 0 else math.inf)
