"""Lets a command run under its lock before there is a table for locks."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django_shedlock import conf
from django_shedlock.clocks import Backoff
from django_shedlock.execution.active import Body, activated
from django_shedlock.execution.executor import make_unstored_lock
from django_shedlock.locks.configuration import LockRequest
from django_shedlock.providers import get_provider
from django_shedlock.signals import logger


@contextmanager
def before_first_migrate(
    request: LockRequest, sleep: Callable[[float], None] = time.sleep
) -> Iterator[bool]:
    """
    Let another lock of the store stand in for this one as long as its table is missing.

    Then the lock is entered directly in the body. Yield whether to go on: ``False`` if
    another process has what stands in for longer than ``request.wait``. Raises
    ``LockProviderError`` if the store fails.
    """
    configuration = request.configuration()
    provider, backoff = get_provider(request.provider), Backoff(request.wait)
    body = Body()
    if body.reenter(request.provider, configuration.name):
        try:
            yield True
        finally:
            body.leave(None)
        return
    # Nobody would know of a tick, or of lock_at_least_for, after the body's end.
    is_remembered = request.schedule or request.lock_at_least_for
    while conf.ENABLED.value and not is_remembered:
        with provider.stand_in(configuration.name) as is_ours:
            if is_ours:
                lock = make_unstored_lock(request)
                body.enter(lock)
                try:
                    with activated(lock):
                        yield True
                finally:
                    body.leave(None)
                return
        if is_ours is None:
            break
        if backoff.is_over:
            text = "Lock %r not acquired: what stands in for it is held."
            logger.info(text, configuration.name)
            yield False
            return
        sleep(backoff.pause())
    yield True
