"""The state of a lock, and its urgency: the database computes them as Python does."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest
from django.db.models import F

from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import (
    URGENCY_ORDER,
    LockState,
    LockStatus,
    RunOutcome,
    state_of,
)
from django_shedlock.models import LockRecord
from django_shedlock.models.records import not_in_use
from django_shedlock.providers.base import LockQuery
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql.fields import DatabaseNow
from tests.support.lateness import HOUR

pytestmark = pytest.mark.django_db

WORKER, OTHER = "web-1:7:a", "web-2:8:b"
PAUSED = Pause("alice", "the mail server moves").identity()
BEFORE, SINCE = -3 * HOUR, -HOUR
"""A release of an earlier acquisition, which Java leaves in the record, or its own."""


@pytest.fixture
def states() -> dict[str, LockState]:
    """Make each record that there can be, and return its state by ``state_of()``."""
    now, records, states = DatabaseNow(), list[LockRecord](), dict[str, LockState]()
    for is_held, released, holder, run, outcome, due_in in product(
        (True, False),
        (None, BEFORE, SINCE),
        (WORKER, PAUSED),
        (None, WORKER, OTHER),
        (None, RunOutcome.FAILED.value),
        (None, -HOUR),
    ):
        record = LockRecord(
            name=f"{len(records):03}",
            locked_by=holder,
            locked_at=now - 2 * HOUR,
            lock_until=now + (HOUR if is_held else -HOUR),
            released_at=None if released is None else now + released,
            open_run=run,
            outcome=outcome,
            ended_at=None if outcome is None else now - HOUR,
            due_at=None if due_in is None else now + due_in,
        )
        records.append(record)
        states[record.name] = state_of(
            holder,
            is_held=is_held,
            is_released=released == SINCE,
            has_open_run=run is not None,
        )
    LockRecord.objects.bulk_create(records)
    # A release ends the lease where it began; then the clock was set back.
    LockRecord.objects.create(
        name="set back", locked_by=WORKER, locked_at=now + HOUR, lock_until=now
    )
    began = F("locked_at")
    set_back = LockRecord.objects.filter(name="set back")
    set_back.update(lock_until=began, released_at=began)
    states["set back"] = LockState.FREE
    return states


def test_database_computes_the_same_state(states: dict[str, LockState]) -> None:
    """Each record has the state that its facts have in Python."""
    rows = LockRecord.objects.with_status().values_list("name", "state")
    assert dict(rows) == states
    assert set(states.values()) == set(LockState)


def test_database_filters_by_the_same_states(states: dict[str, LockState]) -> None:
    """The conditions in SQL select the locks of one state, or of several states."""
    records, provider = LockRecord.objects.all(), DatabaseLockProvider("default")
    for state in LockState:
        found = provider.statuses(LockQuery(states=[state]))
        wanted = [name for name in states if states[name] is state]
        assert [status.name for status in found] == wanted
    held = {name for name, state in states.items() if state.is_held}
    in_use = {name for name, state in states.items() if state.is_in_use}
    assert {record.name for record in records.held()} == held
    assert {record.name for record in records.acquirable()} == states.keys() - held
    unused = {record.name for record in records.filter(not_in_use())}
    assert unused == states.keys() - in_use


@pytest.mark.usefixtures("states")
@pytest.mark.parametrize("grace", [None, timedelta(minutes=5)])
def test_database_sorts_by_the_same_urgency(grace: timedelta | None) -> None:
    """The most urgent locks come first, whoever sorts them."""
    query = LockQuery(states=list(LockState), overdue_by=grace, by_urgency=True)
    found = list(DatabaseLockProvider("default").statuses(query))
    by_name = sorted(found, key=name_of)
    assert [each.name for each in found] == [
        each.name for each in query.select(by_name)
    ]
    places = [status.urgency(grace) for status in found]
    assert places == sorted(places)
    first = 0 if grace else 1
    assert {URGENCY_ORDER[place] for place in places} == set(URGENCY_ORDER[first:])


def name_of(status: LockStatus) -> str:
    return status.name
