"""Providers that each break one rule, for the tests of the contract."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Never

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockStatus
from django_shedlock.providers.base import ALL_LOCKS, LockQuery
from django_shedlock.providers.entries import Entry, EntryLockProvider, Found, Read
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.testing.contract.harness import force_release


class KeepsTexts(EntryLockProvider[str | None, Never]):
    """It breaks no rule: it keeps the records of one process as JSON."""

    is_shared = False

    def __init__(self, alias: str, **options: Any):
        super().__init__(alias, **options)
        self.texts: dict[str, str] = {}
        self.lost_replies = 0
        """So many changes are made, and their replies are lost."""

    def read(self, name: str) -> Read[str | None]:
        text = self.texts.get(name)
        return None if text is None else Entry.from_json(text), text, self.clock()

    def write(self, name: str, entry: Entry, version: str | None) -> bool:
        if self.texts.get(name) != version:
            return False
        self.texts[name] = entry.to_json()
        if self.lost_replies:
            self.lost_replies -= 1
            return self.lose_reply(name)
        return True

    def lose_reply(self, name: str) -> bool:
        error = LockProviderError(f"No reply about lock {name!r} ({self.alias!r}).")
        error.is_uncertain = True
        raise error

    def names(self) -> Iterable[str]:
        return list(self.texts)

    def clock(self) -> float:
        return time.time()


class TakesLostRepliesForRefusals(KeepsTexts):
    """A change whose reply is lost counts as one that somebody else prevented."""

    def acquire(self, lock: Lock) -> LockHolder | None:
        try:
            return super().acquire(lock)
        except LockProviderError:
            return LockHolder(lock.locked_by, timedelta(minutes=1))


class IsNeverUncertain(KeepsTexts):
    """Its errors say that nothing was done, although that is not known."""

    def lose_reply(self, name: str) -> bool:
        raise LockProviderError(f"No reply about lock {name!r} ({self.alias!r}).")


class SendsWritesAgain(KeepsTexts):
    """Its client sends a write again, and takes its own for somebody else's."""

    def lose_reply(self, name: str) -> bool:
        return False


class DoesNotKnowItsOwn(KeepsTexts):
    """An acquisition that is sent again is refused: the lock is held, by itself."""

    def acquire(self, lock: Lock) -> LockHolder | None:
        entry = self.read(lock.name)[0]
        if entry is not None and entry.belongs_to(lock):
            return LockHolder(lock.locked_by, timedelta(minutes=1))
        return super().acquire(lock)


class TakesBadRecordsForFree(KeepsTexts):
    """A record that it can't read is none."""

    def read(self, name: str) -> Read[str | None]:
        try:
            return super().read(name)
        except ValueError:
            return None, self.texts[name], self.clock()


class HidesBadRecords(KeepsTexts):
    """It lists only the records that it can read."""

    def _parsed(self, found: Found[Never]) -> Iterator[LockStatus]:
        return (each for each in super()._parsed(found) if not each.unreadable)


class FailsAtBadRecords(KeepsTexts):
    """One record that can't be read is the failure of the whole list."""

    def _unreadable(self, name: str, error: ValueError) -> LockStatus:
        raise LockProviderError(f"Can't read lock {name!r} ({self.alias!r}).")


class RequestsOverBadRecords(KeepsTexts):
    """A request makes a new record, also over one that it can't read."""

    def request_run(self, name: str, by: str, why: str) -> None:
        try:
            super().request_run(name, by, why)
        except LockProviderError:
            del self.texts[name]
            super().request_run(name, by, why)


class ForgetsNewerFields(KeepsTexts):
    """It drops the fields of a newer version."""

    def write(self, name: str, entry: Entry, version: str | None) -> bool:
        known = replace(entry, others={}) if entry.is_released else entry
        return super().write(name, known, version)


class CreatesOverOthers(KeepsTexts):
    """It compares no version if it saw no record."""

    def write(self, name: str, entry: Entry, version: str | None) -> bool:
        seen = self.texts.get(name) if version is None else version
        return super().write(name, entry, seen)


class ComparesTheHolder(KeepsTexts):
    """A write is refused only if somebody else has acquired the lock."""

    def write(self, name: str, entry: Entry, version: str | None) -> bool:
        text = self.texts.get(name)
        if text is None or version is None:
            return super().write(name, entry, version)
        holders = [Entry.from_json(each).locked_by for each in (text, version)]
        return holders[0] == holders[1] and super().write(name, entry, text)


class WritesOverDeletions(KeepsTexts):
    """It compares no version if there is no record any more."""

    def write(self, name: str, entry: Entry, version: str | None) -> bool:
        is_gone = name not in self.texts
        return super().write(name, entry, None if is_gone else version)


class DeletesOnRelease(KeepsTexts):
    """A released lock leaves no record."""

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        released = super().release(lock, succeeded=succeeded)
        del self.texts[lock.name]
        return released


class ReadsStaleRecords(KeepsTexts):
    """It reads each record once, and then from a cache."""

    def __init__(self, alias: str, **options: Any):
        super().__init__(alias, **options)
        self.cache: dict[str, Read[str | None]] = {}

    def status(self, name: str) -> LockStatus | None:
        return self._status_of(name, self.cache.setdefault(name, self.read(name)))


class MixesUpThreads(KeepsTexts):
    """It answers the question that was asked last, by whichever thread."""

    asked = ""

    def status(self, name: str) -> LockStatus | None:
        self.asked = name
        time.sleep(0.001)
        return super().status(self.asked)


class TruncatesNames(KeepsTexts):
    """It keeps the first 100 characters of a name."""

    def read(self, name: str) -> Read[str | None]:
        return super().read(name[:100])

    def write(self, name: str, entry: Entry, version: str | None) -> bool:
        return super().write(name[:100], entry, version)


class MissesNames(KeepsTexts):
    """It lists the names that need no quoting."""

    def names(self) -> Iterable[str]:
        return [name for name in super().names() if name.isalnum()]


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


class FilesByTheirClock(FilesWithoutCompare):
    """Its clock is that of the files, which no process can set."""

    def clock(self) -> float:
        clock = self.folder.parent / "clock"
        clock.touch()
        return clock.stat().st_mtime


class ReadsWithTheHostsClock(FilesByTheirClock):
    """Each host ends leases by its own clock."""

    def read(self, name: str) -> tuple[Entry | None, None, float]:
        return *super().read(name)[:2], time.time()


class TellsTheHostsClock(FilesByTheirClock):
    """Its clock is the host's, for all but the leases."""

    def wall_clock(self, now: float) -> datetime:
        return datetime.now(UTC)


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


class IsAlwaysUncertain(MemoryLockProvider):
    """Its errors say that something may have been done, although nothing was sent."""

    is_shared = True

    def read(self, name: str) -> tuple[Entry | None, Entry | None, float]:
        text = f"Nobody listens, lock {name!r} ({self.alias!r})."
        failure = LockProviderError(text)
        failure.is_uncertain = True
        raise failure from ConnectionRefusedError()


class AsksNoStoreForTheTime(MemoryLockProvider):
    """Its store fails, and its clock goes on: it is the host's."""

    is_shared = True

    def read(self, name: str) -> tuple[Entry | None, Entry | None, float]:
        raise LockProviderError(f"No answer of lock {name!r} ({self.alias!r}).")
