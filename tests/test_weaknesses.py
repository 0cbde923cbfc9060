"""What other locks get wrong, on the database under test and by the public names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_shedlock import (
    InvalidLockConfiguration,
    Lock,
    LockLost,
    execute,
    extend_active_lock,
    hold,
    scheduler_lock,
)
from django_shedlock.models import LockRecord
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import force_release, held_elsewhere, is_held
from tests.support.locks import Broken

pytestmark = pytest.mark.django_db

BACKEND = "django_shedlock.providers.database.DatabaseLockProvider"
TWO_DATABASES = {
    "default": {"BACKEND": BACKEND, "OPTIONS": {"using": "default"}},
    "second": {"BACKEND": BACKEND, "OPTIONS": {"using": "other"}},
}


def pass_time(by: timedelta) -> None:
    """Let the record be that much older."""
    columns = ("locked_at", "lock_until", "lock_at_least_until")
    LockRecord.objects.update(**{column: F(column) - by for column in columns})


OF_THE_LOSER = {"outcome", "ended_at", "lost_at", "lost_run"}
"""Columns in which the record says that an earlier run was lost."""


def record() -> Mapping[str, Any]:
    """Return everything that the one record has of its holder."""
    values = LockRecord.objects.values().get()
    return {key: value for key, value in values.items() if key not in OF_THE_LOSER}


@contextmanager
def overtaken_lock() -> Iterator[Lock]:
    """Hold a lock whose lease is over, and which another worker of this host has."""
    with hold("job", lock_at_most_for="1h") as late:
        pass_time(timedelta(hours=2))
        with held_elsewhere("job"):
            yield late


def test_stale_holder_does_not_unlock_the_next_one() -> None:
    """Ownership is not the host's: a late release on the same host is none."""
    with overtaken_lock() as late:
        before = record()
        assert not late.release()
        assert record() == before
        assert LockRecord.objects.get().lost_run == late.locked_by


def test_stale_holder_does_not_extend_the_next_one() -> None:
    """A late extension on the same host changes nothing, and says so."""
    with overtaken_lock() as late:
        before = record()
        with pytest.raises(LockLost, match="'job'"):
            late.extend("3h")
        assert record() == before


def test_handled_loss_leaves_the_result_of_the_body() -> None:
    """A job that handles LockLost keeps the result of its body."""

    def body() -> str:
        assert force_release("job")
        with pytest.raises(LockLost):
            extend_active_lock("1m")
        return "done"

    assert execute(body, "job").value == "done"


def test_loss_that_was_not_handled_is_what_the_caller_sees() -> None:
    """The LockLost of the extension comes out, and not an error of the release."""

    def body() -> None:
        assert force_release("job")
        extend_active_lock("1m")

    with pytest.raises(LockLost, match="can't be extended"):
        execute(body, "job")


@contextmanager
def missing_table() -> Iterator[Callable[[], None]]:
    """Give a function that takes the table away until the end of the block."""
    names = ["shedlock", "elsewhere"]

    def rename() -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE {} RENAME TO {}".format(*names))
        names.reverse()

    try:
        yield rename
    finally:
        if names[0] != "shedlock":
            rename()


@pytest.mark.django_db(transaction=True)
def test_error_of_the_release_never_replaces_the_bodys() -> None:
    """The table is gone when the lock is released: the body's exception wins."""
    error = Broken("by the body")
    with missing_table() as take_away:
        with pytest.raises(Broken) as caught:
            with hold("job"):
                take_away()
                raise error
    assert caught.value is error
    assert "Could not release lock 'job'" in caught.value.__notes__[0]


def test_lock_at_least_for_does_not_begin_anew_with_an_extension() -> None:
    """What is left of it counts from the acquisition, by one clock."""
    with hold("job", lock_at_most_for="1h", lock_at_least_for="10m") as lock:
        pass_time(timedelta(minutes=4))
        end = record()["lock_at_least_until"]
        lock.extend("2h")
    assert record()["lock_at_least_until"] == end
    assert record()["lock_until"] == end


