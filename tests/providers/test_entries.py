"""The record of a lock in a store that can only compare and set."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_shedlock.clocks import EARLIEST_INSTANT, LATEST_INSTANT
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import JobState, LockState, RunOutcome
from django_shedlock.providers.entries import Entry, instant_of
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import STATE_INSTANTS, ScheduleState, to_text
from tests.support.leases import end_lease
from tests.support.locks import (
    MINUTE,
    configure,
    force_release,
    pause,
    status_of,
    take,
    try_from,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECONDS = NOON.timestamp()
OLD = Entry("me", SECONDS, SECONDS + 60, SECONDS, 7)
WRITTEN_BEFORE = {
    "locked_by": "me",
    "locked_at": SECONDS,
    "lock_until": SECONDS + 60,
    "lock_at_least_until": SECONDS,
    "fencing_token": 7,
    "is_released": False,
    "extended_at": None,
    "ticks": "",
}


def test_entry_that_was_written_before_there_were_runs() -> None:
    """An entry from before runs were stored is read with an empty job state."""
    entry = Entry.from_json(json.dumps(WRITTEN_BEFORE))
    assert entry == OLD
    assert entry.job() == JobState()
    assert entry.state(SECONDS) is LockState.RUNNING
    assert entry.state(SECONDS + 60) is LockState.FREE


def test_entry_is_read_as_it_was_written() -> None:
    """Each value comes back, also those that only a newer version knows."""
    entry = replace(
        OLD,
        open_run="me",
        last_run="you",
        outcome="lost",
        started_at=SECONDS - 9.5,
        failures=3,
        usual=12.25,
        asked_why="grün",
        others={"later": [1, None], "others": "odd"},
    )
    assert Entry.from_json(entry.to_json()) == entry
    written = json.loads(entry.to_json())
    assert (written["later"], written["others"]) == ([1, None], "odd")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("open_run", 5),
        ("outcome", "\ud800"),
        ("asked_by", ["alice"]),
        ("started_at", "yesterday"),
        ("ended_at", 1e300),
        ("failures", None),
        ("failures", "many"),
        ("usual", 1e15),
        ("usual", "long"),
        ("usual", float("nan")),
        ("locked_by", None),
        ("is_released", "no"),
    ],
)
def test_value_that_is_none_of_a_lock(field: str, value: object) -> None:
    """A wrong value in an entry raises ValueError, and no other error."""
    text = json.dumps({**WRITTEN_BEFORE, field: value})
    with pytest.raises(ValueError):  # noqa: PT011
        Entry.from_json(text)


@pytest.mark.parametrize(
    ("seconds", "instant"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1e18, LATEST_INSTANT),
        (-1e18, EARLIEST_INSTANT),
    ],
)
def test_instant_that_nobody_can_show(seconds: float, instant: datetime) -> None:
    """The nearest one is shown."""
    assert instant_of(seconds) == instant


def test_fields_of_a_newer_version_stay() -> None:
    """Whatever this version does with the lock, it writes them back."""
    locks = MemoryLockProvider("local")
    locks._entries["job"] = replace(Entry.free(0), others={"later": 1})
    lock = take(configure(), locks)
    assert locks.extend(lock, MINUTE)
    locks.request_run("job", "alice", "again")
    asked_at = status_of(locks, "job").job.asked_at
    assert asked_at is not None
    assert locks.withdraw_request("job", asked_at)
    assert locks.release(lock)
    locks.register("job", Schedule("@hourly", "UTC"))
    locks.note_unrecorded("job")
    end_lease(take(configure(), locks))
    assert force_release(locks, "job")
    locks.account_for_loss(lock, has_ended=True)
    assert locks.release(pause("job", locks))
    assert locks._entries["job"].others == {"later": 1}


class RefusesWrites(MemoryLockProvider):
    """Takes each write for one that came too late."""

    refuses = False

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        return not self.refuses and super().write(name, entry, version)


class Changes:
    """The steps that change a record."""

    def __init__(self, locks: RefusesWrites):
        self._locks = locks
        self._held = take(configure("held"), locks)
        self._lost = take(configure("lost"), locks)
        self._lost.declare_lost()
        locks.request_run("held", "alice", "again")

    def acquire(self) -> object:
        return try_from(self._locks, configure("free"))

    def extend(self) -> object:
        return self._locks.extend(self._held, 2 * MINUTE)

    def release(self) -> object:
        return self._locks.release(self._held)

    def release_lost(self) -> object:
        return self._locks.release(self._lost)

    def account_for_loss(self) -> object:
        return self._locks.account_for_loss(self._held, has_ended=True)

    def replace(self) -> object:
        return self._locks.replace(status_of(self._locks, "held"), 2 * MINUTE)

    def request_run(self) -> object:
        return self._locks.request_run("held", "bob", "now")

    def withdraw_request(self) -> object:
        asked_at = status_of(self._locks, "held").job.asked_at
        assert asked_at is not None
        return self._locks.withdraw_request("held", asked_at)

    def note_unrecorded(self) -> object:
        return self._locks.note_unrecorded("held")

    def register(self) -> object:
        return self._locks.register("free", Schedule("@hourly", "UTC"))


@pytest.mark.parametrize("change", [n for n in vars(Changes) if not n.startswith("_")])
def test_store_that_refuses_each_write(change: str) -> None:
    """A store that never takes a change, and never says why, holds nobody up."""
    locks = RefusesWrites("local")
    changes = Changes(locks)
    locks.refuses = True
    with pytest.raises(LockProviderError, match=r"'(held|lost|free)'.*100 attempts"):
        getattr(changes, change)()


def test_run_of_a_holder_that_is_not_ours() -> None:
    """Of a run before another program's, the start is not known."""
    entry = replace(OLD, open_run="we", locked_by="java")
    after = entry.acquired("us", SECONDS + 99, MINUTE, token=1, epoch=0.0)
    assert (after.last_run, after.started_at) == ("we", None)
    assert (after.ended_at, after.failures) == (SECONDS + 60, 1)
    lost = entry.lost("we", SECONDS + 99, 0.0, has_ended=False)
    assert (lost.outcome, lost.started_at, lost.ended_at) == ("lost", None, None)
    released = entry.force_released(SECONDS + 1, 0.0)
    assert (released.outcome, released.ended_at) == ("abandoned", SECONDS + 1)


