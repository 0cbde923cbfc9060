"""
Twelve workers on six locks, with kills, stops, errors and restarts, and a ledger.

Run it for longer with ``python -m tests.concurrency.soak --minutes 10``, on the store
that ``SHEDLOCK_TEST_STORE`` names (``postgres`` or ``mariadb``).
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from django.db import Error, connections, transaction

import tests.support.preload  # noqa: F401
from django_shedlock import LockConfiguration, LockLost, ShedLockError, hold
from django_shedlock.fields import DatabaseNow
from django_shedlock.locks.lock import Lock
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from tests.models import Body, FencedWrite
from tests.support.leases import lease_end
from tests.support.processes import Parent, Worker
from tests.support.servers import Server, own_server
from tests.support.waiting import wait_for

WORKERS = 12
NAMES = [f"lock-{number}" for number in range(6)]
LEASE = timedelta(seconds=5)
PAUSE = LEASE * 1.2
"""How long a worker is stopped: longer than its lease."""

STANDSTILL = LEASE / 3
"""A short sleep that misses a heartbeat tells that the whole machine stood still."""

SLACK = 5
"""Seconds for which the machine may be busy with something else."""


class BodyError(Exception):
    """What some bodies end with."""


def work(parent: Parent, name: str, seed: int) -> None:
    """Run bodies under random locks until the test ends the process."""
    chance = random.Random(seed)
    while True:
        with suppress(ShedLockError, BodyError, Error):
            run_body(name, chance)
        connections["default"].close_if_unusable_or_obsolete()
        time.sleep(chance.uniform(0, 0.05))


def run_body(worker: str, chance: random.Random) -> None:
    """Write begin, fenced writes and end into the ledger."""
    lock_name = chance.choice(NAMES)
    with hold(lock_name, lock_at_most_for=LEASE, keep_alive=True) as lock:
        body = Body.objects.create(
            name=lock_name,
            token=lock.fencing_token,
            worker=worker,
            begun_at=DatabaseNow(),
        )
        try:
            for _ in range(chance.randint(1, 4)):
                time.sleep(chance.uniform(0, 0.3))
                write_fenced(lock, body)
                if chance.random() < 0.1:
                    raise BodyError
        finally:
            Body.objects.filter(pk=body.pk).update(
                ended_at=DatabaseNow(), lease_over_at=lease_over_at(lock)
            )


def lease_over_at(lock: Lock) -> datetime:
    """Return when the lease is over, or was, by the holder's own count."""
    return now() + timedelta(seconds=lease_end(lock) - time.monotonic())


def write_fenced(lock: Lock, body: Body) -> None:
    """Write once, in a transaction that commits only under the lock."""
    try:
        with transaction.atomic():
            lock.fence()
            FencedWrite.objects.create(body=body, written_at=DatabaseNow())
    except LockLost:
        Body.objects.filter(pk=body.pk).update(was_refused=True)
        raise


@dataclass
class Counts:
    """What happened, and what must not have."""

    bodies: int = 0
    fenced_writes: int = 0
    kills: int = 0
    stops: int = 0
    restarts: int = 0
    overlaps: int = 0
    refused_writes: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        numbers = {k: v for k, v in vars(self).items() if k != "violations"}
        lines = [f"{name.replace('_', ' '):15} {n}" for name, n in numbers.items()]
        return "\n".join([*lines, f"{'violations':15} {len(self.violations)}"])


@dataclass
class Pause:
    """A time in which a worker, or all of them by the server, could do nothing."""

    worker: str | None
    begun_at: datetime
    ended_at: datetime

    def explains(self, body: Body) -> bool:
        """Whether ``body`` may have gone on without its lock because of it."""
        ended_at = body.ended_at or body.begun_at
        return (
            self.worker in {None, body.worker}
            and self.begun_at < ended_at
            and self.ended_at > body.begun_at - LEASE
        )


