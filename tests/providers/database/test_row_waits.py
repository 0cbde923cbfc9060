"""A row that somebody else's transaction keeps, and how often it is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.db import Error, connection, connections, transaction
from django.db.backends.utils import CursorWrapper

from django_shedlock import LockProviderError, execute
from django_shedlock.locks.lock import Lock
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.sql import errors
from django_shedlock.sql.fields import DatabaseNow
from tests.support.locks import LEASE, configure, take, try_from

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]

LIMITS = {
    "postgresql": "SET lock_timeout = '100ms'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 1",  # the shortest there is
}


@pytest.fixture
def provider() -> Iterator[DatabaseLockProvider]:
    """A provider of a caller that waits for a row only shortly."""
    with connection.cursor() as cursor:
        cursor.execute(LIMITS[connection.vendor])
    yield DatabaseLockProvider("default")
    connection.close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each statement of any connection that waited for a row, in vain."""
    found: list[str] = []
    really = CursorWrapper.execute

    def execute(cursor: CursorWrapper, sql: Any, *values: Any) -> Any:
        try:
            return really(cursor, sql, *values)
        except Error as error:
            if errors.is_lock_timeout(error):
                found.append(sql)
            raise

    monkeypatch.setattr(CursorWrapper, "execute", execute)
    return found


@contextmanager
def kept(change: Callable[[Any], object]) -> Iterator[None]:
    """Let another transaction have made this change, and not committed it yet."""
    other = connections["default"].copy()
    other.set_autocommit(False)
    try:
        with other.cursor() as cursor:
            change(cursor)
        yield
    finally:
        other.rollback()
        other.close()


def keep_record(cursor: Any) -> None:
    cursor.execute("UPDATE shedlock SET locked_by = locked_by WHERE name = 'job'")


def keep_record_soon(cursor: Any) -> None:
    cursor.execute(LIMITS[connection.vendor])
    keep_record(cursor)


def make_record(cursor: Any) -> None:
    now = "UTC_TIMESTAMP(6)" if connection.vendor == "mysql" else "CLOCK_TIMESTAMP()"
    cursor.execute(
        "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) "
        f"VALUES ('job', {now}, {now}, 'java')"
    )


@contextmanager
def place(kind: str) -> Iterator[None]:
    """Be inside the caller's transaction, or in autocommit."""
    with transaction.atomic() if kind == "atomic" else nullcontext():
        yield


def test_fence_keeps_the_row() -> None:
    """Nobody else can change the record before the fenced transaction is over."""
    lock = take()
    with transaction.atomic():
        lock.fence()
        with pytest.raises(Error) as failure, kept(keep_record_soon):
            pytest.fail("the row is free")
    assert errors.is_lock_timeout(failure.value)
    with kept(keep_record_soon):
        assert lock.is_active


@pytest.mark.parametrize("kind", ["autocommit", "atomic"])
@pytest.mark.parametrize(
    ("history", "schedule"), [(True, None), (False, None), (True, "@hourly")]
)
def test_acquisition_waits_once(
    kind: str,
    history: bool,
    schedule: str | None,
    provider: DatabaseLockProvider,
    waits: list[str],
) -> None:
    """A start is skipped after one wait, with and without a history or a schedule."""
    take(configure(), provider).release()
    with kept(keep_record), place(kind):
        result = execute(
            list, "job", lock_at_most_for=LEASE, history=history, schedule=schedule
        )
    assert not result.was_executed
    assert len(waits) == 1


@pytest.mark.parametrize("kind", ["autocommit", "atomic"])
def test_acquisition_after_a_dead_worker_waits_once(
    kind: str, provider: DatabaseLockProvider, waits: list[str]
) -> None:
    """An acquisition that accounts for a dead worker's run waits for the row once."""
    take(configure(), provider)
    LockRecord.objects.update(lock_until=DatabaseNow())
    with kept(keep_record), place(kind):
        assert not isinstance(try_from(provider, configure()), Lock)
    assert len(waits) == 1


@pytest.mark.parametrize("kind", ["autocommit", "atomic"])
def test_creation_waits_once(
    kind: str, provider: DatabaseLockProvider, waits: list[str]
) -> None:
    """A first start is skipped after one wait for another's record of that name."""
    with kept(make_record), place(kind):
        assert not isinstance(try_from(provider, configure()), Lock)
    assert len(waits) == 1


@pytest.mark.parametrize("kind", ["autocommit", "atomic"])
@pytest.mark.parametrize(
    "use",
    [
        lambda lock: lock.provider.extend(lock, LEASE),
        lambda lock: lock.provider.extend(lock, LEASE, timedelta(0)),
        lambda lock: lock.provider.release(lock),
        lambda lock: lock.provider.heartbeat(lock),
        lambda lock: lock.provider.account_for_loss(lock, has_ended=False),
        lambda lock: lock.provider.note_unrecorded(lock.name),
        lambda lock: lock.provider.request_run(lock.name, "alice", "the mail moves"),
    ],
    ids=[
        *("extend", "extend both", "release", "heartbeat", "account for loss"),
        *("note unrecorded", "request run"),
    ],
)
def test_every_other_change_waits_once(
    kind: str,
    use: Callable[[Lock], object],
    provider: DatabaseLockProvider,
    waits: list[str],
) -> None:
    """Each reports the transaction that has the record, after one wait for it."""
    lock = take(configure(lock_at_most_for=LEASE), provider)
    with kept(keep_record), place(kind), pytest.raises(LockProviderError) as caught:
        use(lock)
    assert caught.value.is_blocked
    assert len(waits) == 1


@pytest.mark.parametrize("kind", ["autocommit", "atomic"])
def test_registration_waits_once(
    kind: str, provider: DatabaseLockProvider, waits: list[str]
) -> None:
    """A schedule that can't be registered now is reported after one wait."""
    take(configure(), provider).release()
    with kept(keep_record), place(kind), pytest.raises(LockProviderError):
        provider.register("job", Schedule("@hourly", "UTC"))
    assert len(waits) == 1