def test_extension_never_shortens_the_lease() -> None:
    """Extending by less than what is left only tells that the holder is alive."""
    with hold("job", lock_at_most_for="1h") as lock:
        before = {**record()}
        assert before.pop("extended_at") is None
        lock.extend("1s")
        after = {**record()}
        assert after.pop("extended_at") is not None
        assert after == before


def test_job_whose_row_was_deleted_runs_again() -> None:
    """A process that knows the name makes the row again, and does so each time."""
    for _ in range(3):
        assert execute(lambda: is_held("job"), "job").value is True
        LockRecord.objects.all().delete()


def test_row_that_is_deleted_in_the_body_stops_nobody() -> None:
    """A holder's release tolerates a deleted row, and the next run creates it again."""
    with hold("job") as lock:
        LockRecord.objects.all().delete()
    assert lock.is_lost
    assert execute(lambda: 7, "job").value == 7


def test_long_name_is_refused_before_any_statement() -> None:
    """A name that the column would cut never gets there."""
    with CaptureQueriesContext(connection) as queries:
        with pytest.raises(InvalidLockConfiguration, match="256 characters"):
            execute(lambda: 7, "x" * 256)
    assert len(queries) == 0


@pytest.mark.parametrize("other", ["Job", "JOB", "jöb", "jób", "jo\u0301b", "job."])
def test_names_that_look_alike_are_different_locks(other: str) -> None:
    """No collation takes two names for one."""
    with hold("job"):
        assert execute(lambda: 7, other).value == 7


def test_lease_begins_when_the_lock_is_taken_not_with_the_transaction() -> None:
    """A long transaction before it costs nothing of the lease."""
    with transaction.atomic():
        LockRecord.objects.count()
        before = read_clock()
        with hold("job", lock_at_most_for="1m"):
            row = record()
    assert row["locked_at"] >= before
    assert row["lock_until"] >= before + timedelta(minutes=1)


def read_clock() -> Any:
    """Return the database's clock now, by none of the code under test."""
    now = {
        "postgresql": "CLOCK_TIMESTAMP()",
        "mysql": "UTC_TIMESTAMP(6)",
        "sqlite": "STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW') || '000'",
    }[connection.vendor]
    LockRecord.objects.create(
        name="clock",
        locked_at=DatabaseNow(),
        lock_until=DatabaseNow(),
        locked_by="test",
    )
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE shedlock SET locked_at = {now} WHERE name = 'clock'")
    moment = LockRecord.objects.get(name="clock").locked_at
    LockRecord.objects.filter(name="clock").delete()
    return moment


@pytest.mark.django_db(databases=["default", "other"])
@override_settings(SHEDLOCK_PROVIDERS=TWO_DATABASES)
def test_second_provider_is_asked_for_its_own_lock() -> None:
    """Re-entry goes by provider and name: another store may refuse the name."""
    with hold("job"), held_elsewhere("job", provider="second"):
        assert not execute(lambda: 7, "job", provider="second").was_executed
        assert execute(lambda: 7, "job").was_executed


@pytest.mark.parametrize("lease", [0, "0s", timedelta(0), -1, "PT0S"])
def test_lease_of_no_time_is_refused(lease: Any) -> None:
    """With it everybody would get the lock at once, so nobody may ask for it."""
    with pytest.raises(InvalidLockConfiguration, match="must be positive"):
        execute(lambda: 7, "job", lock_at_most_for=lease)
    assert not LockRecord.objects.exists()


@pytest.mark.parametrize("name", ["", " ", "\t"])
def test_blank_name_is_refused(name: str) -> None:
    """Neither a call nor a decorator takes a lock without a name."""
    with pytest.raises(InvalidLockConfiguration, match="is blank"):
        execute(lambda: 7, name)
    with pytest.raises(InvalidLockConfiguration, match="is blank"):
        scheduler_lock(name)(lambda: 7)


def test_negative_lock_at_least_for_is_refused() -> None:
    """A negative lock_at_least_for is refused."""
    with pytest.raises(InvalidLockConfiguration, match="must not be negative"):
        execute(lambda: 7, "job", lock_at_least_for=-1)
    assert not LockRecord.objects.exists()
