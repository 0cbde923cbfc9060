"""How a worker of the soak ends in good order, and what its journal needs for that."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from django.db import Error

import django_shedlock
from benchmarks.soak.body import Body, BodyError
from benchmarks.soak.journal import Journal
from django_shedlock import LockNotAcquired, ShedLockError, ahold, hold
from django_shedlock.locks.lock import Lock, identity_of
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider

if TYPE_CHECKING:
    from benchmarks.soak.worker import SoakWorker

INTERRUPTED = "interrupted"
GATHERED = "tasks cancelled"
NEVER_LEFT = "locks never left"
ENDS = {INTERRUPTED: 2, GATHERED: 1, NEVER_LEFT: 1}
"""How a worker ends that gets SIGTERM, and how often: see ``Ends``."""

LOCK_COUNT = 3
LONGEST_GATHER = 0.5
LEFT_LEASE = "15s"
"""The longest lease of the soak, so that a lock that stays held is seen."""

UNRELEASED = (
    "could not be released before its process ended",
    "was not released before its lease ended",
)
"""With these words the log says that a lock stays held."""

left_open = ExitStack()
"""What a module keeps until its process ends."""


class Ends:
    """
    Ends a worker when it gets SIGTERM, in one of three ways.

    The handler raises ``SystemExit`` wherever the main thread is. Or the worker ends
    its body first; then it cancels tasks that are inside locks, or enters locks and
    never leaves them.
    """

    def __init__(self, worker: SoakWorker):
        self._worker = worker
        self._way: str | None = None
        signal.signal(signal.SIGTERM, self._note)

    @property
    def is_asked(self) -> bool:
        """Whether the worker is to end."""
        return self._way is not None

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Run the body, and end this process as one must that leaves by os._exit()."""
        try:
            yield
        except SystemExit:
            if not self.is_asked:
                raise
        finally:
            with self._worker.watch.call("end of the process"):
                django_shedlock.shut_down()
            identity = identity_of(os.getpid())
            self._worker.journal.write("ended", identity=identity, way=self._way)

    def leave_locks(self) -> None:
        """Be inside locks at the end, if that is the way."""
        with suppress(LockNotAcquired, ShedLockError, Error, BodyError):
            if self._way == GATHERED:
                asyncio.run(self._gather())
            elif self._way == NEVER_LEFT and self._worker.chance.random() < 0.5:
                thread = threading.Thread(target=self._enter_and_stay)
                thread.start()
                thread.join()
            elif self._way == NEVER_LEFT:
                self._enter_and_stay()

    def _note(self, number: int, frame: FrameType | None) -> None:
        [self._way] = self._worker.chance.choices([*ENDS], [*ENDS.values()])
        if self._way == INTERRUPTED:
            raise SystemExit

    def _enter_and_stay(self) -> None:
        for name in self._names():
            is_kept_alive = self._worker.chance.random() < 0.7
            asked = time.monotonic()
            with suppress(ShedLockError, Error), self._worker.watch.call("acquire"):
                context = hold(
                    name, lock_at_most_for=LEFT_LEASE, keep_alive=is_kept_alive
                )
                lock = left_open.enter_context(context)
                Body(self._worker, lock, asked, "left").be_left()

    async def _gather(self) -> None:
        bodies = [self._run(name) for name in self._names()]
        seconds = self._worker.chance.uniform(0, LONGEST_GATHER)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*bodies), seconds)

    async def _run(self, name: str) -> None:
        asked = time.monotonic()
        async with ahold(name, **self._worker.options()) as lock:
            await Body(self._worker, lock, asked, "gather").arun()

    def _names(self) -> list[str]:
        from benchmarks.soak.worker import NAMES

        return self._worker.chance.sample(NAMES, LOCK_COUNT)


def note_acquisitions(journal: Journal) -> None:
    """Let the journal have each try to acquire a lock, and what the store answers."""
    provider = type(get_provider())
    acquire, release = provider.acquire, provider.release

    def acquire_and_note(self: LockProvider, lock: Lock) -> LockHolder | None:
        lease_end = time.monotonic() + lock.remaining().total_seconds()
        journal.write("asked", id=lock.locked_by, lease_end=lease_end)
        holder = acquire(self, lock)
        if holder is None:
            journal.write("acquired", id=lock.locked_by)
        return holder

    def release_and_note(self: LockProvider, lock: Lock, **options: Any) -> bool:
        answer: bool | str = "nothing"
        try:
            answer = release(self, lock, **options)
        except BaseException as error:
            answer = type(error).__name__
            raise
        finally:
            journal.write("release", id=lock.locked_by, answer=answer)
        return answer

    patch.object(provider, "acquire", acquire_and_note).start()
    patch.object(provider, "release", release_and_note).start()


class NoteUnreleased(logging.Handler):
    """Puts into the journal which locks stay held, by the log of their process."""

    def __init__(self, journal: Journal):
        super().__init__(logging.ERROR)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """See the class."""
        if any(words in str(record.msg) for words in UNRELEASED):
            arguments: Any = record.args
            identity = identity_of(os.getpid())
            self._journal.write("unreleased", identity=identity, name=arguments[0])


def note_unreleased(journal: Journal) -> None:
    """Let the journal have which locks stay held, and leave out the rest of the log."""
    logging.getLogger("django_shedlock").addHandler(NoteUnreleased(journal))
