"""Each rule of the contract that a provider in memory breaks fails a test."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta
from inspect import signature
from typing import Any

import pytest

from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.entries import Entry
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.testing.contract import LockProviderContract, harness
from django_shedlock.testing.contract.harness import configure, force_release
from tests.providers import test_memory


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


FOUND = [
    (WritesBlindly, "test_threads_never_overlap"),
    (EndsLeasesEarly, "test_lease_times_out"),
    (NeverEndsLeases, "test_lease_times_out"),
    (ForgetsAtLeast, "test_kept_for_lock_at_least_for"),
    (ForgetsAtLeast, "test_async_release_keeps_at_least"),
    (ReleasesForOthers, "test_late_release_spares_the_next_holder"),
    (ReleasesForOthers, "test_late_task_spares_the_next_holder"),
    (ExtendsForOthers, "test_expired_lock_is_not_extended"),
    (ExtendsForOthers, "test_late_extend_spares_the_next_holder"),
    (Shortens, "test_extend_never_shortens"),
    (GivesTokensTwice, "test_token_grows_with_each_acquisition"),
    (GivesTokensTwice, "test_interleaved_steps"),
    (BeginsTokensAnew, "test_token_grows_over_a_deleted_record"),
    (BeginsTokensAnew, "test_interleaved_steps"),
    (ForgetsOpenRuns, "test_expired_lock_has_an_open_run"),
    (ForgetsOpenRuns, "test_next_acquisition_accounts_for_a_killed_run"),
    (ForgetsOpenRuns, "test_interleaved_steps"),
    (CountsNoFailures, "test_failures_are_counted_until_a_success"),
    (CountsNoFailures, "test_interleaved_steps"),
    (CountsLossesAgain, "test_end_of_a_lost_run"),
    (CountsLossesAgain, "test_forced_release_of_a_living_run"),
    (CountsLossesAgain, "test_interleaved_steps"),
    (TakesLateEndsForTheLast, "test_body_ends_after_the_next_has_ended"),
    (TakesLateEndsForTheLast, "test_record_that_is_deleted_while_a_job_runs"),
    (TakesLateEndsForTheLast, "test_interleaved_steps"),
    (NoticesNoLosses, "test_loss_is_noticed_before_the_next_start"),
    (NoticesNoLosses, "test_body_ends_after_the_next_has_begun"),
    (NoticesNoLosses, "test_interleaved_steps"),
    (TakesPausesForRuns, "test_pause_accounts_for_a_killed_run"),
    (TakesPausesForRuns, "test_acquisition_without_a_run"),
    (TakesPausesForRuns, "test_interleaved_steps"),
    (LeavesRequestsOpen, "test_request_waits_while_the_job_runs"),
    (LeavesRequestsOpen, "test_interleaved_steps"),
    (CarriesOutAnyRequest, "test_request_that_is_made_anew"),
    (CarriesOutAnyRequest, "test_ordinary_start_leaves_a_request_open"),
    (WithdrawsAnyRequest, "test_request_that_is_withdrawn"),
    (WithdrawsAnyRequest, "test_interleaved_steps"),
    (TakesTheLastForUsual, "test_usual_duration"),
    (RefusesItsOwnAgain, "test_interleaved_steps"),
    (ForgetsTicks, "test_tick_runs_once"),
    (ForgetsTicks, "test_success_is_that_of_the_tick"),
    (IgnoresCase, "test_names_are_case_sensitive"),
    (HidesHolders, "test_second_holder_is_told_who_holds"),
    (HidesHolders, "test_holder_whose_run_is_over"),
    (HidesHolders, "test_async_pair"),
    (NeverRefuses, "test_async_pair"),
    (NeverRefuses, "test_async_refusal"),
    (Shortens, "test_async_extend"),
    (ExtendsForOthers, "test_late_task_spares_the_next_holder"),
    (ForgetsSuccess, "test_success_is_that_of_the_tick"),
    (ForgetsSuccess, "test_async_success_is_that_of_the_tick"),
    (ForgetsFailure, "test_failure_is_no_success"),
    (ForgetsFailure, "test_async_failure_is_no_success"),
    (ForgetsSuccess, "test_async_ticks"),
    (ForgetsFailure, "test_async_ticks"),
    (ForgetsTicks, "test_async_ticks"),
    *[
        (backend, "test_protocol")
        for backend in (
            EndsLeasesEarly,
            ForgetsAtLeast,
            ForgetsOpenRuns,
            GivesTokensTwice,
            ReleasesForOthers,
        )
    ],
]
ARGUMENTS = {
    "lost_count": 1,
    "flaw": b"no JSON",
    "wanted": configure(),
    "change": "request_run",
    "error": None,
}
"""What else tests of the contract are given."""


def run(
    backend: type[LockProvider],
    name: str,
    base: type[LockProviderContract] = test_memory.TestMemoryLockProvider,
    **options: Any,
) -> None:
    """Run a test of the contract for this provider."""
    contract = type("Broken", (base,), {"backend": backend})
    test = getattr(contract(), name)
    provider = backend("default", **options)
    fixtures = {**ARGUMENTS, "provider": provider, "options": options}
    test(**{key: fixtures[key] for key in signature(test).parameters})


@pytest.mark.parametrize(("backend", "name"), FOUND)
def test_broken_rule_is_found(
    backend: type[LockProvider], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test passes with the provider that breaks no rule, and fails with this."""
    run(MemoryLockProvider, name)
    # What will never be needs no patience; what will be may take its time.
    monkeypatch.setattr(harness, "WAIT_LIMIT_SECONDS", 1)
    with pytest.raises((AssertionError, ExceptionGroup, pytest.fail.Exception)):
        run(backend, name)
