"""The jobs of the soak's project, and what their bodies do."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from benchmarks.soak.beats.broken import BREAKS
from benchmarks.soak.beats.place import Place
from benchmarks.soak.beats.works import WORKS, Kind, Work
from benchmarks.soak.journal import Journal
from django_shedlock import ShedLockError, current_lock, scheduler_lock
from django_shedlock.locks.lock import Lock
from django_shedlock.signals import lock_acquired, lock_lost, lock_released

STEP_SECONDS = 0.1
"""Between two entries that say that a body lives."""
LEFT_SECONDS = 6.0
"""For so long a fork lives that a body leaves behind."""
FAMILY_STEP_SECONDS = 0.25
FAMILY = f"""
n=0
while [ $n -lt $1 ]; do
    read up idle < /proc/uptime
    printf '{{"what": "alive", "at": %s, "id": "%s"}}\\n' $up "$2" >> "$3"
    n=$((n + 1))
    sleep {FAMILY_STEP_SECONDS}
done
"""
"""A body's other process; ``/proc/uptime`` is rounded down, so it is never too late."""

place = Place.of_environment()
journal = Journal(place.path)
jobs: list[Any] = []


def seconds_of(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def facts_of(lock: Lock) -> dict[str, Any]:
    """Return what the journal has of each acquisition."""
    start = lock.configuration.start
    return {
        "id": lock.locked_by,
        "name": lock.name,
        "host": place.host,
        "version": place.version,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "tick": seconds_of(lock.tick),
        "trigger": str(start.trigger),
        "request": seconds_of(start.request),
    }


def body_of(work: Work) -> Callable[[], None]:
    """Return the function that is the job's body."""

    def body() -> None:
        began = time.monotonic()
        lock = current_lock()
        seconds = random.uniform(work.shortest, work.longest)
        lease_end = time.monotonic() + lock.remaining().total_seconds()
        journal.write(
            "begin",
            at=began,
            **facts_of(lock),
            lease=work.lease,
            lease_end=lease_end,
            keep_alive=work.keep_alive,
            rerun=work.rerun,
            seconds=seconds,
        )
        with noted_end(lock):
            run(work, lock, began + seconds)

    body.__qualname__ = f"body of {work.name}"
    return body


@contextmanager
def noted_end(lock: Lock) -> Iterator[None]:
    """Let the journal have how the body ends."""
    try:
        yield
    except Exception:
        journal.write("end", id=lock.locked_by, how="raised")
        raise
    except BaseException:
        journal.write("end", id=lock.locked_by, how="interrupted")
        raise
    else:
        journal.write("end", id=lock.locked_by, how="ended")


def run(work: Work, lock: Lock, until: float) -> None:
    """Live until then, in the way of the job."""
    if work.kind is Kind.STUBBORN:
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        live(lock, until)
        signal.signal(signal.SIGTERM, before)
    elif work.kind is Kind.FAMILY:
        steps = str(round((until - time.monotonic()) / FAMILY_STEP_SECONDS))
        command = ["sh", "-c", FAMILY, "sh", steps, lock.locked_by, place.journal]
        other = subprocess.Popen(command)
        try:
            live(lock, until)
        finally:
            other.kill()
            other.wait()
    else:
        live(lock, until)
    if work.kind is Kind.LEAVER:
        leave_fork()
    if work.kind is Kind.FAILING and random.random() < 0.3:
        raise RuntimeError("This job fails now and then.")


def live(lock: Lock, until: float) -> None:
    """Say again and again that this body lives, and once with which token."""
    say_alive(lock)
    token: int | None = None
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, STEP_SECONDS))
        say_alive(lock)
        if token is None:
            token = read_token(lock)


def say_alive(lock: Lock) -> None:
    at = time.monotonic()
    journal.write("alive", at=at, id=lock.locked_by, is_held=not lock.is_lost)


def read_token(lock: Lock) -> int:
    """Write the token into the journal, if the store answers; zero if it does not."""
    try:
        token = lock.fencing_token
    except ShedLockError:
        return 0
    journal.write("token", id=lock.locked_by, token=token)
    return token


def leave_fork() -> None:
    """Leave a process behind that has all of this one's files open."""
    pid = os.fork()
    if pid == 0:
        try:
            time.sleep(LEFT_SECONDS)
        finally:  # a SIGTERM to the group must not end the body once more
            os._exit(0)
    journal.write("left", pid=pid)


def note_acquired(*, lock: Lock, **kwargs: Any) -> None:
    if is_of_soak(lock):
        lease = lock.configuration.lock_at_most_for.total_seconds()
        at_least = lock.configuration.lock_at_least_for.total_seconds()
        journal.write("acquired", **facts_of(lock), lease=lease, at_least=at_least)


def note_released(
    *, lock: Lock, released: bool, exception: BaseException | None, **kwargs: Any
) -> None:
    if is_of_soak(lock):
        why = None if exception is None else type(exception).__name__
        journal.write("released", id=lock.locked_by, was_ours=released, why=why)


def note_lost(*, lock: Lock, **kwargs: Any) -> None:
    if is_of_soak(lock):
        journal.write("lost", id=lock.locked_by)


def is_of_soak(lock: Lock) -> bool:
    return any(work.name == lock.name for work in WORKS)


if place.broken is not None:
    take_out, _ = BREAKS[place.broken]
    take_out()
lock_acquired.connect(note_acquired)
lock_released.connect(note_released)
lock_lost.connect(note_lost)
for each in WORKS:
    options: Any = each.options(place.version)
    jobs.append(scheduler_lock(each.name, **options)(body_of(each)))
