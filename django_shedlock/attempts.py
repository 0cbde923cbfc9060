"""An attempt: ask for a lock, wait for it, hold it for a body, and release it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async

from django_shedlock import conf
from django_shedlock.active import activated, find_active_lock, held
from django_shedlock.cancellation import cancelled_when_lost
from django_shedlock.clocks import Backoff
from django_shedlock.exceptions import (
    LockLost,
    LockProviderError,
    message_of,
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
    LockRequest,
)
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.unlocked import UnlockedProvider
from django_shedlock.signals import lock_acquired, lock_not_acquired

logger = logging.getLogger("django_shedlock")


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
        message_of(failure),
    )
    if error is not None:
        why = message_of(failure)
        error.add_note(f"Then lock {lock.name!r} could not be released: {why}")
    release_later(lock, partial(lock.release, error))


def next_pause(backoff: Backoff, holder: LockHolder) -> float | None:
    """Return the seconds until the next try; ``None`` if waiting is useless."""
    # The wait first, since the holder may have to be read.
    if backoff.is_over or holder.tick is not None:
        return None
    lease = holder.remaining.total_seconds()
    return backoff.pause(lease if lease > 0 else math.inf)
