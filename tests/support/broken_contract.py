"""Providers that each break one rule, for the tests of the contract."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockStatus
from django_shedlock.providers.base import ALL_LOCKS, LockQuery
from django_shedlock.providers.entries import Entry, EntryLockProvider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.testing.contract.harness import force_release


class WritesBlindly(MemoryLockProvider):
    """It does not compare before it writes."""

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        time.sleep(0.001)
        self._entries[name] = entry
        return True


class EndsLeasesEarly(MemoryLockProvider):
    """Its leases are over at once."""

    shortest_lease = timedelta(minutes=1)  # so that no stall of the machine hides it

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        entry = replace(entry, lock_until=entry.locked_at)
        return super().write(name, entry, version)


class NeverEndsLeases(MemoryLockProvider):
    """Its locks are held until somebody releases them."""

    def read(self, name: str) -> tuple[Entry | None, Entry | None, float]:
        entry, version, now = super().read(name)
        if entry is not None and not entry.is_released:
            entry = replace(entry, lock_until=now + 1000)
        return entry, version, now


class ForgetsAtLeast(MemoryLockProvider):
    """A release always frees the lock."""

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        if entry.is_released:
            entry = replace(entry, lock_until=self.clock())
        return super().write(name, entry, version)


class ReleasesForOthers(MemoryLockProvider):
    """A release frees the lock, whoever holds it."""

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        return force_release(self, lock.name)


class ExtendsForOthers(MemoryLockProvider):
    """An extension does not ask who holds the lock, or whether its lease is over."""

    def extend(self, lock: Lock, *durations: timedelta) -> bool:
        entry, version, now = self.read(lock.name)
        assert entry is not None
        at_most, at_least, *_ = (each.total_seconds() for each in (*durations, ZERO))
        until = max(entry.lock_until, now + at_most)
        longer = replace(entry, lock_until=until, lock_at_least_until=now + at_least)
        return self.write(lock.name, replace(longer, extended_at=now), version)


class Shortens(MemoryLockProvider):
    """An extension may end the lease earlier."""

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        if entry.extended_at is not None:
            entry = replace(entry, lock_until=entry.extended_at + 60)
        return super().write(name, entry, version)


class GivesTokensTwice(MemoryLockProvider):
    """Its tokens do not grow."""

    def acquire(self, lock: Lock) -> LockHolder | None:
        holder = super().acquire(lock)
        if holder is None:
            lock.known_token = 1
        return holder

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        return super().write(name, replace(entry, fencing_token=1), version)


class BeginsTokensAnew(MemoryLockProvider):
    """Its tokens begin with 1 after a record was deleted."""

    def least_token(self, version: Any, clock: datetime) -> int:
        return 1


class ForgetsOpenRuns(MemoryLockProvider):
    """Nobody learns of a run whose worker died."""

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        return super().write(name, replace(entry, open_run=None), version)


class CountsNoFailures(MemoryLockProvider):
    """It says how the last run ended, and not how many have failed."""

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        return super().write(name, replace(entry, failures=0), version)


class CountsLossesAgain(MemoryLockProvider):
    """A run counts when its loss is noticed, and when it ends."""

    def account_for_loss(self, lock: Lock, *, has_ended: bool) -> None:
        super().account_for_loss(lock, has_ended=has_ended)
        entry, version, _ = self.read(lock.name)
        if entry is not None and has_ended:
            more = replace(entry, failures=entry.failures + 1)
            assert self.write(lock.name, more, version)


class TakesLateEndsForTheLast(MemoryLockProvider):
    """A body that ends late becomes the last run, whichever that is."""

    def account_for_loss(self, lock: Lock, *, has_ended: bool) -> None:
        super().account_for_loss(lock, has_ended=has_ended)
        entry, version, _ = self.read(lock.name)
        if entry is not None:
            lost = replace(entry, last_run=lock.locked_by, outcome="lost")
            assert self.write(lock.name, lost, version)


class NoticesNoLosses(MemoryLockProvider):
    """It leaves a lost run to the next acquisition."""

    def account_for_loss(self, lock: Lock, *, has_ended: bool) -> None:
        return


class TakesPausesForRuns(MemoryLockProvider):
    """It opens a run for each acquisition."""

    def acquire(self, lock: Lock) -> LockHolder | None:
        lock.opens_run = True
        return super().acquire(lock)


class LeavesRequestsOpen(MemoryLockProvider):
    """A start for a request does not close it."""

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        if version is not None and version.locked_by != entry.locked_by:
            entry = replace(
                entry,
                asked_at=version.asked_at,
                asked_by=version.asked_by,
                asked_why=version.asked_why,
            )
        return super().write(name, entry, version)


class CarriesOutAnyRequest(MemoryLockProvider):
    """A start takes whatever request is open for its own."""

    def acquire(self, lock: Lock) -> LockHolder | None:
        status = self.status(lock.name)
        if status is not None and status.job.asked_at is not None:
            start = replace(lock.configuration.start, request=status.job.asked_at)
            lock.configuration = replace(lock.configuration, start=start)
        return super().acquire(lock)


class WithdrawsAnyRequest(MemoryLockProvider):
    """It does not look which request is to be closed."""

    def withdraw_request(self, name: str, asked_at: datetime) -> bool:
        entry, version, _ = self.read(name)
        return entry is not None and self.write(name, entry.without_request(), version)


class TakesTheLastForUsual(MemoryLockProvider):
    """One outlier is what it takes for usual."""

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        took = time.monotonic() - lock.began
        released = super().release(lock, succeeded=succeeded)
        entry, version, _ = self.read(lock.name)
        assert entry is not None
        return released and self.write(lock.name, replace(entry, usual=took), version)


class RefusesItsOwnAgain(MemoryLockProvider):
    """A release that is sent again is not done."""

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        lock.was_release_tried = False
        return super().release(lock, succeeded=succeeded)


class ForgetsTicks(MemoryLockProvider):
    """It gives a lock again for a tick that was run."""

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        return super().write(name, replace(entry, ticks=""), version)


class IgnoresCase(MemoryLockProvider):
    """Names that differ in their case are one lock."""

    def read(self, name: str) -> tuple[Entry | None, Entry | None, float]:
        return super().read(name.lower())

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        return super().write(name.lower(), entry, version)


class HidesHolders(MemoryLockProvider):
    """It says that a lock is held, but not by whom."""

    def acquire(self, lock: Lock) -> LockHolder | None:
        holder = super().acquire(lock)
        return holder and replace(holder, locked_by="")


class NeverRefuses(MemoryLockProvider):
    """It gives a lock that somebody else holds."""

    def acquire(self, lock: Lock) -> LockHolder | None:
        force_release(self, lock.name)
        return super().acquire(lock)


class ForgetsSuccess(MemoryLockProvider):
    """It takes the success of a tick for a failure."""

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        return super().release(lock, succeeded=False)


class ForgetsFailure(MemoryLockProvider):
    """It takes the failure of a tick for a success."""

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        return super().release(lock)


class FilesWithoutCompare(EntryLockProvider):
    """Keeps locks in a folder, for all processes, and does not compare."""

    haste = 60
    """Its clock's; else processes wait a minute for a lock that nobody has."""

    def __init__(self, alias: str, *, folder: str, **options: Any):
        super().__init__(alias, **options)
        self.folder = Path(folder)

    def read(self, name: str) -> tuple[Entry | None, None, float]:
        path = self.folder / name
        entry = Entry.from_json(path.read_text()) if path.exists() else None
        return entry, None, self.clock()

    def write(self, name: str, entry: Entry, version: None) -> bool:
        new = self.folder.parent / f"{name} of {os.getpid()}"
        new.write_text(entry.to_json())
        time.sleep(0.005)
        new.rename(self.folder / name)
        return True

    def names(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]

    def clock(self) -> float:
        return time.monotonic() * self.haste


class HidesFailures(MemoryLockProvider):
    """Says "held" if its store fails."""

    is_shared = True

    def acquire(self, lock: Lock) -> LockHolder | None:
        return LockHolder("somebody", timedelta(minutes=1))

    def status(self, name: str) -> LockStatus | None:
        return None

    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        return iter(())


class FailsWithoutNames(MemoryLockProvider):
    """Its failures don't name the lock."""

    is_shared = True

    def read(self, name: str) -> tuple[Entry | None, Entry | None]:
        raise LockProviderError("It failed.")


class AsksNoStoreForTheTime(MemoryLockProvider):
    """Its store fails, and its clock goes on: it is the host's."""

    is_shared = True

    def read(self, name: str) -> tuple[Entry | None, Entry | None, float]:
        raise LockProviderError(f"No answer of lock {name!r} ({self.alias!r}).")
