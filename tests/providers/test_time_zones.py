"""Locks go by the database's clock, whatever zones the project and the server have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.utils import timezone

from django_shedlock.clocks import aware, clock_difference
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.schedules.cron import Schedule
from tests.support.clocks import store_clock
from tests.support.locks import (
    MINUTE,
    configure,
    force_release,
    status_of,
    take,
    try_from,
)
from tests.support.zones import project

pytestmark = pytest.mark.django_db(transaction=True)

LEASE = timedelta(minutes=10)
TOLERANCE = timedelta(minutes=5)
"""A zone is wrong by half an hour at least; a machine is slow by seconds."""
ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Pacific/Auckland")
SESSION_ZONE = {
    "postgresql": "SET TIME ZONE '{}'",
    "mysql": "SET time_zone = '{}'",
}


def set_session_zone(zone: str) -> None:
    connection = connections["default"]
    if connection.vendor in SESSION_ZONE:
        with connection.cursor() as cursor:
            cursor.execute(SESSION_ZONE[connection.vendor].format(zone))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("use_tz", "database_zone"),
    [(True, None), (True, "Asia/Tokyo"), (True, "America/Bogota"), (False, None)],
)
def test_lease_is_exact_in_every_zone(
    *, use_tz: bool, zone: str, database_zone: str | None
) -> None:
    """A lock is held for its lease and no longer, and its times read right."""
    with project(use_tz=use_tz, zone=zone, database_zone=database_zone):
        provider = DatabaseLockProvider("default")
        take(configure("job", LEASE), provider)
        holder = try_from(provider, configure("job", LEASE))
        assert isinstance(holder, LockHolder)
        assert LEASE - TOLERANCE < holder.remaining <= LEASE
        status = status_of(provider, "job")
        moment = status.locked_at
        moment = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
        assert abs(datetime.now(UTC) - moment) < TOLERANCE
        assert abs(clock_difference(LockRecord.objects.clock)) < TOLERANCE
        shift(-LEASE)
        assert isinstance(try_from(provider, configure("job", LEASE)), Lock)


def shift(by: timedelta) -> None:
    """Move the lock's lease by writing Python's datetimes, as another tool would."""
    record = LockRecord.objects.get()
    record.lock_until += by
    record.save(update_fields=["lock_until"])


@pytest.mark.servers_only
@pytest.mark.parametrize(
    ("first", "second"), [("+05:30", "-08:00"), ("-08:00", "+05:30")]
)
def test_sessions_in_different_zones_exclude_each_other(
    first: str, second: str
) -> None:
    """Two sessions whose zones differ see one and the same lease."""
    provider = DatabaseLockProvider("default")
    set_session_zone(first)
    take(configure("job", LEASE), provider)
    set_session_zone(second)
    holder = try_from(provider, configure("job", LEASE))
    assert isinstance(holder, LockHolder)
    assert LEASE - TOLERANCE < holder.remaining <= LEASE
    assert force_release(provider, "job")
    set_session_zone(first)
    assert isinstance(try_from(provider, configure("job", LEASE)), Lock)
    connections["default"].close()


@pytest.mark.servers_only
@pytest.mark.parametrize("session_zone", ["+05:30", "-08:00"])
@pytest.mark.parametrize(
    ("use_tz", "database_zone"), [(True, None), (True, "Asia/Tokyo"), (False, None)]
)
def test_session_zone_changes_no_lease(
    *, use_tz: bool, database_zone: str | None, session_zone: str
) -> None:
    """A session in another zone than the project's gives the same lease."""
    with project(use_tz=use_tz, zone="Asia/Kolkata", database_zone=database_zone):
        connections["default"].ensure_connection()
        set_session_zone(session_zone)
        provider = DatabaseLockProvider("default")
        lock = take(configure("job", LEASE), provider)
        holder = try_from(provider, configure("job", LEASE))
        assert isinstance(holder, LockHolder)
        assert LEASE - TOLERANCE < holder.remaining <= LEASE
        assert provider.release(lock)
        assert isinstance(try_from(provider, configure("job", LEASE)), Lock)


QUARTERS = Schedule("*/15 * * * *", "UTC")
REPEATED = datetime(2026, 10, 25, 1, 0, tzinfo=UTC)
"""In Berlin it is the second time that it is 2 o'clock."""


@pytest.mark.parametrize("zone", [*ZONES, "Europe/Berlin"])
@pytest.mark.parametrize(
    ("use_tz", "database_zone", "session_zone"),
    [
        (True, None, None),
        (True, "Asia/Tokyo", None),
        # SQLite has no sessions with zones.
        pytest.param(True, None, "+05:30", marks=pytest.mark.servers_only),
        (False, None, None),
        pytest.param(False, None, "-08:00", marks=pytest.mark.servers_only),
    ],
)
def test_ticks_are_exact_in_every_zone(
    *,
    use_tz: bool,
    zone: str,
    database_zone: str | None,
    session_zone: str | None,
) -> None:
    """The tick is chosen, written and read right, also in an hour that is repeated."""
    with project(use_tz=use_tz, zone=zone, database_zone=database_zone):
        connections["default"].ensure_connection()
        # With USE_TZ=False a zone of PostgreSQL's session is the project's own.
        if session_zone and (use_tz or connections["default"].vendor == "mysql"):
            set_session_zone(session_zone)
        run_three_ticks("job")


def run_three_ticks(name: str) -> None:
    provider = DatabaseLockProvider("default")
    configuration = LockConfiguration(name, MINUTE, schedule=QUARTERS)
    quarter = timedelta(minutes=15)
    for tick in (REPEATED - 2 * quarter, REPEATED, REPEATED + quarter):
        for late, runs in ((timedelta(0), True), (MINUTE, False)):
            with store_clock(tick + late):
                lock = try_from(provider, configuration)
                assert isinstance(lock, Lock) is runs, (name, tick)
                if isinstance(lock, Lock):
                    assert provider.release(lock)
                status = status_of(provider, name)
            ticks = status.schedule_state
            assert (ticks.tick, ticks.due_at) == (tick, tick + quarter), name
            off = aware(status.clock) - tick - late
            assert abs(off) < TOLERANCE, name


def test_first_tick_in_an_hour_that_is_repeated() -> None:
    """A new name gets the tick of the second of two hours that read alike."""
    with project(use_tz=False, zone="Europe/Berlin", database_zone=None):
        provider = DatabaseLockProvider("default")
        configuration = LockConfiguration("job", MINUTE, schedule=QUARTERS)
        with store_clock(REPEATED):
            assert provider.release(take(configuration, provider))
            assert isinstance(try_from(provider, configuration), LockHolder)
            status = status_of(provider, "job")
        assert status.schedule_state.tick == REPEATED
