"""When the holder of a lock last extended its lease: whether it is alive."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing.contract.harness import force_extend
from tests.support.locks import LEASE, MINUTE, expire, take

pytestmark = pytest.mark.django_db


def record() -> LockRecord:
    return LockRecord.objects.with_status().get()


def age(by: timedelta = 4 * MINUTE) -> None:
    """Let the lock have been acquired that much earlier, for a lease of five."""
    LockRecord.objects.update(
        locked_at=DatabaseNow() - by, lock_until=DatabaseNow() + LEASE - by
    )


def test_lock_without_an_extension_has_no_heartbeat() -> None:
    """
    A lock without an extension has no heartbeat.

    Its lease counts from the acquisition.
    """
    take()
    age()
    assert record().heartbeat_at is None
    assert record().lease_used == pytest.approx(0.8, abs=0.05)


def test_extension_is_a_heartbeat() -> None:
    """The lease of a healthy job counts anew with each extension."""
    lock = take()
    age()
    lock.extend()
    assert record().heartbeat_at is not None
    assert record().lease_used == pytest.approx(0, abs=0.05)


def test_keep_alive_is_a_heartbeat() -> None:
    """The extensions of the heartbeat's thread count, too."""
    lock = take()
    age()
    assert get_provider().heartbeat(lock)
    assert record().heartbeat_at is not None


def test_extension_by_an_operator_is_no_heartbeat() -> None:
    """An extension by an operator is no heartbeat, since the holder may be dead."""
    take()
    age()
    assert force_extend(get_provider(), "job", LEASE)
    assert record().heartbeat_at is None


def test_next_holder_has_no_heartbeat_yet() -> None:
    """What the last holder did is forgotten with the next acquisition."""
    take().extend()
    expire("job")
    take()
    assert record().extended_at is None


def test_heartbeat_before_an_acquisition_by_java_does_not_count() -> None:
    """ShedLock does not know the column."""
    take().extend()
    LockRecord.objects.update(locked_at=DatabaseNow() + MINUTE)
    assert record().heartbeat_at is None


def test_lease_is_never_used_by_more_than_all_of_it() -> None:
    """Not when it is over, nor when it has no length."""
    take()
    LockRecord.objects.update(
        lock_until=DatabaseNow() - MINUTE, locked_at=DatabaseNow() - 2 * MINUTE
    )
    assert record().lease_used == 1.0
    LockRecord.objects.update(locked_at=DatabaseNow() + MINUTE)
    assert record().lease_used == 1.0
