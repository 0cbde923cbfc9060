"""Attempts to run a body under a lock: acquire, signal, run, release."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress

from django_shedlock import conf
from django_shedlock.active import activated, find_active_lock
from django_shedlock.cancelling import cancelled_when_lost
from django_shedlock.configuration import LockConfiguration
from django_shedlock.exceptions import LockLost, LockProviderError
from django_shedlock.held import registered
from django_shedlock.holders import LockHolder
from django_shedlock.keepalive import kept_alive
from django_shedlock.locks import Lock
from django_shedlock.options import LockRequest
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.unlocked import UnlockedProvider
from django_shedlock.signals import lock_acquired, lock_not_acquired
from django_shedlock.waiting import Waiting

logger = logging.getLogger("django_shedlock")


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


@contextmanager
def attempt(
    request: LockRequest, *, sleep: Callable[[float], None] = _sleep
) -> Iterator[Lock | LockHolder]:
    """
    Run the body with the lock, or with who holds it; release the lock after it.

    While it waits for the lock it sleeps with ``sleep``, a second at most at a time.
    """
    configuration = request.configuration()
    lock = _without_store(request, configuration)
    if lock is not None:
        with activated(lock):
            yield lock
        return
    provider = get_provider(request.provider)
    waiting = Waiting(request.wait_duration)
    acquired = _acquire(provider, configuration, waiting, sleep)
    if isinstance(acquired, LockHolder):
        yield acquired
        return
    try:
        with _protected(acquired, request):
            lock_acquired.send_robust(type(provider), lock=acquired)
            _refuse_if_lost(acquired)
            yield acquired
    except BaseException as error:
        _release(acquired, error)
        raise
    _release(acquired, None)


@asynccontextmanager
async def aattempt(request: LockRequest) -> AsyncIterator[Lock | LockHolder]:
    """See attempt()."""
    configuration = request.configuration()
    lock = _without_store(request, configuration)
    if lock is not None:
        with activated(lock):
            yield lock
        return
    provider = get_provider(request.provider)
    acquired = await _aacquire(provider, configuration, Waiting(request.wait_duration))
    if isinstance(acquired, LockHolder):
        yield acquired
        return
    try:
        with _protected(acquired, request):
            await lock_acquired.asend_robust(type(provider), lock=acquired)
            _refuse_if_lost(acquired)
            async with cancelled_when_lost(acquired):
                yield acquired
    except BaseException as error:
        await _arelease(acquired, error)
        raise
    await _arelease(acquired, None)


@contextmanager
def _protected(lock: Lock, request: LockRequest) -> Iterator[None]:
    keep_alive = request.keep_alive
    if keep_alive is None:
        keep_alive = lock.provider.keeps_alive
    with registered(lock), activated(lock):
        with kept_alive(lock) if keep_alive else nullcontext():
            yield


def _refuse_if_lost(lock: Lock) -> None:
    # A store that answered late, or a receiver that waited for its own table.
    if lock.is_lost:
        raise LockLost(
            f"Lock {lock.name!r}: its lease of {lock.configuration.lease} was over "
            "before its job began, so the job did not run. The store or a receiver of "
            "lock_acquired took too long."
        )


def _without_store(
    request: LockRequest, configuration: LockConfiguration
) -> Lock | None:
    if not conf.ENABLED.value:
        return Lock(UnlockedProvider(request.provider), configuration)
    return find_active_lock(request.provider, configuration.name)


def _acquire(
    provider: LockProvider,
    configuration: LockConfiguration,
    waiting: Waiting,
    sleep: Callable[[float], None],
) -> Lock | LockHolder:
    while True:
        acquired = provider.acquire(configuration)
        if isinstance(acquired, Lock):
            return acquired
        pause = waiting.pause(acquired)
        if pause is None:
            lock_not_acquired.send_robust(
                type(provider),
                configuration=configuration,
                holder=acquired,
                provider=provider,
            )
            return acquired
        sleep(pause)


async def _aacquire(
    provider: LockProvider, configuration: LockConfiguration, waiting: Waiting
) -> Lock | LockHolder:
    while True:
        acquired = await _aacquire_once(provider, configuration)
        if isinstance(acquired, Lock):
            return acquired
        pause = waiting.pause(acquired)
        if pause is None:
            await lock_not_acquired.asend_robust(
                type(provider),
                configuration=configuration,
                holder=acquired,
                provider=provider,
            )
            return acquired
        await asyncio.sleep(pause)


async def _aacquire_once(
    provider: LockProvider, configuration: LockConfiguration
) -> Lock | LockHolder:
    # A cancelled caller would leave behind a lock that nobody releases.
    acquiring = asyncio.ensure_future(provider.aacquire(configuration))
    try:
        return await asyncio.shield(acquiring)
    except asyncio.CancelledError as cancellation:
        await asyncio.shield(_give_back(acquiring, cancellation))
        raise


async def _give_back(
    acquiring: asyncio.Future[Lock | LockHolder], cancellation: BaseException
) -> None:
    with suppress(LockProviderError):  # the cancellation is what the caller is told
        acquired = await acquiring
        if isinstance(acquired, Lock):
            await _arelease(acquired, cancellation)


def _release(lock: Lock, error: BaseException | None) -> None:
    try:
        lock.release(error)
    except Exception as failure:
        _report_failed_release(lock, error, failure)


async def _arelease(lock: Lock, error: BaseException | None) -> None:
    try:
        await asyncio.shield(lock.arelease(error))
    except Exception as failure:
        _report_failed_release(lock, error, failure)


def _report_failed_release(
    lock: Lock, error: BaseException | None, failure: Exception
) -> None:
    logger.error(
        "Lock %r could not be released and stays held until its lease ends: %s",
        lock.name,
        failure,
    )
    if error is not None:
        error.add_note(f"Then lock {lock.name!r} could not be released: {failure}")