class Soak:
    """The one that kills, stops and restarts, and counts afterwards."""

    def __init__(self, server: Server, seed: int):
        self.server = server
        self.counts = Counts()
        self.pauses: list[Pause] = []
        self._chance = random.Random(seed)
        self._stopped: dict[str, datetime] = {}
        names = [f"worker-{number}" for number in range(WORKERS)]
        self._workers = {name: self._start(name) for name in names}

    def run(self, is_enough: Callable[[Counts], bool]) -> Counts:
        """Do harm until it is enough, and return what came of it."""
        self._awake_at = now()
        next_restart = now() + timedelta(seconds=10)
        try:
            while not is_enough(self.counts):
                self._do_harm()
                if now() > next_restart:
                    self._restart_server()
                    next_restart = now() + timedelta(seconds=20)
                self._sleep(self._chance.uniform(0.05, 0.3))
        finally:
            for worker in self._workers.values():
                worker.end()
        self._count()
        return self.counts

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        # Counted from the sleep before: whatever is done in between takes no time.
        if now() > self._awake_at + STANDSTILL:
            self.pauses.append(Pause(None, self._awake_at, now() + LEASE / 3))
        self._awake_at = now()

    def _start(self, name: str) -> Worker:
        return Worker(work, name, self._chance.randrange(10**9))

    def _do_harm(self) -> None:
        for name, since in list(self._stopped.items()):
            if now() > since + PAUSE:
                self._workers[name].go_on()
                self.pauses.append(Pause(name, self._stopped.pop(name), now()))
        name = self._chance.choice([*self._workers])
        if name in self._stopped:
            return
        if self._chance.random() < 0.25:
            self._workers[name].end()
            self._workers[name] = self._start(name)
            self.counts.kills += 1
        elif len(self._stopped) < WORKERS // 3:
            self._workers[name].stop()
            self._stopped[name] = now()
            self.counts.stops += 1

    def _restart_server(self) -> None:
        connections["default"].close()
        begun_at = now()
        self.server.stop()
        self.server.start()
        wait_for(is_answering)
        # The heartbeat tries again within a third of the lease.
        self.pauses.append(Pause(None, begun_at, now() + LEASE / 3))
        self._awake_at = now()
        self.counts.restarts += 1

    def _count(self) -> None:
        stuck = [name for name in NAMES if not is_free_within(name, LEASE)]
        self._complain(f"{name} is stuck beyond its lease" for name in stuck)
        self.counts.bodies = Body.objects.count()
        self.counts.fenced_writes = FencedWrite.objects.count()
        self.counts.refused_writes = Body.objects.filter(was_refused=True).count()
        for name in NAMES:
            self._count_overlaps(list(Body.objects.filter(name=name).order_by("token")))

    def _count_overlaps(self, bodies: list[Body]) -> None:
        for body, later in pairwise(bodies):
            if body.token == later.token:
                self._complain([f"{body} and {later} have one token"])
            if body.ended_at and body.ended_at > later.begun_at:
                self.counts.overlaps += 1
                if not self._is_explained(body, later):
                    self._complain([f"{later} began while {body} ran"])
            if body.fencedwrite_set.filter(written_at__gt=later.begun_at).exists():
                self._complain([f"{body} wrote after {later} began"])

    def _is_explained(self, body: Body, later: Body) -> bool:
        # A slow disk is such a pause, too: the body knew that its lease was over.
        over_at = body.lease_over_at
        if over_at is not None and over_at <= later.begun_at:
            return True
        return any(pause.explains(body) for pause in self.pauses)

    def _complain(self, violations: Iterable[str]) -> None:
        self.counts.violations += violations


def now() -> datetime:
    """Return the time; the server runs on this host, so it has the same clock."""
    return datetime.now(UTC)


def is_answering() -> bool:
    """Return whether the server is there again."""
    with suppress(Error):
        return LockRecord.objects.count() >= 0
    connections["default"].close()
    return False


def is_free_within(name: str, lease: timedelta) -> bool:
    """Return whether the lock can be taken when its lease must be over."""
    deadline = time.monotonic() + lease.total_seconds() + SLACK
    while True:
        is_over = time.monotonic() > deadline
        if isinstance(get_provider().acquire(LockConfiguration(name, lease)), Lock):
            return True
        if is_over:
            return False
        time.sleep(0.02)


def soak(is_enough: Callable[[Counts], bool], seed: int) -> Counts:
    """Run the soak on a server of its own; return its counts."""
    with own_server() as server:
        return Soak(server, seed).run(is_enough)


def main() -> None:
    """Run the soak from the command line, and fail if a claim was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed            {options.seed}")
    end = now() + timedelta(minutes=options.minutes)
    counts = soak(lambda counts: now() > end, options.seed)
    print(counts, *counts.violations, sep="\n")
    raise SystemExit(bool(counts.violations))


if __name__ == "__main__":
    from tests.concurrency import soak as this_module

    this_module.main()
