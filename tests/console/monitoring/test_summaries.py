"""The summary of each lock: its state, and how its last runs ended."""

from __future__ import annotations

from datetime import timedelta
from statistics import median_low
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, connections
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from django_shedlock import hold
from django_shedlock.console.monitoring import summaries
from django_shedlock.console.monitoring.findings import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.monitoring.summaries import (
    LockSummary,
    badly_ended,
    summarize,
)
from django_shedlock.exceptions import LockProviderError
from django_shedlock.fields import DatabaseNow
from django_shedlock.locks.states import LockState, LockStatus, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.models.last_runs import USUAL_OF, with_last_run
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockQuery
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.providers.memory import MemoryLockProvider
from tests.support.lateness import DAILY, DAY, be_on_time, be_overdue, newest_tick
from tests.support.locks import add_run, configure, expire, take, take_from

pytestmark = pytest.mark.django_db

FAILED = RunOutcome.FAILED
MINUTE = timedelta(minutes=1)


def summary(name: str = "job") -> LockSummary:
    [found] = summarize(get_provider(), [name])
    return found


def status(name: str = "job") -> LockStatus:
    found = summary(name).status
    assert found is not None
    return found


def add_runs(*outcomes: RunOutcome, name: str = "job") -> None:
    for outcome in outcomes:
        add_run(name, outcome)


def test_lock_without_runs() -> None:
    """Of a lock that never ended a run only its state is known."""
    take("job").release()
    [known] = get_provider().statuses()
    found = summary()
    assert found == LockSummary(name="job", status=found.status)
    assert (status().state, status().locked_by) == (LockState.FREE, known.locked_by)


def runs_too_long() -> bool:
    found = Search(DAY).of_locks(get_provider(), ["job"]).get("job", [])
    return any(each.kind is Kind.LONG for each in found)


def test_held_lock_tells_since_when_and_by_whom() -> None:
    """Of a held lock the time since it was taken is told, by the store's clock."""
    lock = take("job")
    LockRecord.objects.update(locked_at=DatabaseNow() - timedelta(minutes=3))
    assert (status().state.is_held, status().locked_by) == (True, lock.locked_by)
    assert 3 * MINUTE <= status().held_for < 4 * MINUTE


def test_lock_with_a_schedule_tells_its_ticks() -> None:
    """When its job is to run next, and since when it is overdue."""
    take("job").release()
    since = be_overdue("job")
    found = status()
    assert found.schedule == DAILY
    assert found.next_tick == newest_tick() + DAY
    assert found.overdue_since(MINUTE) == since
    assert found.overdue_since(timedelta(days=30)) is None
    be_on_time("job")
    assert status().overdue_since(MINUTE) is None


def test_lock_kept_after_its_run_is_held() -> None:
    """lock_at_least_for holds a lock as well."""
    take("job", lock_at_least_for=MINUTE).release()
    assert status().state is LockState.HELD_AT_LEAST


def test_expired_lock_is_held_by_nobody() -> None:
    """A lease that is over is held for no time."""
    take("job")
    expire("job")
    assert status().state is LockState.EXPIRED
    assert status().held_for == timedelta(0)


def test_last_run_is_told() -> None:
    """The last run that ended tells how, and how long it took."""
    add_run("job", FAILED, duration=MINUTE)
    with hold("job"):
        found = summary()
    assert found.last_outcome is FAILED
    assert found.last_duration == MINUTE


def test_usual_duration_is_that_of_successes() -> None:
    """A job that runs for much longer takes long; a failure says nothing of that."""
    add_run("job", duration=MINUTE)
    add_run("job", FAILED, duration=timedelta(seconds=1))
    take("job")
    assert summary().usual_duration == MINUTE
    for minutes, takes_long in [(2, False), (4, True)]:
        since = DatabaseNow() - minutes * MINUTE
        LockRecord.objects.update(locked_at=since)
        assert runs_too_long() is takes_long


def test_usual_duration_is_the_median_of_the_last_successes() -> None:
    """One run that found nothing to do does not make the next one look long."""
    add_run("job", duration=timedelta(days=1))  # too long ago to count
    for _ in range(USUAL_OF - 1):
        add_run("job", duration=10 * MINUTE)
    add_run("job", duration=timedelta(seconds=2))
    add_run("other", duration=timedelta(seconds=2))
    take("job")
    assert summary().usual_duration == 10 * MINUTE
    LockRecord.objects.update(locked_at=DatabaseNow() - timedelta(seconds=70))
    assert not runs_too_long()
    [shown] = with_last_run(LockRecord.objects.all(), "default")
    assert shown.usual_duration == 10 * MINUTE


