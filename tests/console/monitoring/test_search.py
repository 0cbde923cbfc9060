"""What findings read: records, and the history only for messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection

from django_shedlock import execute
from django_shedlock.clocks import local_text
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider, reading
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.sql.fields import DatabaseNow
from tests.support.locks import (
    MINUTE,
    Broken,
    add_run,
    configure,
    end_run,
    expire,
    status_of,
    take,
)
from tests.support.private_connections import counted_statements

pytestmark = pytest.mark.django_db

SEARCH = Search(MINUTE)
FAILED = RunOutcome.FAILED


def sentences(name: str = "job") -> list[str]:
    found = SEARCH.of_locks(get_provider(), [name]).get(name, [])
    return [each.sentence for each in found]


def kinds(name: str = "job") -> list[Kind]:
    found = SEARCH.of_locks(get_provider(), [name]).get(name, [])
    return [each.kind for each in found]


def hold_for(time: timedelta) -> None:
    LockRecord.objects.update(locked_at=DatabaseNow() - time)


def fail() -> None:
    raise Broken("no space left\non this device")


@pytest.mark.parametrize(("minutes", "takes_long"), [(2, False), (4, True)])
def test_job_takes_long_after_three_times_its_usual_duration(
    minutes: int, takes_long: bool
) -> None:
    """A failure says nothing about how long a run takes that succeeds."""
    end_run("job", duration=MINUTE)
    end_run("job", FAILED, duration=timedelta(seconds=1))
    take("job")
    hold_for(minutes * MINUTE)
    assert (Kind.LONG in kinds()) is takes_long


def test_short_job_takes_long_after_a_minute() -> None:
    """A job of a second that runs for ten is no reason to look."""
    end_run("job", duration=timedelta(seconds=1))
    take("job")
    hold_for(timedelta(seconds=10))
    assert kinds() == []
    hold_for(timedelta(seconds=70))
    assert kinds() == [Kind.LONG]


def test_failures_in_a_row_are_counted_since_the_last_success() -> None:
    """The finding says how many there are, and when it last went well."""
    end_run("job")
    end_run("job", FAILED)
    [once] = sentences()
    assert "in a row" not in once
    assert "It last succeeded at " in once
    end_run("job", RunOutcome.LOST)
    end_run("job", FAILED)
    [failed, lost] = sentences()
    assert "and 3 runs in a row have not succeeded" in failed
    assert lost.startswith("An earlier run lost its lock at ")
    end_run("job")
    assert kinds() == [Kind.LOST]  # for a day


def test_job_that_failed_and_runs_again_is_a_finding() -> None:
    """Nobody knows yet whether it will succeed this time."""
    end_run("job", FAILED)
    take("job")
    assert kinds() == [Kind.FAILED]


def test_workers_that_died_again_and_again() -> None:
    """The run that is not accounted for yet is the finding, and no earlier one."""
    take("job")
    for failures in range(1, 4):
        expire("job")
        take("job")
        assert status_of(get_provider(), "job").job.failures == failures
    expire("job")
    assert kinds() == [Kind.EXPIRED]
    take("job").release()
    assert kinds() == []


def test_message_is_read_by_the_key_of_the_run() -> None:
    """A row of another run, or of another provider's lock, is not the one."""
    with pytest.raises(Broken):
        execute(fail, "job")
    add_run("job", FAILED, exception_message="older", exception_type="a.Other")
    add_run("job", FAILED, provider="second", exception_message="not ours")
    [found] = SEARCH.of_locks(get_provider(), ["job"])["job"]
    at = local_text(status_of(get_provider(), "job").job.ended_at)
    told = f"Its last run failed at {at} with tests.support.locks.Broken."
    assert told in found.sentence
    assert found.raised == "It raised: no space left."


@pytest.mark.django_db(databases=["default", "other"])
def test_message_is_read_where_the_provider_keeps_its_runs() -> None:
    """Findings and messages come only from the database of their provider."""
    provider = DatabaseLockProvider("second", using="other")
    end_run("job", FAILED, using="other", provider="second", exception_message="there")
    end_run("job")
    [found] = SEARCH.of_locks(provider, ["job"])["job"]
    assert found.raised == "It raised: there."
    assert kinds() == []


def test_locks_without_a_history() -> None:
    """Locks in memory have findings as well, but without a message."""
    provider = MemoryLockProvider("local")
    lock = take(configure(), provider)
    provider.release(lock, succeeded=False)
    [found] = SEARCH.of_locks(provider, ["job"])["job"]
    at = local_text(status_of(provider, "job").job.ended_at)
    assert found.sentence == f"Its last run failed at {at}. Find out why."
    assert (found.kind, found.message) == (Kind.FAILED, "")


def test_unreadable_history_is_a_finding() -> None:
    """
    An unreadable history is a finding that names the database.

    Findings that need only the records are reported all the same.
    """

    def refuse(execute: Any, sql: str, *arguments: Any) -> Any:
        if "shedlock_run" in sql:
            raise DatabaseError("no reading today")
        return execute(sql, *arguments)

    end_run("job")
    with connection.execute_wrapper(refuse):
        [found] = SEARCH.attention(get_provider()).of_store
        assert (found.kind, found.fact) == (Kind.HISTORY, "history unreadable")
        assert "database 'default'" in found.sentence
        assert "no reading today" in found.sentence
        LockRecord.objects.update(outcome=FAILED.value)
        assert kinds() == [Kind.FAILED]
        assert [each.kind for each in SEARCH.verdict(["default"])] == [
            Kind.HISTORY,
            Kind.FAILED,
        ]


@pytest.mark.django_db(transaction=True)
def test_missing_table_of_runs() -> None:
    """Jobs run without it, and their records have the findings."""
    end_run("job", FAILED, exception_type="ValueError")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock_run RENAME TO elsewhere")
    try:
        told, [found] = sentences(), SEARCH.attention(get_provider()).of_store
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock_run")
    at = local_text(status_of(get_provider(), "job").job.ended_at)
    assert told == [f"Its last run failed at {at}. Find out why."]
    assert found.sentence.startswith("The history can't be read")
    assert found.command == "python manage.py migrate"


@pytest.mark.django_db(transaction=True)
def test_many_locks_are_read_in_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither records, actions nor runs are asked for with too many parameters."""
    monkeypatch.setattr(reading, "RECORDS_PER_READ", 2)
    names = [f"job {number}" for number in range(5)]
    for name in names:
        end_run(name, FAILED)
    with counted_statements() as statements:
        found = SEARCH.of_locks(get_provider(), names[::-1])
    assert len(statements) == 3 + 3 + 3
    assert [*found] == names
