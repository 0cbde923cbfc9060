"""Races of real processes for one lock. Some are stopped, and some die."""

import os
import random
import signal
import time
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import ClassVar

import pytest

from django_shedlock.clocks import uptime
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers.base import LockProvider
from django_shedlock.testing.contract.harness import (
    MINUTE,
    Contract,
    Options,
    configure,
    status_of,
    take_at_last,
    take_from,
    try_from,
)
from django_shedlock.testing.processes import (
    HANG_LIMIT_SECONDS,
    WAIT_LIMIT_SECONDS,
    Parent,
    Worker,
    race,
    worker,
    workers,
)

CLOCK_DRIFT_SECONDS = 0.01
"""After a lease, two clocks of one machine may differ by this."""

Backend = type[LockProvider]


def win(
    parent: Parent, barrier: Barrier, backend: Backend, options: Options
) -> list[str]:
    """Return the names of the locks that this process won from the others."""
    provider = backend("default", **options)
    won = []
    for name in race_names():
        barrier.wait()
        if isinstance(try_from(provider, configure(name)), Lock):
            won.append(name)
    return won


def race_names() -> list[str]:
    """Return the names of locks that were never held, and of expired locks."""
    return [f"{kind} {turn}" for turn in range(5) for kind in ("fresh", "expired")]


def count(
    parent: Parent, backend: Backend, options: Options, counter: str, steps: int
) -> None:
    """Count up a number in a file, which is read and written under its lock."""
    provider, path = backend("default", **options), Path(counter)
    for _ in range(steps):
        lock = take_at_last(provider, configure())
        value = int(path.read_text())
        time.sleep(0.001)
        path.write_text(str(value + 1))
        assert provider.release(lock)


def hold_until_told(
    parent: Parent, backend: Backend, options: Options, lease: timedelta
) -> tuple[bool, bool]:
    """
    Take the lock; wait for the test; try to extend and to release the lock.

    Return whether each of the two succeeded.
    """
    provider = backend("default", **options)
    lock = take_from(provider, configure(lock_at_most_for=lease))
    parent.say((lock.locked_by, lock.lease_end))
    parent.wait()
    return provider.extend(lock, MINUTE), provider.release(lock)


def run_jobs(
    parent: Parent, backend: Backend, options: Options, lease: timedelta, journal: str
) -> None:
    """Run the job again and again; write the begin and end of each run to a file."""
    provider = backend("default", **options)
    configuration = configure(lock_at_most_for=lease)
    with Path(journal).open("a", buffering=1) as lines:
        while True:
            lock = take_at_last(provider, configuration)
            lines.write(f"{os.getpid()} {uptime()} {lock.lease_end}\n")
            time.sleep(0.002)
            lines.write(f"{os.getpid()}\n")
            provider.release(lock)


def overlaps(journal: Path) -> list[tuple[str, str]]:
    """Return each worker that began within another worker's lease, with the other."""
    running: dict[str, tuple[float, float]] = {}
    found = []
    for line in journal.read_text().splitlines():
        worker, *moments = line.split()
        if moments:
            begun, lease_end = map(float, moments)
            found += [
                (worker, other)
                for other, (other_begun, other_end) in running.items()
                # A worker that was stopped after it acquired writes late.
                if begun < other_end - CLOCK_DRIFT_SECONDS
                and other_begun < lease_end - CLOCK_DRIFT_SECONDS
            ]
            running[worker] = begun, lease_end
        else:
            del running[worker]
    return found


def ask_often(provider: LockProvider, lock: Lock) -> None:
    """Ask who has the lock: with one connection, answers may get mixed up."""
    for _ in range(50):
        assert status_of(provider, lock.name).locked_by == lock.locked_by


