"""The clock of locks in a project's tests: freezegun, time-machine, and our own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import freezegun
import pytest
import time_machine
from django.db import transaction
from django.test import override_settings

from django_shedlock import InvalidLockConfiguration, execute, hold, scheduler_lock
from django_shedlock.console.monitoring.search import Search
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.testing import (
    aforce_release,
    force_release,
    held_elsewhere,
    is_held,
    locked_in_memory,
    run_as_if_at,
    unlocked,
)

MONDAY = datetime(2026, 3, 2, 2, 30, tzinfo=UTC)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)

At = Callable[[datetime], AbstractContextManager[Any]]


@scheduler_lock("times.nightly", schedule="30 2 * * *", lock_at_most_for="10m")
def nightly() -> str:
    return "ran"


@scheduler_lock("times.kept", lock_at_most_for="10m", lock_at_least_for="1m")
def kept() -> str:
    return "ran"


@scheduler_lock("times.nightly_kept", schedule="30 2 * * *", lock_at_least_for="1m")
async def nightly_kept() -> str:
    return "ran"


@pytest.fixture(
    params=[
        freezegun.freeze_time,
        partial(time_machine.travel, tick=False),
        run_as_if_at,
    ],
    ids=["freezegun", "time-machine", "run_as_if_at"],
)
def at(request: pytest.FixtureRequest) -> At:
    """Something that moves the clock."""
    moves: At = request.param
    return moves


@pytest.fixture(autouse=True)
def utc() -> Any:
    with override_settings(TIME_ZONE="UTC"), locked_in_memory():
        yield


def test_ticks_are_moved(at: At) -> None:
    """A tick runs once, and so does the next one."""
    for day in range(3):
        with at(MONDAY + day * DAY):
            assert [nightly(), nightly()] == ["ran", None]


def test_at_least_is_moved(at: At) -> None:
    """A lock that is kept for a minute is free a minute later, and not before."""
    with at(MONDAY):
        assert [kept(), kept()] == ["ran", None]
        assert is_held("times.kept")
    with at(MONDAY + MINUTE - timedelta(seconds=1)):
        assert kept() is None
    with at(MONDAY + MINUTE):
        assert not is_held("times.kept")
        assert kept() == "ran"


def test_lease_is_moved(at: At) -> None:
    """The lock of a worker that died can be acquired once its lease is over."""
    with at(MONDAY):
        elsewhere = held_elsewhere("times.kept")
        elsewhere.enable()
        assert kept() is None
    with at(MONDAY + 2 * MINUTE):
        assert kept() is None
    with at(MONDAY + timedelta(hours=1)):
        assert kept() == "ran"
    elsewhere.disable()


def test_ticks_and_at_least_go_by_one_clock(at: At) -> None:
    """A moved clock decides on a coroutine's ticks, its least time and its status."""
    with at(MONDAY):
        assert asyncio.run(nightly_kept()) == "ran"
    with at(MONDAY + DAY):
        assert asyncio.run(nightly_kept()) == "ran"
        status = get_provider().status("times.nightly_kept")
        assert status is not None
        assert status.clock == MONDAY + DAY
        assert status.lock_until == MONDAY + DAY + MINUTE
        assert status.next_tick == MONDAY + 2 * DAY


def test_overdue_goes_by_it_too(at: At) -> None:
    """A test may ask for what an operator would see a day later."""
    with at(MONDAY):
        nightly()
    provider = get_provider()
    with at(MONDAY + DAY + 3 * MINUTE):
        found = Search(MINUTE).of_locks(provider, ["times.nightly"])
    assert [each.kind for each in found["times.nightly"]] == ["overdue"]


def test_wait_ends_while_the_clock_stands_still(at: At) -> None:
    """Whoever waits for a lock does so by a clock that no test moves."""
    with at(MONDAY), held_elsewhere("times.kept"):
        assert not execute(kept, "times.kept", wait="50ms").was_executed


def test_clock_goes_on_without_them() -> None:
    """The in-memory clock shows the host's time again after run_as_if_at()."""
    provider = get_provider()
    assert abs(provider.now() - datetime.now(UTC)) < MINUTE
    with run_as_if_at(MONDAY):
        with run_as_if_at(MONDAY + DAY):
            assert provider.now() == MONDAY + DAY
        assert provider.now() == MONDAY
    assert abs(provider.now() - datetime.now(UTC)) < MINUTE


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_error_of_the_body_passes(error: type[BaseException]) -> None:
    """The clock goes on, and no complaint about ticks hides the error."""
    with pytest.raises(error), run_as_if_at(MONDAY + MINUTE):
        nightly()
        raise error
    assert get_provider().now() > MONDAY + DAY


