"""
The clock, which has whole seconds.

Whatever moment of its second an acquisition was, the lease lasts from that moment on.
"""

from __future__ import annotations

from datetime import timedelta
from email.utils import formatdate
from typing import Any

import pytest

from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState
from django_shedlock.providers.dynamodb import DynamoDBLockProvider
from tests.support.locks import MINUTE, configure, status_of, take, try_from

NOON = 1_800_000_000
SECOND = timedelta(seconds=1)


class Date:
    """The second that replies tell; the header is all that knows it."""

    def __init__(self) -> None:
        self.second = NOON

    def tell(self, parsed: Any, **_: Any) -> None:
        header = formatdate(self.second, usegmt=True)
        parsed["ResponseMetadata"]["HTTPHeaders"]["date"] = header


@pytest.fixture
def date(locks: DynamoDBLockProvider) -> Date:
    date = Date()
    locks.clients.get().meta.events.register("after-call.dynamodb", date.tell)
    return date


def is_free(locks: DynamoDBLockProvider) -> bool:
    """Return whether it can be acquired; it is left as it was."""
    return status_of(locks, "job").refusal(configure().start, None) is None


def test_clock_is_that_of_the_reply(locks: DynamoDBLockProvider, date: Date) -> None:
    """The provider takes the time from DynamoDB's reply, not from its own host."""
    assert locks.clock() == locks.now().timestamp() == NOON
    take(configure(), locks)
    assert status_of(locks, "job").locked_at.timestamp() == NOON


@pytest.mark.parametrize(
    ("lease", "last"), [(SECOND, 1), (MINUTE, 60), (1.5 * SECOND, 2), (1.1 * SECOND, 2)]
)
def test_lease_lasts_through_its_second(
    locks: DynamoDBLockProvider, date: Date, lease: timedelta, last: int
) -> None:
    """Acquired at its end, the lease is over at the end of that one; never before."""
    take(configure(lock_at_most_for=lease), locks)
    date.second += last
    assert not is_free(locks)
    assert status_of(locks, "job").state is LockState.RUNNING
    date.second += 1
    assert is_free(locks)
    assert status_of(locks, "job").state is LockState.EXPIRED


def test_extension_lasts_through_its_second(
    locks: DynamoDBLockProvider, date: Date
) -> None:
    """A lease counts as held in its last second, and can still be extended then."""
    lock = take(configure(lock_at_most_for=MINUTE), locks)
    date.second += 60
    for _ in range(2):
        assert locks.extend(lock, SECOND)
        date.second += 1
        assert not is_free(locks)
    date.second += 1
    assert is_free(locks)
    assert not locks.extend(lock, SECOND)


def test_released_lock_is_free_at_once(locks: DynamoDBLockProvider, date: Date) -> None:
    """In the second of its acquisition, too."""
    for _ in range(2):
        assert locks.release(take(configure(), locks))
        assert is_free(locks)
        assert status_of(locks, "job").state is LockState.FREE


def test_operator_releases_at_once(locks: DynamoDBLockProvider, date: Date) -> None:
    """Nothing is left of a second."""
    take(configure(lock_at_least_for=MINUTE), locks)
    assert locks.replace(status_of(locks, "job"), ZERO)
    assert is_free(locks)


@pytest.mark.parametrize("released_after", [0, 1, 59, 60])
def test_lock_is_kept_through_its_second(
    locks: DynamoDBLockProvider, date: Date, released_after: int
) -> None:
    """Whenever it was released, also in that very second."""
    configuration = LockConfiguration("job", 2 * MINUTE, MINUTE)
    lock = take(configuration, locks)
    date.second += released_after
    assert locks.release(lock)
    date.second = NOON + 60
    assert not is_free(locks)
    assert status_of(locks, "job").state is LockState.HELD_AT_LEAST
    date.second += 1
    assert is_free(locks)


def test_holder_relies_on_no_part_of_a_second(
    locks: DynamoDBLockProvider, date: Date
) -> None:
    """What it learns of its lease has passed at the end of the second."""
    lock = take(configure(lock_at_most_for=MINUTE), locks)
    for passed in (0, 30, 60):
        date.second = NOON + passed
        status = locks.lease_of(lock)
        assert status is not None
        real_end = NOON + 61
        assert date.second + 1 + status.remaining.total_seconds() <= real_end
    assert locks.lease_of(Lock(locks, configure("other"))) is None


def test_waiting_caller_is_told_a_second(
    locks: DynamoDBLockProvider, date: Date
) -> None:
    """In the last one, so that it does not ask again and again."""
    take(configure(lock_at_most_for=MINUTE), locks)
    date.second += 60
    holder: Any = try_from(locks, configure())
    assert holder.remaining == SECOND


def test_change_of_the_job_holds_no_lock(
    locks: DynamoDBLockProvider, date: Date
) -> None:
    """A lock that was released in this second stays free, and a held one held."""
    lock = take(configure(), locks)
    date.second += 1
    locks.request_run("job", "alice", "again")
    assert status_of(locks, "job").state is LockState.RUNNING
    assert locks.replace(status_of(locks, "job"), ZERO)
    for _ in range(2):
        locks.account_for_loss(lock, has_ended=True)
        locks.request_run("job", "alice", "again")
        assert status_of(locks, "job").state is LockState.FREE
    assert is_free(locks)


def test_change_of_the_job_makes_no_lease_longer(
    locks: DynamoDBLockProvider, date: Date
) -> None:
    """In the last second of its lease, too."""
    take(configure(lock_at_most_for=SECOND), locks)
    date.second += 1
    assert not is_free(locks)
    locks.request_run("job", "alice", "again")
    date.second += 1
    assert is_free(locks)