class RaceContract(Contract):
    """Of all processes one holds a lock, whatever happens to the others."""

    flags: tuple[str, ...] = ("is_shared",)
    # The lease of a worker that is killed or stopped. It is long enough to see that the
    # lock is held, and short enough to wait for its end.
    lease_of_the_dead: ClassVar[timedelta] = timedelta(seconds=1)

    @pytest.fixture
    def counter(self, tmp_path: Path) -> Path:
        """Return a file with a number."""
        path = tmp_path / "counter"
        path.write_text("0")
        return path

    def test_one_of_sixteen_processes_wins(
        self, provider: LockProvider, options: Options
    ) -> None:
        """Each fresh and each expired lock has exactly one winner of sixteen."""
        expired = [name for name in race_names() if name.startswith("expired")]
        for lock in [take_from(provider, configure(n, self.short)) for n in expired]:
            self.outlast(lock)
        won = race(16, win, self.backend, options)
        assert sorted(name for each in won for name in each) == sorted(race_names())

    def test_processes_never_overlap(
        self, provider: LockProvider, options: Options, counter: Path
    ) -> None:
        """Eight processes lose no step of a number that each of them counts up."""
        arguments = (self.backend, options, str(counter), 6)
        with workers(8, count, *arguments) as counting:
            for each in counting:
                each.result()
        assert int(counter.read_text()) == 8 * 6

    def test_lock_of_a_killed_process(
        self, provider: LockProvider, options: Options
    ) -> None:
        """The lock of a killed process is held until its lease ends, and then free."""
        lease = self.at_least(self.lease_of_the_dead)
        with worker(hold_until_told, self.backend, options, lease) as dying:
            locked_by, lease_end = dying.heard()
            dying.kill()
        holder = try_from(provider, configure())
        if isinstance(holder, LockHolder):
            assert holder.locked_by == locked_by
            take_at_last(provider, configure())
        assert uptime() > lease_end - CLOCK_DRIFT_SECONDS

    def test_stopped_process_is_late(
        self, provider: LockProvider, options: Options
    ) -> None:
        """A process that continues neither extends nor releases the next one's lock."""
        lease = self.at_least(self.lease_of_the_dead)
        with worker(hold_until_told, self.backend, options, lease) as slow:
            slow.heard()
            slow.stop()
            lock = take_at_last(provider, configure())
            slow.send()
            slow.go_on()
            assert slow.result() == (False, False)
        assert provider.extend(lock, 2 * MINUTE)
        assert provider.release(lock)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_forked_child_has_its_own_answers(self, provider: LockProvider) -> None:
        """Parent and child ask at once, and use none of each other's connections."""
        if provider.record_database is not None:
            return  # whoever forks closes Django's connections first
        lock = take_from(provider, configure())
        child = os.fork()
        if child == 0:
            signal.alarm(HANG_LIMIT_SECONDS)
            status = 1
            try:
                ours = take_from(provider, configure("of the child"))
                ask_often(provider, ours)
                assert isinstance(try_from(provider, configure()), LockHolder)
                assert ours.release()
                status = 0
            finally:
                os._exit(status)  # or two processes would go on with the tests
        try:
            ask_often(provider, lock)
        finally:
            _, wait_status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(wait_status) == 0
        assert provider.release(lock)

    def test_killed_at_any_moment(
        self, provider: LockProvider, options: Options, tmp_path: Path
    ) -> None:
        """No run begins during another run, or within the lease of a killed run."""
        lease, journal = self.at_least(self.lease_of_the_dead / 2), tmp_path / "journal"
        arguments = (self.backend, options, lease, str(journal))
        journal.touch()
        with workers(4, run_jobs, *arguments) as running:
            for _ in range(5):
                self._wait_for_runs(journal)
                victim = running.pop(random.randrange(len(running)))
                victim.kill()
                victim.end()
                running.append(Worker(run_jobs, *arguments))
            self._wait_for_runs(journal)
        assert overlaps(journal) == []

    def _wait_for_runs(self, journal: Path) -> None:
        # Some worker keeps running the job, whenever another one is killed.
        before = journal.stat().st_size
        lease = self.at_least(self.lease_of_the_dead / 2)
        limit = WAIT_LIMIT_SECONDS + lease.total_seconds()
        deadline = time.monotonic() + limit
        while journal.stat().st_size < before + 500:
            assert time.monotonic() < deadline, "nobody runs the job any more"
            time.sleep(random.uniform(0, 0.01))
