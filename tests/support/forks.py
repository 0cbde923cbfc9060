"""Children that are forked while a thread of theirs is in the middle of something."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from django_shedlock.processes.child import Child
from tests.support.waiting import PATIENCE, wait_for

DEATH = PATIENCE
"""Seconds after which a child that hangs is ended."""


@contextmanager
def thread_inside(enter: Callable[[Callable[[], None]], object]) -> Iterator[None]:
    """Let a thread run ``enter``, and stay where that calls its argument."""
    inside, done = threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        wait_for(done.is_set)

    thread = threading.Thread(target=enter, args=[stay])
    thread.start()
    wait_for(inside.is_set)
    try:
        yield
    finally:
        done.set()
        thread.join(PATIENCE)


def forked(work: Callable[[], bool], meanwhile: Callable[[], object] = bool) -> bool:
    """Return what ``work`` returns in a forked child, which may not hang."""
    child = os.fork()
    if child == 0:
        signal.alarm(DEATH)
        is_right = False
        try:
            is_right = work()
        except BaseException:  # otherwise two processes would go on with the tests
            traceback.print_exc()
        finally:
            os._exit(0 if is_right else 1)
    try:
        meanwhile()
    finally:
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def run_in_fork(body: Callable[[], object]) -> None:
    """Run the body as a beat does, until its process has ended."""
    with closing(Child.of_body("job", body)):
        pass
