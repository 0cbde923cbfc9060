"""The contract itself: for each rule that a provider breaks one of its tests fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.testing.contract import LockProviderContract, harness
from django_shedlock.testing.contract.faults import FaultContract
from django_shedlock.testing.contract.harness import configure
from django_shedlock.testing.contract.races import RaceContract, overlaps
from django_shedlock.testing.contract.wrong_clocks import WRONG_BY, WrongClockContract
from tests.providers import test_memory
from tests.support import broken_contract as broken

FOUND = [
    (broken.WritesBlindly, "test_threads_never_overlap"),
    (broken.EndsLeasesEarly, "test_lease_times_out"),
    (broken.NeverEndsLeases, "test_lease_times_out"),
    (broken.ForgetsAtLeast, "test_kept_for_lock_at_least_for"),
    (broken.ForgetsAtLeast, "test_async_release_keeps_at_least"),
    (broken.ReleasesForOthers, "test_late_release_spares_the_next_holder"),
    (broken.ReleasesForOthers, "test_late_task_spares_the_next_holder"),
    (broken.ExtendsForOthers, "test_expired_lock_is_not_extended"),
    (broken.ExtendsForOthers, "test_late_extend_spares_the_next_holder"),
    (broken.Shortens, "test_extend_never_shortens"),
    (broken.GivesTokensTwice, "test_token_grows_with_each_acquisition"),
    (broken.GivesTokensTwice, "test_interleaved_steps"),
    (broken.BeginsTokensAnew, "test_token_grows_over_a_deleted_record"),
    (broken.BeginsTokensAnew, "test_interleaved_steps"),
    (broken.ForgetsOpenRuns, "test_expired_lock_has_an_open_run"),
    (broken.ForgetsOpenRuns, "test_next_acquisition_accounts_for_a_killed_run"),
    (broken.ForgetsOpenRuns, "test_interleaved_steps"),
    (broken.CountsNoFailures, "test_failures_are_counted_until_a_success"),
    (broken.CountsNoFailures, "test_interleaved_steps"),
    (broken.CountsLossesAgain, "test_end_of_a_lost_run"),
    (broken.CountsLossesAgain, "test_forced_release_of_a_living_run"),
    (broken.CountsLossesAgain, "test_interleaved_steps"),
    (broken.TakesLateEndsForTheLast, "test_body_ends_after_the_next_has_ended"),
    (broken.TakesLateEndsForTheLast, "test_record_that_is_deleted_while_a_job_runs"),
    (broken.TakesLateEndsForTheLast, "test_interleaved_steps"),
    (broken.NoticesNoLosses, "test_loss_is_noticed_before_the_next_start"),
    (broken.NoticesNoLosses, "test_body_ends_after_the_next_has_begun"),
    (broken.NoticesNoLosses, "test_interleaved_steps"),
    (broken.TakesPausesForRuns, "test_pause_accounts_for_a_killed_run"),
    (broken.TakesPausesForRuns, "test_acquisition_without_a_run"),
    (broken.TakesPausesForRuns, "test_interleaved_steps"),
    (broken.LeavesRequestsOpen, "test_request_waits_while_the_job_runs"),
    (broken.LeavesRequestsOpen, "test_interleaved_steps"),
    (broken.CarriesOutAnyRequest, "test_request_that_is_made_anew"),
    (broken.CarriesOutAnyRequest, "test_ordinary_start_leaves_a_request_open"),
    (broken.WithdrawsAnyRequest, "test_request_that_is_withdrawn"),
    (broken.WithdrawsAnyRequest, "test_interleaved_steps"),
    (broken.TakesTheLastForUsual, "test_usual_duration"),
    (broken.RefusesItsOwnAgain, "test_interleaved_steps"),
    (broken.ForgetsTicks, "test_tick_runs_once"),
    (broken.ForgetsTicks, "test_success_is_that_of_the_tick"),
    (broken.IgnoresCase, "test_names_are_case_sensitive"),
    (broken.HidesHolders, "test_second_holder_is_told_who_holds"),
    (broken.HidesHolders, "test_holder_whose_run_is_over"),
    (broken.HidesHolders, "test_async_pair"),
    (broken.NeverRefuses, "test_async_pair"),
    (broken.NeverRefuses, "test_async_refusal"),
    (broken.Shortens, "test_async_extend"),
    (broken.ExtendsForOthers, "test_late_task_spares_the_next_holder"),
    (broken.ForgetsSuccess, "test_success_is_that_of_the_tick"),
    (broken.ForgetsSuccess, "test_async_success_is_that_of_the_tick"),
    (broken.ForgetsFailure, "test_failure_is_no_success"),
    (broken.ForgetsFailure, "test_async_failure_is_no_success"),
    (broken.ForgetsSuccess, "test_async_ticks"),
    (broken.ForgetsFailure, "test_async_ticks"),
    (broken.ForgetsTicks, "test_async_ticks"),
    *[
        (backend, "test_protocol")
        for backend in (
            broken.EndsLeasesEarly,
            broken.ForgetsAtLeast,
            broken.ForgetsOpenRuns,
            broken.GivesTokensTwice,
            broken.ReleasesForOthers,
        )
    ],
]


class TestKeepsTexts(LockProviderContract):
    """The whole contract, with the provider whose subclasses break rules."""

    backend: type[LockProvider] = broken.KeepsTexts

    @contextmanager
    def lose_replies(self, provider: broken.KeepsTexts, count: int) -> Iterator[None]:
        provider.lost_replies = count
        yield
        assert provider.lost_replies < count
        provider.lost_replies = 0

    def spoil_record(self, provider: broken.KeepsTexts, name: str, flaw: bytes) -> None:
        provider.texts[name] = flaw.decode(errors="surrogateescape")

    def raw_record(self, provider: broken.KeepsTexts, name: str) -> object:
        return provider.texts[name]

    def forget_record(self, provider: broken.KeepsTexts, name: str) -> None:
        provider.texts.pop(name, None)


TEXTS_FOUND = [
    (broken.TakesLostRepliesForRefusals, "test_acquisition_whose_reply_is_lost"),
    (broken.TakesLostRepliesForRefusals, "test_tick_whose_reply_is_lost"),
    (broken.IsNeverUncertain, "test_acquisition_whose_reply_is_lost"),
    (broken.IsNeverUncertain, "test_acquisition_in_doubt_is_given_back"),
    (broken.IsNeverUncertain, "test_extension_whose_reply_is_lost"),
    (broken.IsNeverUncertain, "test_release_whose_reply_is_lost"),
    (broken.IsNeverUncertain, "test_loss_whose_reply_is_lost"),
    (broken.IsNeverUncertain, "test_request_whose_reply_is_lost"),
    (broken.SendsWritesAgain, "test_forced_release_whose_reply_is_lost"),
    (broken.SendsWritesAgain, "test_pause_whose_reply_is_lost"),
    (broken.DoesNotKnowItsOwn, "test_acquisition_whose_reply_is_lost"),
    (
        broken.DoesNotKnowItsOwn,
        "test_killed_run_is_counted_once_although_a_reply_is_lost",
    ),
    (broken.TakesBadRecordsForFree, "test_bad_record_is_not_acquired"),
    (broken.TakesBadRecordsForFree, "test_bad_record_hides_no_other"),
    (broken.HidesBadRecords, "test_bad_record_hides_no_other"),
    (broken.FailsAtBadRecords, "test_bad_record_hides_no_other"),
    (broken.RequestsOverBadRecords, "test_bad_record_is_not_overwritten"),
    (broken.ForgetsNewerFields, "test_fields_of_a_newer_version_stay"),
    (broken.CreatesOverOthers, "test_record_that_was_created_meanwhile"),
    (broken.ComparesTheHolder, "test_each_write_counts"),
    (broken.ComparesTheHolder, "test_record_that_was_extended_meanwhile"),
    (broken.WritesOverDeletions, "test_record_that_was_deleted_meanwhile"),
    (broken.DeletesOnRelease, "test_success_is_accounted_for"),
    (broken.ReadsStaleRecords, "test_extend_three_times"),
    (broken.MixesUpThreads, "test_threads_get_their_own_answers"),
    (broken.TruncatesNames, "test_longest_name"),
    (broken.MissesNames, "test_names_are_taken_literally"),
]
FAILURES = (AssertionError, LockProviderError, ValueError, pytest.fail.Exception)
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


@pytest.mark.parametrize(("backend", "name"), TEXTS_FOUND)
def test_broken_rule_of_texts_is_found(
    backend: type[LockProvider], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for lost replies, bad records and single writes."""
    run(broken.KeepsTexts, name, TestKeepsTexts)
    monkeypatch.setattr(harness, "WAIT_LIMIT_SECONDS", 1)
    with pytest.raises(FAILURES):
        run(backend, name, TestKeepsTexts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder."""
    path = tmp_path / "locks"
    path.mkdir()
    return path


class Races(RaceContract):
    """What processes are asked that share a folder of locks."""

    backend = broken.FilesWithoutCompare


class WrongClocks(WrongClockContract):
    """What is asked of a host whose clock is wrong."""

    backend = broken.FilesByTheirClock


class Faults(FaultContract):
    """What is asked of a provider whose store fails."""

    backend: type[LockProvider] = broken.HidesFailures


def test_race_of_processes_is_found(folder: Path) -> None:
    """Of sixteen processes more than one get a lock that nothing compares."""
    options = {"folder": str(folder)}
    provider = broken.FilesWithoutCompare("default", **options)
    with pytest.raises(AssertionError):
        Races().test_one_of_sixteen_processes_wins(provider, options)


def test_lost_step_is_found(folder: Path, tmp_path: Path) -> None:
    """A number that processes count up without exclusion is too low."""
    options = {"folder": str(folder)}
    provider = broken.FilesWithoutCompare("default", **options)
    counter = tmp_path / "counter"
    counter.write_text("0")
    with pytest.raises(AssertionError):
        Races().test_processes_never_overlap(provider, options, counter)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["1 10 20", "2 19 29"], [("2", "1")]),
        (["1 10 20", "2 21 31"], []),
        (["1 10 20", "1", "2 19 29"], []),
        (["2 19 29", "1 10 20"], [("1", "2")]),
        (["2 21 31", "1 22 20"], []),
    ],
    ids=["overlap", "expired", "released", "written late", "began too late"],
)
def test_overlap_is_found(
    tmp_path: Path, lines: list[str], found: list[tuple[str, str]]
) -> None:
    """Two that began in each other's leases; who was held up until its end did not."""
    journal = tmp_path / "journal"
    journal.write_text("\n".join(lines))
    assert overlaps(journal) == found


HELD = "test_held_lock_on_a_host_with_a_wrong_clock"
EXPIRED = "test_expired_lock_on_a_host_with_a_wrong_clock"
WRITTEN = "test_what_a_host_with_a_wrong_clock_writes"


@pytest.mark.parametrize(
    ("backend", "name", "by"),
    [
        (broken.ReadsWithTheHostsClock, HELD, WRONG_BY),
        (broken.ReadsWithTheHostsClock, HELD, -WRONG_BY),
        (broken.ReadsWithTheHostsClock, EXPIRED, -WRONG_BY),
        (broken.ReadsWithTheHostsClock, WRITTEN, WRONG_BY),
        (broken.ReadsWithTheHostsClock, WRITTEN, -WRONG_BY),
        (broken.TellsTheHostsClock, HELD, WRONG_BY),
        (broken.TellsTheHostsClock, WRITTEN, -WRONG_BY),
    ],
)
def test_clock_of_the_host_is_found(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: type[LockProvider],
    name: str,
    by: timedelta,
) -> None:
    """Hosts whose clocks differ would not agree on who holds a lock."""
    options = {"folder": str(folder)}
    test = getattr(WrongClocks(), name)
    test(broken.FilesByTheirClock("default", **options), options, by)
    for record in folder.iterdir():
        record.unlink()
    monkeypatch.setattr(WrongClocks, "backend", backend)
    with pytest.raises(AssertionError):
        test(backend("default", **options), options, by)


def test_hidden_failure_is_found() -> None:
    """A lock that is "held" since its store fails would hide that no job runs."""
    with pytest.raises(pytest.fail.Exception):
        Faults().test_unreachable_store({}, "acquire")
    with pytest.raises(pytest.fail.Exception):
        Faults().test_unreachable_list({})


def test_uncertainty_without_a_reason_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever reads it would look for a run that never began."""
    monkeypatch.setattr(Faults, "backend", broken.IsAlwaysUncertain)
    with pytest.raises(AssertionError):
        Faults().test_unreachable_store({}, "acquire")


def test_failure_without_a_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the error must know which lock, and of which provider."""
    monkeypatch.setattr(Faults, "backend", broken.FailsWithoutNames)
    for call in ("acquire", "extend", "release"):
        with pytest.raises(AssertionError):
            Faults().test_unreachable_store({}, call)


def test_clock_without_a_store_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A health check that asks it would be green while no job with a lock runs."""
    monkeypatch.setattr(Faults, "backend", broken.AsksNoStoreForTheTime)
    with pytest.raises(pytest.fail.Exception):
        Faults().test_unreachable_clock({})