@pytest.mark.parametrize("count", [0, 1, 2, USUAL_OF, USUAL_OF + 1])
def test_only_the_last_successes_count(count: int) -> None:
    """However many there are; of two in the middle it is the shorter one."""
    for number in range(count):
        add_run("job", duration=timedelta(seconds=number))
        add_run("job", FAILED, duration=timedelta(days=1))
    add_run("job", FAILED)
    counted = range(max(0, count - USUAL_OF), count)
    usual = timedelta(seconds=median_low(counted)) if counted else None
    assert summary().usual_duration == usual


def test_short_job_takes_long_after_a_minute() -> None:
    """A job of a second that runs for ten is no reason to look."""
    add_run("job", duration=timedelta(seconds=1))
    take("job")
    LockRecord.objects.update(locked_at=DatabaseNow() - timedelta(seconds=10))
    assert not runs_too_long()


def test_last_success_is_told_behind_failures() -> None:
    """The end of the last success is told, however many runs failed after it."""
    with hold("job"):
        pass
    succeeded = LockRun.objects.get()
    add_runs(FAILED, FAILED)
    found = summary()
    assert found.last_success == succeeded.finished
    assert timezone.now() - found.last_success < MINUTE
    assert found.last_outcome is FAILED


def test_name_that_has_only_runs() -> None:
    """A lock whose record was deleted is known by its runs, and has no schedule."""
    add_runs(FAILED, name="gone")
    take("job")
    found = summary("gone")
    assert (found.status, found.failures) == (None, 1)


def test_names_are_in_order() -> None:
    """Names come once each and sorted, whether they have records, runs or both."""
    for name in ("c", "a"):
        add_runs(FAILED, FAILED, name=name)
    for name in ("d", "a", "b"):
        take(name)
    names = [each.name for each in summarize(get_provider(), list("dcba"))]
    assert names == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("outcomes", "failures"),
    [
        ("", 0),
        ("succeeded", 0),
        ("failed", 1),
        ("failed succeeded", 0),
        ("failed succeeded failed lost abandoned", 3),
        ("succeeded failed succeeded failed", 1),
    ],
)
def test_failures_in_a_row(outcomes: str, failures: int) -> None:
    """What did not succeed is counted from the last success on."""
    take("job").release()
    add_runs(*map(RunOutcome, outcomes.split()))
    assert summary().failures == failures


def test_running_job_is_no_failure() -> None:
    """A run that has not ended counts neither as good nor as bad."""
    add_runs(FAILED)
    with hold("job"):
        assert summary().failures == 1


def test_dead_holders_are_failures() -> None:
    """Runs whose workers died count, though none of them told of an end."""
    add_runs(RunOutcome.SUCCEEDED, RunOutcome.RUNNING, RunOutcome.RUNNING)
    take("job").release()
    found = summary()
    assert (found.last_outcome, found.failures) == (RunOutcome.ABANDONED, 2)


@pytest.mark.parametrize(("failed", "counted"), [(2, 2), (3, 3), (4, 3), (9, 3)])
def test_failures_are_counted_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, failed: int, counted: int
) -> None:
    """A job that fails for ever is not counted to the end."""
    unkept = summaries._last_runs.__wrapped__
    monkeypatch.setattr(summaries, "_last_runs", unkept)
    monkeypatch.setattr(summaries, "MOST_FAILURES", 3)
    add_runs(RunOutcome.SUCCEEDED, *[FAILED] * failed)
    assert summary().failures == counted
    with hold("job"):
        assert summary().failures == counted


def test_runs_of_another_provider_are_not_ours() -> None:
    """Providers of one database keep their runs apart."""
    add_run("job", FAILED, provider="second")
    add_run("job", RunOutcome.SUCCEEDED)
    add_run("job", FAILED, provider="second")
    assert [each.name for each in summarize(get_provider(), ["job"])] == ["job"]
    assert (summary().failures, summary().last_outcome) == (0, RunOutcome.SUCCEEDED)


