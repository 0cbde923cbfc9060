"""A worker of the soak: bodies under locks, in all the ways in which there are some."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import Error, connections, transaction

from benchmarks.soak.body import Body, BodyError
from benchmarks.soak.broken import BREAKS
from benchmarks.soak.ends import Ends, note_acquisitions, note_unreleased
from benchmarks.soak.journal import Journal, leave_out_warnings
from benchmarks.soak.servers import use_provider
from benchmarks.soak.watch import PATIENCE, Watch, end_with_parent
from django_shedlock import (
    LockNotAcquired,
    ShedLockError,
    ahold,
    current_lock,
    hold,
    scheduler_lock,
)
from django_shedlock.beat.catch_up import catch_up
from django_shedlock.console.operators import AuditedAction, ReleaseLock
from django_shedlock.locks.lock import Lock
from django_shedlock.providers import get_provider
from django_shedlock.signals import lock_lost, lock_not_acquired, lock_released
from tests.models import ElementSet, FencedWrite
from tests.support.element_sets import Guard
from tests.support.processes import Parent
from tests.support.waiting import wait_as_shipped

NAMES = [f"lock-{number}" for number in range(5)]
TICKS = [f"tick-{number}" for number in range(6)]
LEASES = {1: 2, 2: 4, 5: 3, 15: 1}
"""Seconds, and how often: the network's silences are longer than the short ones."""

SHORT_LEASES = {1: 3, 2: 1}
"""Of additions to a set, many of which are to be late."""

GRACE = "10s"
EXIT_TIMEOUT = "40s"
"""Longer than a lease, and than an outage and a silence after each other."""

SETS = {guard: f"set {guard}" for guard in (Guard.FENCE, Guard.TOKEN, Guard.NONE)}
WORKLOADS = ("all", "bodies", "lock-set")


@dataclass(frozen=True)
class Task:
    """What a worker has to know; it ends by itself when ``until`` is over."""

    name: str
    seed: str
    until: float
    ports: list[int]
    provider: dict[str, Any] | None
    journal: Path
    workload: str = "all"
    broken: str | None = None


def work(parent: Parent, task: Task) -> None:
    """Run bodies under random locks until the time is over."""
    end_with_parent()
    leave_out_warnings()
    wait_as_shipped()
    if task.provider is None:
        use_port(*task.ports)
    else:
        use_provider(task.provider)
        settings.SHEDLOCK_HISTORY = False  # SQLite has one writer
    settings.SHEDLOCK_GRACE = GRACE
    settings.SHEDLOCK_EXIT_TIMEOUT = EXIT_TIMEOUT
    if task.broken:
        BREAKS[task.broken]()
    worker = SoakWorker(task)
    ends = Ends(worker)
    with ends.in_order():
        while time.monotonic() < task.until and not ends.is_asked:
            worker.run_one()
        ends.leave_locks()


def use_port(port: int) -> None:
    """Let this process connect by the proxy, for so long as a project should wait."""
    address = {"HOST": "127.0.0.1", "PORT": str(port)}
    connections["default"].settings_dict.update(address)
    connections["default"].settings_dict["OPTIONS"]["connect_timeout"] = int(PATIENCE)


def make_sets() -> None:
    """Make a row for each set, and one for the greatest token of each other lock."""
    names = (*NAMES, *TICKS, *SETS.values())
    ElementSet.objects.bulk_create(ElementSet(name=name) for name in names)


