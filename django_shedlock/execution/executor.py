"""Hold a lock, or execute a task under it."""

import asyncio
import inspect
import math
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any, Generic, NoReturn, TypeVar, Unpack

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.core.management.base import CommandError

from django_shedlock import conf
from django_shedlock.background import outside_event_loop
from django_shedlock.clocks import Backoff, uptime
from django_shedlock.exceptions import (
    InvalidLockConfiguration,
    LockLost,
    LockNotAcquired,
    LockProviderError,
    message_of,
)
from django_shedlock.execution.active import Body, activated
from django_shedlock.execution.cancellation import cancelled_when_lost
from django_shedlock.execution.keep_alive import (
    guard,
    late_releases,
    release_later,
    unguard,
)
from django_shedlock.execution.shutdown import exit_timeout_seconds
from django_shedlock.execution.skips import (
    calling_command,
    refusal,
    refusal_of_child,
)
from django_shedlock.locks.configuration import LockOptions, LockRequest, make_request
from django_shedlock.locks.inherited import passed_to_children
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers import get_provider
from django_shedlock.signals import (
    around_body,
    lock_acquired,
    lock_not_acquired,
    logger,
    surrounded,
)

T = TypeVar("T")

DEFERRED_BODY_FLAGS = (
    inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
)
GENERATOR_ADVICE = "Lock a function that uses up the generator, or use hold() in it."
UNSURROUNDED = nullcontext()
"""What is around a body without integrations: it costs no call of this package."""
INTERRUPTED_RELEASE_SECONDS = 1.0
"""How long an interrupted caller waits for the release of its lock."""
SKIPPED_EXIT_STATUS = 75
"""The exit status of a command whose skip is an error: ``EX_TEMPFAIL``."""


@dataclass(frozen=True)
class TaskResult(Generic[T]):
    """
    Whether a task was executed, and what it returned (``None`` if it was not).

    ``holder`` says who had the lock of a task that was skipped.
    """

    was_executed: bool
    value: T | None
    holder: LockHolder | None = field(default=None, repr=False, compare=False)


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
    return _Hold(make_request(name, options))


class _Hold(AbstractContextManager[Lock], AbstractAsyncContextManager[Lock]):
    # Made by contextlib it would also decorate generators and coroutine functions, and
    # their bodies would run after the release.
    def __init__(self, request: LockRequest):
        self._name = request.name
        self._attempt = attempt(request)
        self._aattempt = aattempt(request)

    def __call__(self, target: object) -> NoReturn:
        raise InvalidLockConfiguration(
            f"Lock {self._name!r} on {target!r}: hold() and ahold() are no decorators. "
            f"Use @scheduler_lock({self._name!r}), or a `with` statement in the body."
        )

    def __enter__(self) -> Lock:
        lock = self._attempt.__enter__()
        if isinstance(lock, LockHolder):
            self._attempt.__exit__(None, None, None)
            raise _refusal(self._name, lock)
        return lock

    def __exit__(self, *error: Any) -> bool | None:
        return self._attempt.__exit__(*error)

    async def __aenter__(self) -> Lock:
        lock = await self._aattempt.__aenter__()
        if isinstance(lock, LockHolder):
            await self._aattempt.__aexit__(None, None, None)
            raise _refusal(self._name, lock)
        return lock

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._aattempt.__aexit__(*error)


def _refusal(name: str, holder: LockHolder) -> LockNotAcquired:
    if holder.tick is not None:
        return LockNotAcquired(f"Lock {name!r} is not for now: {holder.reason}.")
    if holder.is_inherited:
        return LockNotAcquired(refusal_of_child(name, holder))
    advice = "Give `wait` to wait for it, or use execute() to skip."
    return LockNotAcquired(refusal(name, holder, advice))


