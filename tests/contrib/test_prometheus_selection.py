"""Which locks have metrics of their own, where there are very many."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import override_settings

from django_shedlock.contrib.prometheus.selection import select
from django_shedlock.locks.own import BEAT_LOCK_PREFIX, CATCH_UP_LOCK
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.sql.fields import DatabaseNow
from tests.support.lateness import DAY, be_on_time, be_overdue
from tests.support.locks import end_run, expire, pause, take
from tests.support.private_connections import counted_statements

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
FAILED = RunOutcome.FAILED


@pytest.mark.each_store
@pytest.mark.parametrize("most", [10, 2, 1])
def test_selection_has_the_urgent_locks_first(most: int) -> None:
    """All states are counted, whatever is left out."""
    for name in ("a", "b"):
        take(name).release()
    take("running")
    take("late").release()
    be_overdue("late")
    end_run("failed", FAILED)
    selection = select(get_provider(), MINUTE, most)
    names = [status.name for status in selection.locks]
    assert set(names[:2]) <= {"late", "failed"} or most == 10
    assert len(names) == min(most, 5)
    assert selection.left_out == 5 - len(names)
    assert selection.states[LockState.RUNNING] == 1
    assert selection.states[LockState.FREE] == 4


def lose(name: str) -> None:
    """Lose a lock; then another run succeeds."""
    take(name).release()
    end_run(name, RunOutcome.LOST)
    LockRecord.objects.filter(name=name).update(lost_at=DatabaseNow() - MINUTE)
    end_run(name)


def pass_over(name: str) -> None:
    """Begin and succeed, two days after the tick before."""
    newest = be_on_time(name)
    records = LockRecord.objects.filter(name=name)
    records.update(former_tick=newest - 2 * DAY)


def ask(name: str) -> None:
    get_provider().request_run(name, "ada", "a customer waits")


def lack_history(name: str) -> None:
    get_provider().note_unrecorded(name)


FAULTS: dict[str, Callable[[str], object]] = {
    "overdue": be_overdue,
    "failed": lambda name: end_run(name, FAILED),
    "timed out": lambda name: end_run(name, RunOutcome.TIMED_OUT),
    "abandoned": lambda name: end_run(name, RunOutcome.ABANDONED),
    "lost": lose,
    "passed over": pass_over,
    "requested": ask,
    "unrecorded": lack_history,
    "running": take,
    "paused": pause,
}
"""All but ``requested`` and ``passed over`` show in the state or the last run."""


@pytest.mark.each_store
def test_one_lock_too_many_hides_no_fault() -> None:
    """Each fault keeps its metrics, and the free locks fill the other places."""
    for number in range(3):
        run(f"calm {number}")
    for name in (*FAULTS, "killed"):
        run(name)
    for name, fault in FAULTS.items():
        fault(name)
    take("killed")
    expire("killed")
    everything = select(get_provider(), MINUTE, 14)
    assert everything.left_out == 0
    selection = select(get_provider(), MINUTE, 13)
    assert selection.left_out == 1
    assert selection.states == everything.states
    names = {status.name for status in selection.locks}
    assert names == {*FAULTS, "killed", "calm 0", "calm 1"}
    few = select(get_provider(), MINUTE, 11)
    assert {status.name for status in few.locks} == {*FAULTS, "killed"}
    assert few.states == everything.states


def run(name: str) -> None:
    """Let a run succeed."""
    take(name).release()
    end_run(name)


@pytest.mark.each_store
def test_most_urgent_locks_come_first() -> None:
    """A request that waits comes before jobs that run, and before kept locks."""
    for number in range(3):
        take(f"kept {number}", lock_at_least_for=MINUTE).release()
        take(f"running {number}")
    for name in ("asked", "late", "bad"):
        run(name)
    ask("asked")
    be_overdue("late")
    end_run("bad", FAILED)
    selection = select(get_provider(), MINUTE, 4)
    names = [status.name for status in selection.locks]
    assert names[0] == "late"
    assert set(names[1:3]) == {"bad", "asked"}
    assert names[3] == "running 0"
    assert selection.states[LockState.RUNNING] == 3
    assert selection.states[LockState.HELD_AT_LEAST] == 3
    assert selection.states[LockState.FREE] == 3
    assert selection.left_out == 5


def test_lock_that_nobody_uses_any_more_keeps_its_metrics() -> None:
    """The selection prefers the free lock that was acquired longest ago."""
    for name in ("a", "b", "c"):
        run(name)
    LockRecord.objects.filter(name="b").update(locked_at=DatabaseNow() - DAY)
    selection = select(get_provider(), MINUTE, 1)
    assert [status.name for status in selection.locks] == ["b"]


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_number_of_locks_is_right_with_any_limit(most: int) -> None:
    """The selection counts all locks in each state, whatever its limit is."""
    take(f"{BEAT_LOCK_PREFIX}web-1")
    take("running")
    take("killed")
    expire("killed")
    run("calm")
    selection = select(get_provider(), MINUTE, most)
    assert len(selection.locks) == most
    assert selection.left_out == 3 - most
    counted = {state: number for state, number in selection.states.items() if number}
    assert counted == {
        LockState.RUNNING: 1,
        LockState.EXPIRED: 1,
        LockState.FREE: 1,
    }


@pytest.mark.parametrize("most", [10, 1])
def test_own_locks_are_left_out(most: int) -> None:
    """The lock of a beat is no job, even if the beat was killed, or is long gone."""
    for name in (CATCH_UP_LOCK, f"{BEAT_LOCK_PREFIX}web-1"):
        take(name).release()
        be_overdue(name)
        end_run(name, FAILED)
    end_run("job", FAILED)
    selection = select(get_provider(), MINUTE, most)
    assert [status.name for status in selection.locks] == ["job"]
    assert sum(selection.states.values()) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("most", "statements"), [(3, 8), (1000, 2)])
def test_selection_reads_records_only(most: int, statements: int) -> None:
    """No statement joins, or looks at the history, however many locks there are."""
    for number in range(5):
        end_run(f"job {number}", FAILED)
    with (
        override_settings(SHEDLOCK_HISTORY_RETENTION=None),
        counted_statements() as queries,
    ):
        select(get_provider(), MINUTE, most)
    assert len(queries) == statements
    for query in queries:
        assert query["sql"].count("SELECT") == 1
        assert "JOIN" not in query["sql"]
        assert "shedlock_run" not in query["sql"]
