"""Jobs that are named, and not registered."""

from __future__ import annotations

import asyncio
import signal

from asgiref.sync import sync_to_async

from django_shedlock import scheduler_lock
from tests.support.queues.notes import notes, run_until_allowed


@scheduler_lock("digest", lock_at_most_for="2m")
def digest() -> str:
    """Run until the test allows it to end."""
    return run_until_allowed()


@scheduler_lock("adigest", lock_at_most_for="2m")
async def adigest() -> str:
    """
    Run until the test allows it to end.

    Not in the one thread of sync code: the other message's lock is tried there.
    """
    return await sync_to_async(run_until_allowed, thread_sensitive=False)()


@scheduler_lock("endless", lock_at_most_for="2m")
def endless() -> None:
    """Run until somebody interrupts it."""
    notes().write("run")
    ring_soon()
    while True:
        notes().count("run")


@scheduler_lock("aendless", lock_at_most_for="2m")
async def aendless() -> None:
    """Run until somebody interrupts it."""
    notes().write("run")
    ring_soon()
    await asyncio.sleep(3600)  # one sleep, for the alarm to ring in the loop's wait


def ring_soon() -> None:
    """Let RQ's alarm, if it is set, ring in this body, however late that has begun."""
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, 0.2)


@scheduler_lock("failing", lock_at_most_for="2m", lock_at_least_for="1m")
def failing() -> None:
    """Fail, and keep the lock for a while."""
    notes().write("run")
    raise ZeroDivisionError