def test_instants_of_a_job_are_those_of_the_wall_clock() -> None:
    """In memory another clock ends the leases, which nobody else knows."""
    locks = MemoryLockProvider("local")
    assert locks.release(take(configure(), locks))
    job = status_of(locks, "job").job
    assert job.started_at is not None
    assert abs(job.started_at - datetime.now(UTC)) < 5 * MINUTE
    locks.request_run("job", "alice", "again")
    read = {status_of(locks, "job").job.asked_at for _ in range(50)}
    assert len(read) == 1  # else nobody could carry it out or withdraw it


@pytest.mark.parametrize(
    "moment", [EARLIEST_INSTANT, LATEST_INSTANT, NOON - timedelta(days=999)]
)
@pytest.mark.parametrize("expression", ["@yearly", "* * * * *", "59 23 31 12 *"])
@pytest.mark.parametrize("field", STATE_INSTANTS)
def test_ticks_of_odd_instants(moment: datetime, expression: str, field: str) -> None:
    """Everything that is asked of them has an answer, so no list breaks."""
    instants: dict[str, Any] = {field: moment}
    state = ScheduleState(Schedule(expression, "Pacific/Apia"), **instants)
    entry = replace(OLD, ticks=to_text(state))
    status = entry.status("job", SECONDS, NOON)
    free = replace(status, state=LockState.FREE)
    paused = replace(free, locked_by=Pause("alice", "").identity())
    ended = (replace(paused, released_at=each) for each in (moment, NOON))
    for each in (status, free, paused, *ended):
        assert each.next_tick is not None
        each.skips_since(ZERO)
        each.overdue_since(ZERO)
        each.may_catch_up(ZERO)
        each.owed_tick(Schedule(expression, "UTC"), ZERO, moment)
        each.registered(Schedule("@daily", "UTC"), moment)
        assert not each.unreadable


def test_outcome_that_a_newer_version_has() -> None:
    """A job needs a look if only a newer version knows its outcome."""
    entry = replace(OLD, last_run="me", outcome="interrupted", failures=1)
    assert entry.status("job", SECONDS, NOON).needs_look
    assert not entry.was_released_by(take(configure(), MemoryLockProvider("x")))
    assert entry.last_abandoned() is None
    assert entry.outcome not in set(RunOutcome)
