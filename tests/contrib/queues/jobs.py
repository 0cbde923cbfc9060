"""Jobs that are named, and not registered."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import ExitStack
from threading import Thread, get_ident

from asgiref.sync import sync_to_async

from django_shedlock import hold, scheduler_lock
from tests.contrib.queues.notes import notes, run_until_allowed


@scheduler_lock("digest", lock_at_most_for="30m", keep_alive=True)
def digest() -> str:
    """Run until the test allows it to end."""
    return run_until_allowed()


@scheduler_lock("adigest", lock_at_most_for="30m", keep_alive=True)
async def adigest() -> str:
    """
    Run until the test allows it to end.

    Not in the one thread of sync code: the other message's lock is tried there.
    """
    return await sync_to_async(run_until_allowed, thread_sensitive=False)()


@scheduler_lock("endless", lock_at_most_for="30m")
def endless() -> None:
    """Run until somebody interrupts it."""
    notes().write("run")
    if is_alarm_set():
        ring_soon()
    while True:
        notes().count("run")


@scheduler_lock("aendless", lock_at_most_for="30m")
async def aendless() -> None:
    """Run until somebody interrupts it."""
    notes().write("run")
    if is_alarm_set():
        Thread(target=ring_in_the_loop, args=[get_ident()], daemon=True).start()
    await asyncio.sleep(3600)  # one sleep: then the loop waits until the alarm


def is_alarm_set() -> bool:
    """Return whether RQ runs this job: the others set no alarm."""
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0


def ring_soon() -> None:
    """Let the alarm ring in this body, however late that has begun."""
    signal.setitimer(signal.ITIMER_REAL, 0.2)


def ring_in_the_loop(thread: int) -> None:
    """Let the alarm ring when the thread's event loop waits, however late that is."""
    while (frame := sys._current_frames().get(thread)) is not None:
        if frame.f_code.co_name == "select":
            break
        time.sleep(0.01)
    ring_soon()


@scheduler_lock("failing", lock_at_most_for="30m", lock_at_least_for="20m")
def failing() -> None:
    """Fail, and keep the lock for a while."""
    notes().write("run")
    raise ZeroDivisionError


left_open = ExitStack()


def leave_open() -> None:
    """Hold a lock that nobody releases before the process ends."""
    left_open.enter_context(hold("left open", lock_at_most_for="30m"))
