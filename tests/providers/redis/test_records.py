"""What the provider keeps in Redis, for how long, and what it does with odd records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers.base import LockQuery
from django_shedlock.providers.redis import RedisLockProvider
from django_shedlock.schedules.cron import Schedule
from tests.providers.redis.test_contract import shift
from tests.support.locks import (
    MINUTE,
    configure,
    force_release,
    pause,
    status_of,
    take,
    try_from,
)
from tests.support.redis_servers import PATIENT, ReachableRedis

HOUR_IN_MS = 3_600_000
SCHEDULE = Schedule("0 8 * * *", "UTC")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SCHEDULED = LockConfiguration("job", MINUTE, schedule=SCHEDULE)


@pytest.fixture
def locks(server: ReachableRedis) -> Iterator[RedisLockProvider]:
    provider = RedisLockProvider("default", url=server.url, retention="1h", **PATIENT)
    yield provider
    provider.server.clients.close()


def test_record_is_readable_by_hand(
    locks: RedisLockProvider, server: ReachableRedis
) -> None:
    """Whole microseconds and plain texts, in one hash."""
    lock = take(configure("job"), locks)
    record = server.ask("HGETALL", "shedlock:{job}")
    assert record["by"] == record["rev"] == record["open_run"] == lock.locked_by
    assert record["released"] == "0"
    assert int(record["until"]) - int(record["at"]) == 60_000_000
    assert record["least"] == record["at"]
    assert int(record["token"]) == lock.fencing_token


def test_record_stays_for_its_retention(
    locks: RedisLockProvider, server: ReachableRedis
) -> None:
    """A lock's record expires one retention after the lock becomes free."""
    lock = take(configure("job"), locks)
    assert locks.release(lock)
    left = server.ask("PTTL", "shedlock:{job}")
    assert HOUR_IN_MS - 60_000 < left <= HOUR_IN_MS
    lock = take(configure("job", lock_at_least_for=MINUTE), locks)
    assert locks.release(lock)
    left = server.ask("PTTL", "shedlock:{job}")
    assert HOUR_IN_MS < left <= HOUR_IN_MS + 60_000


def test_record_of_a_pause_stays_for_its_retention(
    locks: RedisLockProvider, server: ReachableRedis
) -> None:
    """A pause opens no run, so its record stays for as long after the lease."""
    lock = pause("job", locks, MINUTE)
    assert HOUR_IN_MS < server.ask("PTTL", "shedlock:{job}") <= HOUR_IN_MS + 60_000
    assert locks.extend(lock, 10 * MINUTE)
    assert server.ask("PTTL", "shedlock:{job}") > HOUR_IN_MS + 500_000
    assert locks.release(lock)
    assert server.ask("PTTL", "shedlock:{job}") <= HOUR_IN_MS


@pytest.mark.parametrize("step", ["loss", "by force", "request", "next"])
def test_record_with_an_open_run_stays(
    locks: RedisLockProvider, server: ReachableRedis, step: str
) -> None:
    """A run is not forgotten before somebody has accounted for it."""
    server.ask("HSET", "shedlock:{job}", "by", "x", "until", 0)
    server.ask("PEXPIRE", "shedlock:{job}", HOUR_IN_MS)
    lock = take(configure("job"), locks)
    assert server.ask("PTTL", "shedlock:{job}") == -1
    assert locks.extend(lock, MINUTE)
    assert server.ask("PTTL", "shedlock:{job}") == -1
    if step == "loss":
        locks.account_for_loss(lock, has_ended=True)
    elif step == "by force":
        assert force_release(locks, "job")
    elif step == "request":
        locks.request_run("job", "alice", "again")
        assert server.ask("PTTL", "shedlock:{job}") == -1
        assert locks.release(lock)
    else:
        shift(locks, "job", timedelta(days=2))
        assert locks.release(take(configure("job"), locks))
    assert 0 < server.ask("PTTL", "shedlock:{job}") <= HOUR_IN_MS + 60_000


def test_request_stays_for_the_retention_of_its_record(
    locks: RedisLockProvider, server: ReachableRedis
) -> None:
    """A request keeps the record for a full retention, however old the lease is."""
    assert locks.release(take(configure("job"), locks))
    shift(locks, "job", timedelta(minutes=59))
    locks.request_run("job", "alice", "again")
    assert server.ask("PTTL", "shedlock:{job}") > HOUR_IN_MS - 60_000


@pytest.mark.parametrize("least", ["", "x", "nan", "1.0", "-1", "2"])
def test_format_is_read_alike(
    locks: RedisLockProvider, server: ReachableRedis, least: str
) -> None:
    """The scripts and Python refuse the same records, with the same advice."""
    lock = take(configure("job"), locks)
    server.ask("HSET", "shedlock:{job}", "min_format", least)
    assert "upgrade this process" in status_of(locks, "job").unreadable
    with pytest.raises(LockProviderError, match="newer version"):
        try_from(locks, configure("job"))
    with pytest.raises(LockProviderError, match="newer version"):
        lock.release()


