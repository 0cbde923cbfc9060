"""Instants that other programs write into the table, and that Python hardly knows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from django_shedlock import scheduler_lock
from django_shedlock.clocks import EARLIEST, LATEST, aware
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.states import LockState
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from tests.support.by_hand import ago, far, write
from tests.support.commands import run
from tests.support.lateness import give_schedule, newest_tick
from tests.support.locks import MINUTE, add_run, status_of, take
from tests.support.zones import project

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["America/Chicago", "Asia/Tokyo", "UTC"])
def zone(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(
    autouse=True, params=[(True, None), (True, "Asia/Tokyo"), (False, None)]
)
def _project(request: pytest.FixtureRequest, zone: str) -> Iterator[None]:
    use_tz, database_zone = request.param
    with project(use_tz=use_tz, zone=zone, database_zone=database_zone):
        yield


def test_paused_by_sql() -> None:
    """A job whose lock is held for ever is skipped, until somebody releases it."""
    ran = []
    job = scheduler_lock("job", lock_at_most_for="1m")(lambda: ran.append(1))
    for text in far():
        job()
        ran.clear()
        write(
            "shedlock", "job", lock_until=text, released_at="2026-01-01", locked_by="me"
        )
        write("shedlock", "job", locked_at="2026-01-02")
        job()
        assert not ran, text
        status = status_of(get_provider(), "job")
        assert status.state is LockState.RUNNING
        assert aware(status.lock_until) == LATEST
        assert status.remaining > timedelta(days=7000 * 365)
        assert "running" in run("list")
        run("release", "job", "--force", "--reason", "test")
        job()
        assert ran, text


def test_acquired_long_ago() -> None:
    """A lock whose instants are before all others, or none, is as free as it says."""
    take().release()
    take("other")
    for text in ago():
        write("shedlock", "job", lock_until=text, locked_at=text)
        statuses = {status.name: status for status in get_provider().statuses()}
        assert (
            EARLIEST <= aware(statuses["job"].lock_until) < EARLIEST.replace(year=2026)
        )
        assert not statuses["job"].remaining
        assert statuses["other"].remaining > MINUTE
        assert "job" in run("list")
        assert "other" in run("list")
        take().release()


def test_ticks_far_away() -> None:
    """A tick that is far away neither ends the list nor keeps the job from its next."""
    take().release()
    for text in [*far(), *ago()]:
        give_schedule("job", tick=newest_tick(), succeeded=None)
        write("shedlock", "job", tick=text, due_at=text, caught_up_tick=text)
        status = status_of(get_provider(), "job")
        assert status.next_tick is not None
        assert timedelta(0) < status.next_tick - aware(status.clock) < timedelta(days=2)
        status.overdue_since(MINUTE)
        status.may_catch_up(MINUTE)
        assert "NEXT" in run("list")
        for found in Search(MINUTE).findings(get_provider()):
            assert found.lock == "job"


def test_runs_far_away() -> None:
    """The history shows runs that began and ended whenever."""
    add_run("job")
    for text in [*far(), *ago()]:
        write("shedlock_run", "job", started=text, finished=text)
        [seen] = LockRun.objects.all()
        assert EARLIEST <= aware(seen.started) <= LATEST
        assert "job" in run("history")


def test_nothing_stays_nothing() -> None:
    """A column without a value has none, and neither has a question without a row."""
    take()
    record = LockRecord.objects.get()
    assert (record.released_at, record.tick) == (None, None)
    runs = LockRun.objects.filter(name="none")
    assert runs.values_list("started", flat=True).first() is None
