"""What runs under a lock in a soak, and how it is told that the lock is lost."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from asgiref.sync import sync_to_async

from django_shedlock import LockLost
from django_shedlock.locks.lock import Lock
from django_shedlock.models import LockRecord
from tests.models import FencedWrite
from tests.support.element_sets import Addition, Guard, claim
from tests.support.leases import is_kept_alive

if TYPE_CHECKING:
    from benchmarks.soak.worker import SoakWorker

TOLD_WITHIN = 30.0
"""Seconds from the end of a lease until its body is told, whatever the network does."""

LONGEST_ADDITION = 2.0
"""Seconds between the read and the write of a set; the shortest leases are shorter."""

LOOK = 0.05


class BodyError(Exception):
    """What some bodies end with."""


class Body:
    """What runs under a lock, and notes each instant at which the lock was valid."""

    def __init__(self, worker: SoakWorker, lock: Lock, asked: float, way: str):
        self._worker = worker
        self._lock = lock
        self._asked = asked
        self._way = way
        self._chance = worker.chance
        self._journal = worker.journal
        self._watch = worker.watch
        self._is_kept_alive = is_kept_alive(lock)
        self._journal.write(
            "begin",
            name=lock.name,
            id=lock.locked_by,
            asked=asked,
            way=way,
            tick=lock.tick,
            kept_alive=self._is_kept_alive,
        )
        self._token = 0

    def run(self) -> None:
        """Work in some steps, with writes, extensions and errors."""
        with self._watch.paused():
            self._run()

    def add(self, guard: Guard) -> None:
        """Add to a set by a read, a pause and a write, which may come too late."""
        with self._watch.paused():
            self._read_token()
            with self._watch.own_statements():
                addition = Addition(self._lock, guard)
                addition.read()
            self._wait(self._chance.uniform(0, LONGEST_ADDITION))
            with self._worker.transaction(), self._watch.own_statements():
                addition.write()
            name = self._lock.name
            self._journal.write("added", name=name, token=self._token, guard=guard)
            self._end()

    def be_left(self) -> None:
        """Work for a while, and never end."""
        with self._watch.paused():
            self._read_token()
            self._wait(self._pause())

    def _run(self) -> None:
        self._read_token()
        for _ in range(self._chance.randint(1, 5)):
            self._wait(self._pause())
            self._step()
        self._end()

    async def arun(self) -> None:
        """See run()."""
        with self._watch.paused():
            await self._arun()

    async def _arun(self) -> None:
        await sync_to_async(self._read_token)()
        for _ in range(self._chance.randint(1, 5)):
            end = time.monotonic() + self._pause()
            while self._check() and time.monotonic() < end:
                await asyncio.sleep(LOOK)
            if self._lock.is_lost:
                await self._wait_for_cancellation()
            await sync_to_async(self._step)()
        self._end()

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._check() and time.monotonic() < end:
            self._lock.lost.wait(LOOK)

    def _pause(self) -> float:
        # Now and then longer than most leases.
        [longest] = self._chance.choices([0.1, 0.4, 6], [10, 5, 1])
        return longest * self._chance.random()

    def _check(self) -> bool:
        at = time.monotonic()
        if self._lock.is_lost:
            return False
        self._journal.write("valid", at=at, id=self._lock.locked_by)
        return True

    def _read_token(self) -> None:
        with self._watch.call("token"):
            self._token = self._lock.fencing_token
        self._journal.write("token", id=self._lock.locked_by, token=self._token)

    def _step(self) -> None:
        if self._lock.is_lost and self._is_kept_alive:
            self._wait_until_told()
        if self._lock.is_lost:
            # Until somebody else has the lock, perhaps: the write has to be refused.
            time.sleep(self._chance.random())
            self._write_fenced()
        if self._chance.random() < 0.3:
            with self._watch.call("extend"):
                self._lock.extend()
            self._journal.write("extended")
        # Its transaction would keep the row until after the release.
        if self._way != "atomic" and self._chance.random() < 0.7:
            self._write_fenced()
        if self._chance.random() < 0.1:
            raise BodyError

    def _write_fenced(self) -> None:
        try:
            with self._worker.transaction():
                with self._watch.own_statements():
                    name, token_of_lock = self._lock.name, self._token
                    if self._worker.can_fence:
                        self._lock.fence()
                        token_of_lock = LockRecord.objects.get(name=name).fencing_token
                    else:
                        claim(name, self._token)
                    FencedWrite.objects.create(
                        name=name, token=self._token, token_of_lock=token_of_lock
                    )
        except LockLost:
            self._journal.write("refused")
            raise
        self._journal.write("wrote")

    def _wait_until_told(self) -> None:
        began = self._watch.awake
        while not self._lock.lost.wait(LOOK):
            if self._watch.awake - began > TOLD_WITHIN:
                self._journal.write("untold", name=self._lock.name, way=self._way)
                return
        self._journal.write("told", late=self._watch.awake - began)

    async def _wait_for_cancellation(self) -> None:
        began = self._watch.awake
        try:
            while self._watch.awake - began < TOLD_WITHIN:
                await asyncio.sleep(LOOK)
        except asyncio.CancelledError:
            self._journal.write("told", late=self._watch.awake - began)
            raise
        self._journal.write("untold", name=self._lock.name, way=self._way)

    def _end(self) -> None:
        self._check()
        self._journal.write("end", id=self._lock.locked_by)
