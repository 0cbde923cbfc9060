"""Which locks have metrics of their own, where there are very many."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from django_shedlock.contrib.prometheus.selection import select
from django_shedlock.locks.own import BEAT_LOCK_PREFIX, CATCH_UP_LOCK
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.providers import get_provider
from tests.support.lateness import be_overdue
from tests.support.locks import end_run, take
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
@pytest.mark.parametrize(("most", "statements"), [(3, 7), (1000, 2)])
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