@pytest.mark.parametrize("field", ["started_at", "failures", "usual", "asked_at"])
def test_unreadable_state_of_a_job(
    locks: RedisLockProvider, server: ReachableRedis, field: str
) -> None:
    """An unreadable state of a job is reported, and hides no other lock."""
    take(configure("other"), locks)
    take(configure("job"), locks)
    server.ask("HSET", "shedlock:{job}", field, "1e400")
    status, other = locks.statuses()
    assert status.unreadable
    assert not other.unreadable


def test_record_with_a_schedule_stays(
    locks: RedisLockProvider, server: ReachableRedis
) -> None:
    """A record with a schedule never expires, so no missed tick is forgotten."""
    take(configure("job"), locks).release()
    assert server.ask("PTTL", "shedlock:{job}") > 0
    locks.register("job", SCHEDULE, LONG_AGO)
    assert server.ask("PTTL", "shedlock:{job}") == -1
    shift(locks, "job", timedelta(days=2))
    for configuration in (configure("job"), SCHEDULED):
        lock = take(configuration, locks)
        assert locks.extend(lock, MINUTE)
        assert locks.release(lock)
        assert server.ask("PTTL", "shedlock:{job}") == -1


def take_token(
    locks: RedisLockProvider, configuration: LockConfiguration | None = None
) -> int:
    lock = take(configuration or configure("job"), locks)
    token = lock.fencing_token
    lock.release()
    assert token is not None
    return token


def test_token_grows_though_the_clock_is_set_back(
    locks: RedisLockProvider, server: ReachableRedis
) -> None:
    """A token counts on from the record's token if the clock is set back."""
    take_token(locks)
    server.ask("HSET", "shedlock:{job}", "token", 9_000_000_000_000_000)
    assert take_token(locks) == 9_000_000_000_000_001


@pytest.mark.parametrize(
    "prefix", ["", "a*b?[c]-^\\", "{one}:", "}{", "grün "], ids=repr
)
def test_names_and_prefixes_are_taken_literally(
    server: ReachableRedis, prefix: str
) -> None:
    """Special characters in names and prefixes are neither patterns nor cut."""
    names = ["job", "a{b}c", "*", "}", "[x]", "grün", "a b", "x:y"]
    server.ask("SET", f"{prefix}x{{other}}", "not ours")
    locks = RedisLockProvider("default", url=server.url, prefix=prefix, **PATIENT)
    for name in names:
        take(configure(name), locks)
    assert [status.name for status in locks.statuses()] == sorted(names)
    assert [status.name for status in locks.statuses(LockQuery(names={"*", "}"}))] == [
        "*",
        "}",
    ]
    locks.server.clients.close()


def test_two_prefixes_are_two_sets(server: ReachableRedis) -> None:
    """Providers with different prefixes don't see each other's locks."""
    one, other = (
        RedisLockProvider("default", url=server.url, prefix=prefix, **PATIENT)
        for prefix in ("one:", "other:")
    )
    take(configure(), one)
    assert not list(other.statuses())
    take(configure(), other)
    for locks in (one, other):
        locks.server.clients.close()


def test_many_locks_are_listed(
    locks: RedisLockProvider, server: ReachableRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one round trip reads."""
    monkeypatch.setattr(RedisLockProvider, "read_batch_size", 3)
    names = [f"job {number}" for number in range(8)]
    for name in names:
        take(configure(name), locks)
    assert [status.name for status in locks.statuses()] == names


@pytest.mark.parametrize("field", ["until", "at", "token", "ticks"])
def test_unreadable_record(
    locks: RedisLockProvider, server: ReachableRedis, field: str
) -> None:
    """An unreadable record is reported, and neither lost nor taken for a free lock."""
    take(configure("other"), locks)
    take(configure("job"), locks)
    server.ask("HSET", "shedlock:{job}", field, "x", "released", "0")
    status, other = locks.statuses()
    assert status.unreadable
    assert not other.unreadable
    assert status_of(locks, "job").unreadable
    if field != "ticks":
        with pytest.raises(LockProviderError, match="'job'"):
            force_release(locks, "job")
    if field == "until":
        with pytest.raises(LockProviderError, match=r"'job'.*correct or delete it"):
            try_from(locks, configure("job"))
    else:
        assert isinstance(try_from(locks, configure("job")), LockHolder)
    assert server.ask("HGET", "shedlock:{job}", field) == "x"


def test_abandoned_run_whose_start_is_unreadable(
    locks: RedisLockProvider, server: ReachableRedis
) -> None:
    """An abandoned run whose start is unreadable is reported without a start."""
    killed = take(configure("job"), locks)
    shift(locks, "job", timedelta(hours=1))
    server.ask("HSET", "shedlock:{job}", "at", "x")
    lock = take(configure("job"), locks)
    assert lock.abandoned is not None
    assert lock.abandoned.locked_by == killed.locked_by
    assert lock.abandoned.started_at is None
    job = status_of(locks, "job").job
    assert (job.started_at, job.failures) == (None, 1)
