"""Broken rules of records, of lost replies and of single writes fail a test."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Never

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockStatus
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.entries import Entry, EntryLockProvider, Found, Read
from django_shedlock.testing.contract import LockProviderContract, harness
from tests.contract.test_rules import run


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


class TestKeepsTexts(LockProviderContract):
    """The whole contract, with the provider whose subclasses break rules."""

    backend: type[LockProvider] = KeepsTexts

    @contextmanager
    def lose_replies(self, provider: KeepsTexts, count: int) -> Iterator[None]:
        provider.lost_replies = count
        yield
        assert provider.lost_replies < count
        provider.lost_replies = 0

    def spoil_record(self, provider: KeepsTexts, name: str, flaw: bytes) -> None:
        provider.texts[name] = flaw.decode(errors="surrogateescape")

    def raw_record(self, provider: KeepsTexts, name: str) -> object:
        return provider.texts[name]

    def forget_record(self, provider: KeepsTexts, name: str) -> None:
        provider.texts.pop(name, None)


FOUND = [
    (TakesLostRepliesForRefusals, "test_acquisition_whose_reply_is_lost"),
    (TakesLostRepliesForRefusals, "test_tick_whose_reply_is_lost"),
    (IsNeverUncertain, "test_acquisition_whose_reply_is_lost"),
    (IsNeverUncertain, "test_acquisition_in_doubt_is_given_back"),
    (IsNeverUncertain, "test_extension_whose_reply_is_lost"),
    (IsNeverUncertain, "test_release_whose_reply_is_lost"),
    (IsNeverUncertain, "test_loss_whose_reply_is_lost"),
    (IsNeverUncertain, "test_request_whose_reply_is_lost"),
    (SendsWritesAgain, "test_forced_release_whose_reply_is_lost"),
    (SendsWritesAgain, "test_pause_whose_reply_is_lost"),
    (DoesNotKnowItsOwn, "test_acquisition_whose_reply_is_lost"),
    (
        DoesNotKnowItsOwn,
        "test_killed_run_is_counted_once_although_a_reply_is_lost",
    ),
    (TakesBadRecordsForFree, "test_bad_record_is_not_acquired"),
    (TakesBadRecordsForFree, "test_bad_record_hides_no_other"),
    (HidesBadRecords, "test_bad_record_hides_no_other"),
    (FailsAtBadRecords, "test_bad_record_hides_no_other"),
    (RequestsOverBadRecords, "test_bad_record_is_not_overwritten"),
    (ForgetsNewerFields, "test_fields_of_a_newer_version_stay"),
    (CreatesOverOthers, "test_record_that_was_created_meanwhile"),
    (ComparesTheHolder, "test_each_write_counts"),
    (ComparesTheHolder, "test_record_that_was_extended_meanwhile"),
    (WritesOverDeletions, "test_record_that_was_deleted_meanwhile"),
    (DeletesOnRelease, "test_success_is_accounted_for"),
    (ReadsStaleRecords, "test_extend_three_times"),
    (MixesUpThreads, "test_threads_get_their_own_answers"),
    (TruncatesNames, "test_longest_name"),
    (MissesNames, "test_names_are_taken_literally"),
]

FAILURES = (AssertionError, LockProviderError, ValueError, pytest.fail.Exception)


@pytest.mark.parametrize(("backend", "name"), FOUND)
def test_broken_rule_is_found(
    backend: type[LockProvider], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test passes with texts that break no rule, and fails with this provider."""
    run(KeepsTexts, name, TestKeepsTexts)
    monkeypatch.setattr(harness, "WAIT_LIMIT_SECONDS", 1)
    with pytest.raises(FAILURES):
        run(backend, name, TestKeepsTexts)