def execute(
    task: Callable[[], T], name: str, /, **options: Unpack[LockOptions]
) -> TaskResult[T]:
    """
    Run ``task`` under the lock, or skip it if another worker holds the lock.

    Raises what ``task`` raises, and ``LockProviderError`` if the store fails.
    """
    # The most usual task gets the quickest look.
    is_plain = type(task) is FunctionType and not (
        task.__code__.co_flags & DEFERRED_BODY_FLAGS
    )
    if not is_plain or vars(task):
        if iscoroutinefunction(task):
            raise TypeError(
                f"Lock {name!r}: {task!r} is a coroutine function: use aexecute()."
            )
        if makes_generator(task):
            raise TypeError(
                f"Lock {name!r}: a call of {task!r} only makes a generator, which "
                f"would run after the lock is released. {GENERATOR_ADVICE}"
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
            return TaskResult(was_executed=False, value=None, holder=lock)
        return TaskResult(was_executed=True, value=_refuse_late(task(), request))


async def aexecute_request(
    task: Callable[[], Awaitable[T]], request: LockRequest
) -> TaskResult[T]:
    """See execute()."""
    async with aattempt(request) as lock:
        if isinstance(lock, LockHolder):
            return TaskResult(was_executed=False, value=None, holder=lock)
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
        advice = GENERATOR_ADVICE
    else:
        return value
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()
    raise TypeError(
        f"Lock {request.name!r}: the task returned {value!r}, which would run after "
        f"the lock is released. {advice}"
    )


@contextmanager
def attempt(
    request: LockRequest, *, sleep: Callable[[float], None] | None = None
) -> Iterator[Lock | LockHolder]:
    """
    Run the body with the lock, or with its holder; release the lock after it.

    While it waits for the lock it calls ``sleep``, for a second at most at a time.
    """
    if not conf.ENABLED.value:
        with activated(free := make_unstored_lock(request)):
            yield free
        return
    configuration = request.configuration()
    body, holder = Body(), None
    lock: Lock | None = None
    try:
        lock = body.reenter(request.provider, configuration.name)
        if lock is None:
            provider = get_provider(request.provider)
            provider.check_configuration(configuration)
            backoff = Backoff(request.wait) if request.wait else None
            while True:
                lock = Lock(provider, configuration)
                holder = None
                if (holder := provider.acquire(lock)) is None or backoff is None:
                    break
                if request.is_for_process and holder.is_inherited:
                    break
                if (pause := next_pause(backoff, holder)) is None:
                    break
                (sleep or time.sleep)(pause)
        if holder is None:
            if body.lock is None and lock.is_lost:
                # The acquisition waited for the row for longer than its lease, which
                # begins after such a wait.
                lock.refresh()
            with (
                activated(lock),
                (
                    passed_to_children(lock.locked_by)
                    if request.is_for_process
                    else UNSURROUNDED
                ),
            ):
                if body.lock is None:
                    lock.never_began = True
                    body.enter(lock)
                    guard(lock, request.keep_alive)
                    lock_acquired.send_robust(type(lock.provider), lock=lock)
                    _begin(lock)
                with surrounded(lock) if around_body else UNSURROUNDED:
                    yield lock
            _leave(body, None)
            return
    except BaseException as error:
        if body.lock is not None:
            try:
                _leave(body, error)
            except BaseException:  # a second interrupt, perhaps before it had left
                _leave(body, error)
                raise
        elif lock is not None and holder is None:
            _release_if_acquired(lock, error)
        raise
    lock_not_acquired.send_robust(
        type(provider),
        configuration=configuration,
        holder=holder,
        provider=provider,
        caller=None if request.is_for_process else calling_command(),
    )
    if request.is_for_process:
        _refuse_child(request, holder)
    yield holder


@asynccontextmanager
async def aattempt(request: LockRequest) -> AsyncIterator[Lock | LockHolder]:
    """See attempt()."""
    if not conf.ENABLED.value:
        with activated(free := make_unstored_lock(request)):
            yield free
        return
    configuration = request.configuration()
    body, holder = Body(), None
    body.loop = asyncio.get_running_loop()
    try:
        lock = body.reenter(request.provider, configuration.name)
        if lock is None:
            provider = get_provider(request.provider)
            provider.check_configuration(configuration)
            backoff = Backoff(request.wait)
            while True:
                lock = Lock(provider, configuration)
                if (holder := await _aacquire(lock)) is None or backoff.is_over:
                    break
                if request.is_for_process and holder.is_inherited:
                    break
                if (pause := next_pause(backoff, holder)) is None:
                    break
                await asyncio.sleep(pause)
        if holder is None:
            with (
                activated(lock),
                (
                    passed_to_children(lock.locked_by)
                    if request.is_for_process
                    else UNSURROUNDED
                ),
            ):
                if body.lock is None:
                    lock.never_began = True
                    body.enter(lock)
                    guard(lock, request.keep_alive, is_async=True)
                    await lock_acquired.asend_robust(type(lock.provider), lock=lock)
                    _begin(lock)
                else:
                    guard(lock, is_async=True)
                with surrounded(lock) if around_body else UNSURROUNDED:
                    async with cancelled_when_lost(lock):
                        yield lock
    except BaseException as error:
        await _aleave(body, error)
        raise
    if holder is None:
        await _aleave(body, None)
        return
    await lock_not_acquired.asend_robust(
        type(provider),
        configuration=configuration,
        holder=holder,
        provider=provider,
        caller=None if request.is_for_process else calling_command(),
    )
    if request.is_for_process:
        _refuse_child(request, holder)
    yield holder


def _refuse_child(request: LockRequest, holder: LockHolder) -> None:
    if holder.is_inherited:
        raise CommandError(
            refusal_of_child(request.configuration().name, holder),
            returncode=SKIPPED_EXIT_STATUS,
        )


def make_unstored_lock(request: LockRequest) -> Lock:
    """Return a lock that is in no store, and is never lost."""
    # Only a project that turns locks off needs this provider.
    from django_shedlock.providers.unlocked import UnlockedProvider

    provider = UnlockedProvider(request.provider)
    return Lock(provider, request.configuration(), lease_end=math.inf)


def next_pause(backoff: Backoff, holder: LockHolder) -> float | None:
    """Return the seconds until the next try; ``None`` if waiting is useless."""
    if backoff.is_over or holder.tick is not None:
        return None
    lease = holder.remaining.total_seconds()
    return backoff.pause(lease if lease > 0 else math.inf)


def _acquire(lock: Lock) -> LockHolder | None:
    lock.is_being_acquired = True
    try:
        holder = lock.provider.acquire(lock)
        if holder is None and lock.is_lost:
            lock.refresh()  # see attempt()
    finally:
        lock.is_being_acquired = False
    return holder


def _begin(lock: Lock) -> None:
    lock.began = time.monotonic()
    # The store answered late, or a receiver took its time.
    if lock.is_lost:
        raise LockLost(
            f"Lock {lock.name!r}: its lease of {lock.configuration.lease} was over "
            "before its job began, so the job did not run. The store or a receiver of "
            "lock_acquired took too long."
        )
    lock.never_began = False


async def _aacquire(lock: Lock) -> LockHolder | None:
    # Shielded: a cancelled caller would leave a lock behind that nobody releases.
    acquiring = asyncio.ensure_future(sync_to_async(_acquire)(lock))

    async def undo(cancellation: BaseException) -> None:
        # The caller gets the cancellation, not this.
        lock.never_began = True
        try:
            if await acquiring is None:
                await _arelease(lock, cancellation)
        except Exception as error:
            _release_if_acquired(lock, error)
        except asyncio.CancelledError as error:  # the loop ends, the UPDATE may go on
            _release_if_acquired(lock, error, waits=False)
            raise

    try:
        return await asyncio.shield(acquiring)
    except asyncio.CancelledError as cancellation:
        await _outlast_cancellations(asyncio.ensure_future(undo(cancellation)))
        raise
    except BaseException as error:
        _release_if_acquired(lock, error)
        raise


def _release_if_acquired(
    lock: Lock, error: BaseException, *, waits: bool = True
) -> None:
    # The acquisition had no answer, but the store may have carried it out.
    if isinstance(error, SynchronousOnlyOperation):  # Django refused to send it
        return
    if isinstance(error, LockProviderError):
        if not error.is_uncertain:
            return
        waits = False
    lock.never_began = True
    try:
        release_later(lock, was_acquired=False)
    except BaseException:  # a second interrupt, perhaps before the lock was added
        if lock not in late_releases.entries:
            release_later(lock, was_acquired=False)
        raise
    if waits:
        late_releases.wait_until_done(lock, INTERRUPTED_RELEASE_SECONDS)


def _leave(body: Body, error: BaseException | None) -> None:
    lock, error = body.leave(error)
    if lock is None:
        return
    unguard(lock)
    if lock in late_releases.entries:  # it was interrupted, and goes on there
        return

    def release() -> bool:
        return lock.release(error)

    try:
        try:
            release()
        except SynchronousOnlyOperation:  # re-entered in an event loop
            outside_event_loop(release)
    except Exception as failure:
        _report_failed_release(lock, error, failure)
    except BaseException:  # Ctrl-C, perhaps before the UPDATE
        # In a thread, where no signal's handler interrupts it.
        release_later(lock, error, wait=INTERRUPTED_RELEASE_SECONDS)
        raise


async def _aleave(body: Body, error: BaseException | None) -> None:
    lock, error = body.leave(error)
    if lock is not None:
        unguard(lock)
        await _arelease(lock, error)


async def _arelease(lock: Lock, error: BaseException | None) -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # it was closed, and the garbage collector ends the body
        release_later(lock, error)
        return

    def report(releasing: asyncio.Future[bool]) -> None:
        if releasing.cancelled():
            release_later(lock, error)
        elif isinstance(failure := releasing.exception(), Exception):
            _report_failed_release(lock, error, failure)

    release = lock.arelease(error)
    releasing = loop.create_task(release)
    releasing.add_done_callback(report)
    try:
        await _outlast_cancellations(releasing)
    except GeneratorExit:  # the loop was closed, perhaps before the release began
        if not loop.is_running():
            release.close()  # else Python warns that nobody awaited it
        raise
    except Exception:  # see report()
        return
    finally:
        if not releasing.done():
            release_later(lock, error)


async def _outlast_cancellations(work: "asyncio.Future[Any]") -> None:
    """
    Wait for the work, and raise the last cancellation of this task after it.

    After the first cancellation, wait for ``SHEDLOCK_EXIT_TIMEOUT`` at the most.
    """
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError as first:
        cancellation = first
    else:
        return
    until = uptime() + exit_timeout_seconds()
    with ExitStack() as stack:
        if "anyio" in sys.modules:
            # It would cancel at each turn of the loop, and keep a core busy meanwhile.
            from anyio import CancelScope

            stack.enter_context(CancelScope(shield=True))
        while not work.done() and (left := until - uptime()) > 0:
            try:
                await asyncio.wait([work], timeout=left)
            except asyncio.CancelledError as again:
                cancellation = again
            except GeneratorExit:
                stack.pop_all()  # a scope can't be left outside its task
                raise
    raise cancellation


def _report_failed_release(
    lock: Lock, error: BaseException | None, failure: Exception
) -> None:
    why = message_of(failure)
    text = "Lock %r could not be released, and is tried again: %s"
    logger.error(text, lock.name, why)
    if error is not None:
        error.add_note(f"Then lock {lock.name!r} could not be released: {why}")
    release_later(lock, error)