@override_settings(TIME_ZONE="Europe/Berlin")
def test_tick_is_a_text_or_an_instant() -> None:
    """A tick without a time zone is in the project's time zone."""
    for tick in ("2026-03-02 02:30", "2026-03-02T01:30Z", datetime(2026, 3, 2, 2, 30)):
        with locked_in_memory(), run_as_if_at(tick):
            assert get_provider().now() == datetime(2026, 3, 2, 1, 30, tzinfo=UTC)
            assert nightly() == "ran"


@pytest.mark.parametrize("tick", ["monday", "", 7, None, date(2026, 3, 2)])
def test_what_is_no_instant_is_refused(tick: Any) -> None:
    """The error says what to write."""
    with pytest.raises(ValueError, match="2026-03-02 02:30") as refusal:
        with run_as_if_at(tick):
            pytest.fail("unreachable")
    assert repr(tick) in str(refusal.value)


@pytest.mark.parametrize("off", [-MINUTE, MINUTE, timedelta(seconds=1)])
def test_instant_between_ticks_is_refused(off: timedelta) -> None:
    """The error names the lock, its schedule, and the ticks on both sides."""
    with pytest.raises(AssertionError, match="is no tick of lock") as refusal:
        with run_as_if_at(MONDAY + off):
            nightly()
    told = str(refusal.value)
    assert "'times.nightly', whose schedule is '30 2 * * * UTC'" in told
    before, after = (1, 2) if off < timedelta(0) else (2, 3)
    assert f"2026-03-0{before} 02:30:00+00:00 and 2026-03-0{after} 02:30" in told


def test_skipped_start_between_ticks_is_refused_too() -> None:
    """A skip would look as if the tick had been run."""
    with run_as_if_at(MONDAY):
        nightly()
    with pytest.raises(AssertionError, match="is no tick of lock"):
        with run_as_if_at(MONDAY + MINUTE):
            assert nightly() is None


def test_job_without_a_schedule_has_no_ticks() -> None:
    """A job without a schedule may start at any time."""
    with run_as_if_at(MONDAY + MINUTE):
        assert kept() == "ran"


def test_only_memory_has_such_a_clock() -> None:
    """The error says what is missing: the locks in memory, or the locks."""
    with unlocked(), pytest.raises(AssertionError, match="SHEDLOCK_ENABLED is off"):
        with run_as_if_at(MONDAY):
            pytest.fail("unreachable")
    with pytest.raises(InvalidLockConfiguration, match="other"):
        with run_as_if_at(MONDAY, provider="other"):
            pytest.fail("unreachable")
    database = "django_shedlock.providers.database.DatabaseLockProvider"
    with override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": database}}):
        with pytest.raises(AssertionError, match=r"inside locked_in_memory\(\)"):
            with run_as_if_at(MONDAY):
                pytest.fail("unreachable")


def test_released_by_force_the_tick_is_open_again() -> None:
    """The next test step runs the same tick once more, also if the lock is kept."""
    with run_as_if_at(MONDAY):
        assert [nightly(), nightly()] == ["ran", None]
        assert not force_release("times.nightly")
        assert [nightly(), nightly()] == ["ran", None]
        assert asyncio.run(nightly_kept()) == "ran"
        assert asyncio.run(aforce_release("times.nightly_kept"))
        assert asyncio.run(nightly_kept()) == "ran"
    assert not force_release("of nobody")


def test_schedule_stays_when_the_tick_is_open_again() -> None:
    """Only the tick that was begun is forgotten."""
    with run_as_if_at(MONDAY):
        nightly()
        force_release("times.nightly")
        status = get_provider().status("times.nightly")
    assert status is not None
    assert str(status.schedule) == "30 2 * * * UTC"
    assert status.schedule_state.due_at == MONDAY + DAY
    assert status.schedule_state.tick is None


DATABASE = {
    "default": {
        "BACKEND": "django_shedlock.providers.database.DatabaseLockProvider",
        "OPTIONS": {"using": "default"},
    }
}


@pytest.mark.each_store
@pytest.mark.django_db(transaction=True)
@override_settings(SHEDLOCK_PROVIDERS=DATABASE)
def test_tick_in_the_database_is_open_again() -> None:
    """``force_release()`` opens a tick again, even in a test's transaction."""

    def yearly() -> bool:
        return execute(lambda: None, "yearly", schedule="@yearly").was_executed

    assert [yearly(), yearly()] == [True, False]
    assert not force_release("yearly")
    assert LockRecord.objects.get(name="yearly").tick is None
    assert [yearly(), yearly()] == [True, False]
    with transaction.atomic():
        assert not force_release("yearly")
        assert [yearly(), yearly()] == [True, False]
    with hold("yearly"):
        assert force_release("yearly")
