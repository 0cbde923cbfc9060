"""The second part of the demo: a worker dies in the middle of a job."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.core.management import CommandError

from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers import get_provider
from example.models import JobRun
from example.screen import Screen
from example.workers import PATIENCE, RAN, SKIPPED, Worker

JOB = "backup"


class Crash:
    """Kills a worker, and shows what happens to its lock."""

    def __init__(self, screen: Screen, victim: Worker, survivor: Worker):
        self.screen = screen
        self.victim = victim
        self.survivor = survivor

    def play(self) -> None:
        """Show how the lock becomes free. Raises ``CommandError`` if too early."""
        self.victim.fire("endless-backup", "crash")
        until(lambda: JobRun.objects.filter(tick="crash").exists())
        self.show(f"{self.victim.name} began", LockState.RUNNING)
        self.victim.kill()
        self.show(f"{self.victim.name} is dead", LockState.RUNNING)
        self.try_to_run("too-early", SKIPPED)
        until(lambda: not status().state.is_held)
        self.show("its lease is over", LockState.EXPIRED)
        self.try_to_run("afterwards", RAN)
        self.show("and released it", LockState.FREE)
        check_ledger()

    def show(self, moment: str, state: LockState) -> None:
        """Write the lock's line. Raises ``CommandError`` if its state is another."""
        lock = status()
        left = f"{lock.remaining.total_seconds():.1f} s left"
        line = f"  {moment:<17}  {JOB}  {lock.state:<7}  {lock.locked_by}"
        self.screen.write(f"{line}  {left}" if lock.state.is_held else line)
        if lock.state != state:
            raise CommandError(f"Lock {JOB} is {lock.state} instead of {state}.")

    def try_to_run(self, tick: str, expected: str) -> None:
        """Let the survivor start the job. Raises ``CommandError`` if it surprises."""
        self.survivor.fire("backup", tick)
        outcome = self.survivor.outcome()
        self.screen.write(f"  {self.survivor.name} {self.screen.outcome(outcome)}")
        if outcome != expected:
            raise CommandError(f"{JOB} {outcome} ({tick}); expected: {expected}.")


def status() -> LockStatus:
    """Return the state of the lock, by the database's clock."""
    status = get_provider().status(JOB)
    assert status is not None
    return status


def check_ledger() -> None:
    """Raise ``CommandError`` unless the second run alone came to its end."""
    runs = list(JobRun.objects.filter(job=JOB).order_by("began_at"))
    ledger = [(run.tick, run.ended_at is not None) for run in runs]
    if ledger != [("crash", False), ("afterwards", True)]:
        raise CommandError(f"The ledger has these runs of {JOB}: {ledger}.")


def until(condition: Callable[[], bool]) -> None:
    """Wait for ``condition``, at most ``PATIENCE`` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise CommandError(f"It did not happen within {PATIENCE} s.")
        time.sleep(0.05)