def test_runs_of_another_provider_make_no_lock() -> None:
    """A name that only another provider ran is no lock of this one."""
    add_run("job", FAILED, provider="second")
    assert summarize(get_provider(), ["job"]) == []


def test_memory_has_summaries_too() -> None:
    """Locks in memory have their states, and no runs."""
    provider = MemoryLockProvider("local")
    take_from(provider, configure())
    [found] = summarize(provider, ["job"])
    assert (found.name, found.last_outcome) == ("job", None)
    assert found.status is not None
    assert found.status.state.is_held
    assert timedelta(0) <= found.status.held_for < MINUTE


@pytest.mark.django_db(transaction=True)
def test_two_statements(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    """The number of statements is the same with one lock and with many."""
    names = []
    for number in range(6):
        names.append(f"job {number}")
        take(f"job {number}").release()
        add_runs(*[FAILED] * number, name=f"job {number}")
        be_overdue(f"job {number}")
        with django_assert_num_queries(2):
            found = [each.status for each in summarize(get_provider(), names)]
            assert all(each.overdue_since(MINUTE) for each in found if each)
            assert all(each and each.next_tick for each in found)


@pytest.mark.django_db(transaction=True)
def test_job_that_runs_again() -> None:
    """Its last run is the one before, and of older ones only a loss is told."""
    add_runs(RunOutcome.SUCCEEDED, RunOutcome.LOST, FAILED, FAILED)
    with hold("job"):
        found = summary()
    assert (found.last_outcome, found.failures) == (FAILED, 3)
    assert [trace.outcome for trace in found.bad] == [FAILED, RunOutcome.LOST]


@pytest.mark.django_db(transaction=True)
def test_many_wanted_names_are_sent_in_batches(
    monkeypatch: pytest.MonkeyPatch,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    """Neither records nor runs are asked for with too many parameters."""
    monkeypatch.setattr("django_shedlock.providers.database.reading.PAGE", 2)
    names = [f"job {number}" for number in range(5)]
    for name in names:
        take(name)
        add_runs(FAILED, name=name)
    assert [
        each.name for each in get_provider().statuses(LockQuery(names=names))
    ] == names
    with django_assert_num_queries(3 + 3):
        found = summarize(get_provider(), names[::-1])
    assert [(each.name, each.failures) for each in found] == [(n, 1) for n in names]


def test_unreadable_runs_are_a_clear_error() -> None:
    """A table of runs that can't be read is an error that names the database."""

    def refuse(execute: Any, sql: str, *arguments: Any) -> Any:
        if "shedlock_run" in sql:
            raise DatabaseError("no reading today")
        return execute(sql, *arguments)

    with connection.execute_wrapper(refuse):
        with pytest.raises(LockProviderError, match="runs in .*no reading today"):
            summarize(get_provider(), ["job"])


@pytest.mark.django_db(transaction=True)
def test_runs_of_an_unreachable_store_are_a_clear_error() -> None:
    """Nothing else is asked of the database that has just failed."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise OperationalError("connection refused")

    vars(connections["default"])["cursor"] = refuse
    try:
        with pytest.raises(LockProviderError, match="runs in .*connection refused"):
            badly_ended(get_provider())
    finally:
        del vars(connections["default"])["cursor"]


@pytest.mark.django_db(databases=["default", "other"])
def test_runs_are_read_where_the_provider_keeps_them() -> None:
    """Neither the locks nor the runs of another database are ours."""
    provider = DatabaseLockProvider("second", using="other")
    take_from(provider, configure()).release()
    run = add_run("job", RunOutcome.RUNNING, provider="second", using="other")
    LockRun.objects.using("other").filter(pk=run.pk).update(outcome=FAILED)
    add_run("job", RunOutcome.SUCCEEDED, provider="second")
    add_run("elsewhere", FAILED, provider="second")
    [found] = summarize(provider, ["job"])
    assert (found.name, found.last_outcome, found.failures) == ("job", FAILED, 1)


@pytest.mark.django_db(transaction=True)
def test_missing_table_of_runs() -> None:
    """Jobs run without it, and their locks are told; a look at the store says why."""
    take("job")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock_run RENAME TO elsewhere")
    try:
        found = summary()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock_run")
    assert found.status is not None
    assert (found.status.state, found.last_outcome) == (LockState.RUNNING, None)