class SoakWorker:
    """Runs one body after the other, each in a random way."""

    def __init__(self, task: Task):
        self.name = task.name
        self.chance = random.Random(task.seed)
        self.journal = Journal(task.journal)
        self.watch = Watch(self.journal)
        self.bodies = 0
        self._asked = 0.0
        self._ways: dict[Callable[[], object], int] = {
            self._hold: 8,
            self._hold_in_transaction: 3,
            self._ahold: 4,
            self._tick: 3,
            self._catch_up: 1,
            self._force_release: 1,
            self._add: 6,
        }
        if task.workload == "bodies":
            del self._ways[self._add]
        if task.workload == "lock-set":
            self._ways = {self._add: 1}
        self.can_fence = get_provider().can_fence
        if not self.can_fence:
            # The caller's transaction is nothing to a lock that is elsewhere.
            self._ways.pop(self._hold_in_transaction, None)
        self._guards = [g for g in SETS if self.can_fence or g is not Guard.FENCE]
        self._jobs = [self._scheduled(name) for name in TICKS]
        note_acquisitions(self.journal)
        # In place of thousands of lines about errors.
        note_unreleased(self.journal)
        lock_released.connect(self._note_release)
        lock_not_acquired.connect(self._note_skip)
        lock_lost.connect(self._note_loss)

    def run_one(self) -> None:
        """Run a body, and note what it ends with."""
        [way] = self.chance.choices([*self._ways], [*self._ways.values()])
        try:
            way()
        except LockNotAcquired:
            pass
        except (ShedLockError, Error, BodyError) as error:
            cause = error.__cause__ or error
            kind = f"{type(error).__name__}: {type(cause).__name__}"
            self.journal.write("error", kind=kind, text=str(error)[:200])
        self._close_if_broken()
        time.sleep(self.chance.uniform(0, 0.1))

    def options(self, leases: dict[int, int] = LEASES) -> dict[str, Any]:
        """Return random ones of a lock."""
        [lease] = self.chance.choices([*leases], [*leases.values()])
        return {
            "lock_at_most_for": lease,
            "keep_alive": self.chance.random() < 0.6,
            "wait": self.chance.choice([0, 0, 1]),
        }

    @contextmanager
    def _held(self, name: str, options: dict[str, Any]) -> Iterator[Lock]:
        context = hold(name, **options)
        self._asked = time.monotonic()
        with self.watch.call("acquire"):
            lock = context.__enter__()
        try:
            yield lock
        except BaseException:
            with self.watch.call("release"):
                if not context.__exit__(*sys.exc_info()):
                    raise
        else:
            with self.watch.call("release"):
                context.__exit__(None, None, None)

    def _hold(self) -> None:
        with self._held(self.chance.choice(NAMES), self.options()) as lock:
            Body(self, lock, self._asked, "hold").run()

    def _hold_in_transaction(self) -> None:
        with self.transaction():
            with self.watch.own_statements():
                FencedWrite.objects.first()
            with self._held(self.chance.choice(NAMES), self.options()) as lock:
                Body(self, lock, self._asked, "atomic").run()

    def _add(self) -> None:
        guard = self.chance.choice(self._guards)
        with self._held(SETS[guard], self.options(SHORT_LEASES)) as lock:
            Body(self, lock, self._asked, "add").add(guard)

    def _ahold(self) -> None:
        asyncio.run(self._hold_async())

    async def _hold_async(self) -> None:
        options = self.options()
        try:
            asked = time.monotonic()
            with self.watch.call("ahold"):
                async with ahold(self.chance.choice(NAMES), **options) as lock:
                    await Body(self, lock, asked, "ahold").arun()
        finally:
            await sync_to_async(self._close_if_broken)()

    def _scheduled(self, name: str) -> Callable[[], None]:
        @scheduler_lock(name, schedule="* * * * *", lock_at_most_for=5, keep_alive=True)
        def job() -> None:
            Body(self, current_lock(), self._asked, self._trigger).run()

        return job

    def _tick(self) -> None:
        self._asked, self._trigger = time.monotonic(), "scheduler"
        with self.watch.call("tick"):
            self.chance.choice(self._jobs)()

    def _catch_up(self) -> None:
        self._asked, self._trigger = time.monotonic(), "catch-up"
        # It reads the locks on the job's own connection.
        with self.watch.call("catch-up"), self.watch.own_statements():
            for _ in catch_up(get_provider()):
                self._asked = time.monotonic()

    def _force_release(self) -> None:
        name = self.chance.choice(NAMES)
        provider = get_provider()
        with self.watch.own_statements():
            holder = provider.status(name)
            holders = [holder.locked_by] if holder else []
        for holder in holders:
            self.journal.write("force", holder=holder)
            with self.watch.call("force release"):
                action = AuditedAction(provider, name, holder, "soak", "to see it")
                if ReleaseLock().carry_out(action):
                    self.journal.write("forced", holder=holder)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body in ``atomic()``, whose own statements are given up in time."""
        block = transaction.atomic()
        with self.watch.own_statements():
            block.__enter__()
        try:
            yield
        except BaseException:
            with self.watch.own_statements():
                block.__exit__(*sys.exc_info())
            raise
        else:
            with self.watch.own_statements():
                block.__exit__(None, None, None)

    def _close_if_broken(self) -> None:
        if connections["default"].in_atomic_block:
            # Django stays in a block if the connection is lost where autocommit is
            # turned on again, and then at the next block's savepoint.
            del connections["default"]
        with self.watch.own_statements(), suppress(Error):
            connections["default"].close_if_unusable_or_obsolete()

    def _note_release(self, *, lock: Lock, **kwargs: Any) -> None:
        succeeded = kwargs["released"] and kwargs["exception"] is None
        self.journal.write(
            "released",
            id=lock.locked_by,
            succeeded=succeeded,
            was_ours=kwargs["released"],
        )

    def _note_loss(self, *, lock: Lock, **kwargs: Any) -> None:
        self.journal.write("lost", id=lock.locked_by)

    def _note_skip(self, **kwargs: Any) -> None:
        self.journal.write("skip", name=kwargs["configuration"].name)
