"""Ticks in a database: what it costs, who is first, and what clocks do to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Barrier
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import CONTENDED, LockHolder
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState, Start, Trigger
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing.contract.ticks import configure_tick
from tests.support.clocks import store_clock
from tests.support.locks import MINUTE, force_release, status_of, take, try_from
from tests.support.private_connections import counted_statements
from tests.support.processes import Parent, race
from tests.support.statements import Failing, Once

committed = pytest.mark.django_db(transaction=True)

QUARTERS = "*/15 * * * *"
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
HOUR = timedelta(hours=1)


@pytest.fixture
def provider() -> DatabaseLockProvider:
    return DatabaseLockProvider("default")


def quarters(trigger: Trigger = Trigger.SCHEDULER) -> LockConfiguration:
    return configure_tick(trigger, expression=QUARTERS)


def runs(provider: DatabaseLockProvider, *, succeeded: bool = True) -> bool:
    """Run the job of the schedule if it may be run now; return whether it was."""
    lock = try_from(provider, quarters())
    return isinstance(lock, Lock) and provider.release(lock, succeeded=succeeded)


def ticks(provider: DatabaseLockProvider) -> ScheduleState:
    status = status_of(provider, "job")
    return status.schedule_state


def end_every_lease() -> None:
    """Let the lease be over, also for a clock that is set back."""
    LockRecord.objects.update(lock_until=NOON - timedelta(days=999))


@pytest.mark.django_db
class TestStatements:
    """How many statements a lock of a schedule takes."""

    def count(self, step: Callable[[], Any]) -> int:
        with CaptureQueriesContext(connection) as queries:
            step()
        return len([query for query in queries if "SAVEPOINT" not in query["sql"]])

    def test_acquire_reads_and_writes_and_release_writes(
        self, provider: DatabaseLockProvider
    ) -> None:
        """The record is read for the decision, which one UPDATE guards."""
        with store_clock(NOON):
            take(quarters(), provider).release()
        with store_clock(NOON + QUARTER):
            assert self.count(lambda: try_from(provider, quarters())) == 2
            assert ticks(provider).tick == NOON + QUARTER
            force_release(provider, "job")
        with store_clock(NOON + 2 * QUARTER):
            lock = take(quarters(), provider)
            assert self.count(lambda: provider.release(lock)) == 1

    @pytest.mark.parametrize("trigger", Trigger)
    def test_skip_is_one_statement(
        self, provider: DatabaseLockProvider, trigger: Trigger
    ) -> None:
        """What comes for a tick that runs or is done reads that, whatever starts it."""
        with store_clock(NOON):
            lock = take(quarters(), provider)
            assert self.count(lambda: try_from(provider, quarters(trigger))) == 1
            lock.release()
            if trigger is not Trigger.OPERATOR:
                assert self.count(lambda: try_from(provider, quarters(trigger))) == 1

    def test_first_acquisition_is_four_statements(
        self, provider: DatabaseLockProvider
    ) -> None:
        """The record is made first, and read again with the store's clock."""
        assert self.count(lambda: try_from(provider, quarters())) == 4


@committed
def test_decision_that_others_overtook_is_made_anew(
    provider: DatabaseLockProvider,
) -> None:
    """Between the SELECT and the UPDATE another host runs the tick: it is done."""
    with store_clock(NOON):
        assert runs(provider)
    with store_clock(NOON + QUARTER):
        overtake = Once("SELECT", lambda: runs(provider))
        with connection.execute_wrapper(overtake):
            holder = try_from(provider, quarters())
        assert isinstance(holder, LockHolder)
        assert holder.tick == NOON + QUARTER
    record = LockRecord.objects.get()
    assert (record.last_run, record.open_run) == (holder.locked_by, None)
    assert record.failures == 0


@committed
def test_decision_that_is_too_old_is_made_anew(provider: DatabaseLockProvider) -> None:
    """A process that stood still between the two runs the tick of the later time."""
    with store_clock(NOON):
        assert runs(provider)
    with store_clock(NOON + QUARTER), ExitStack() as later:
        stand_still = store_clock(datetime.now(UTC) + QUARTER)
        with connection.execute_wrapper(
            Once("SELECT", lambda: later.enter_context(stand_still))
        ):
            lock = take(quarters(), provider)
        assert lock.tick == NOON + 2 * QUARTER
    assert ticks(provider).tick == NOON + 2 * QUARTER


@committed
def test_late_success_is_not_overwritten(provider: DatabaseLockProvider) -> None:
    """A job that outlived its lease succeeds just before the next one begins."""
    with store_clock(NOON):
        late = take(quarters(), provider)
    LockRecord.objects.update(lock_until=NOON)
    with store_clock(NOON + 2 * QUARTER):
        succeed = Once("SELECT", lambda: provider.release(late))
        with connection.execute_wrapper(succeed):
            take(quarters(), provider)
    assert ticks(provider).due_at == NOON + QUARTER


@committed
def test_late_success_is_not_undone_by_a_registration(
    provider: DatabaseLockProvider,
) -> None:
    """A job that outlived its lease succeeds while another schedule is registered."""
    with store_clock(NOON):
        late = take(quarters(), provider)
    LockRecord.objects.update(lock_until=NOON)
    with store_clock(NOON + 2 * QUARTER):
        succeed = Once("SELECT", lambda: provider.release(late))
        with counted_statements(), connection.execute_wrapper(succeed):
            provider.register("job", Schedule("@hourly", "UTC"))
    assert ticks(provider).due_at == NOON + QUARTER
    assert ticks(provider).schedule == Schedule("@hourly", "UTC")


@committed
def test_lock_that_expires_meanwhile_is_left_alone(
    provider: DatabaseLockProvider,
) -> None:
    """Between the SELECT and the UPDATE a scheduler's run begins and overruns."""
    with store_clock(NOON - QUARTER):
        assert runs(provider, succeeded=False)
    retry = quarters(Trigger.RETRY)

    def overrun() -> None:
        lock = take(retry, provider)
        LockRecord.objects.filter(locked_by=lock.locked_by).update(lock_until=NOON)

    with store_clock(NOON + timedelta(minutes=5)):
        with connection.execute_wrapper(Once("SELECT", overrun)):
            holder = try_from(provider, quarters(Trigger.CATCH_UP))
    assert isinstance(holder, LockHolder)
    assert holder.is_expired


@committed
def test_record_that_is_made_meanwhile_is_acquired(
    provider: DatabaseLockProvider,
) -> None:
    """A new name is registered just before our INSERT: its tick has not run."""
    register = Once(
        "INSERT",
        lambda: provider.register("job", Schedule(QUARTERS, "UTC"), NOON - QUARTER),
        before=True,
    )
    with store_clock(NOON), connection.execute_wrapper(register):
        lock = take(quarters(), provider)
    assert LockRecord.objects.get().locked_by == lock.locked_by


@committed
def test_race_that_never_ends_counts_as_held(provider: DatabaseLockProvider) -> None:
    """A lock counts as held when an acquisition loses every race for it."""
    with store_clock(NOON):
        assert runs(provider)
        LockRecord.objects.update(tick=None)

        def overtake(execute: Any, sql: str, *arguments: Any) -> Any:
            result = execute(sql, *arguments)
            if sql.startswith("SELECT"):
                with connection.cursor() as cursor:
                    cursor.execute(
                        "UPDATE shedlock SET fencing_token = fencing_token + 1"
                    )
            return result

        with connection.execute_wrapper(overtake):
            assert try_from(provider, quarters()) is CONTENDED


@committed
def test_record_that_is_pruned_while_it_is_registered(
    provider: DatabaseLockProvider,
) -> None:
    """A registration that finds no record twice leaves it to the next one."""
    prune = Once("INSERT", lambda: LockRecord.objects.all().delete())
    with counted_statements(), connection.execute_wrapper(prune):
        provider.register("job", Schedule(QUARTERS, "UTC"))
    assert provider.status("job") is None


@committed
def test_lost_reply_loses_no_tick(provider: DatabaseLockProvider) -> None:
    """If the connection breaks after the UPDATE, the tick is ours, once."""
    with store_clock(NOON):
        assert runs(provider)
    lost = OperationalError("server closed the connection unexpectedly")
    with store_clock(NOON + QUARTER):
        with connection.execute_wrapper(Failing(lost, times=1, after=True)):
            lock = try_from(provider, quarters())
        assert isinstance(lock, Lock)
        record = LockRecord.objects.get()
        assert record.open_run == lock.locked_by != record.last_run
        assert record.failures == 0
        assert provider.release(lock)
        assert not runs(provider)
    assert ticks(provider).due_at == NOON + 2 * QUARTER


@committed
def test_late_run_gives_no_tick_of_the_next_run_back(
    provider: DatabaseLockProvider,
) -> None:
    """A body that never began, and whose lease is over, changes nothing."""
    with store_clock(NOON):
        late = take(quarters(), provider)
        end_every_lease()
    with store_clock(NOON + QUARTER):
        take(quarters(), provider)
        before = LockRecord.objects.values().get()
        late.never_began = True
        assert not provider.release(late, succeeded=False)
    assert LockRecord.objects.values().get() == before


@committed
def test_lost_reply_of_a_release_is_a_success(provider: DatabaseLockProvider) -> None:
    """If the connection breaks after the release, its tick has succeeded."""
    with store_clock(NOON):
        lock = take(quarters(), provider)
        lost = OperationalError("server closed the connection unexpectedly")
        with connection.execute_wrapper(Failing(lost, times=1, after=True)):
            assert lock.release()
    assert ticks(provider).due_at == NOON + QUARTER


@pytest.mark.django_db
def test_deleted_row_loses_its_ticks_only(provider: DatabaseLockProvider) -> None:
    """A row that was deleted is made again, with the tick of this moment."""
    with store_clock(NOON):
        lock = take(quarters(), provider)
        LockRecord.objects.all().delete()
        assert not lock.release()
        assert runs(provider)
        assert not runs(provider)
    assert ticks(provider).tick == NOON


@pytest.mark.servers_only
@committed
def test_tick_is_run_though_the_caller_rolls_back(
    provider: DatabaseLockProvider,
) -> None:
    """Inside the caller's transaction the tick is not part of it."""
    with store_clock(NOON):
        with transaction.atomic():
            assert runs(provider)
            transaction.set_rollback(True)
        assert not runs(provider)


@pytest.mark.django_db
def test_early_start_is_for_the_tick_to_come(provider: DatabaseLockProvider) -> None:
    """A host whose clock is a minute ahead begins the tick; before, it is skipped."""
    with store_clock(NOON):
        assert runs(provider)
    with store_clock(NOON + QUARTER - 2 * MINUTE):
        assert not runs(provider)
    with store_clock(NOON + QUARTER - MINUTE):
        assert runs(provider)
    with store_clock(NOON + QUARTER):
        assert not runs(provider)
    assert ticks(provider).tick == NOON + QUARTER


@pytest.mark.django_db
def test_clock_that_is_set_back_stops_no_job(provider: DatabaseLockProvider) -> None:
    """After it was set back by an hour its ticks are run, each once."""
    with store_clock(NOON + HOUR):
        assert runs(provider)
    end_every_lease()
    for turn in range(6):
        with store_clock(NOON + turn * QUARTER):
            assert runs(provider)
            assert not runs(provider)


@pytest.mark.django_db
def test_clock_that_stumbles_runs_no_tick_again(provider: DatabaseLockProvider) -> None:
    """Set back by less than an interval, it makes nobody run what is done."""
    with store_clock(NOON + QUARTER):
        assert runs(provider)
    for back in (timedelta(seconds=1), timedelta(minutes=5), timedelta(minutes=14)):
        with store_clock(NOON + QUARTER - back):
            assert not runs(provider)


@pytest.mark.django_db
def test_clock_that_was_ahead_hides_no_missed_run(
    provider: DatabaseLockProvider,
) -> None:
    """A tick of tomorrow that succeeded by mistake is no success of today's."""
    with store_clock(NOON + 24 * HOUR):
        assert runs(provider)
    end_every_lease()
    with store_clock(NOON):
        assert runs(provider, succeeded=False)
    with store_clock(NOON + QUARTER + timedelta(minutes=6)):
        status = status_of(provider, "job")
        assert status.overdue_since(timedelta(minutes=5)) == NOON
        assert take(quarters(Trigger.CATCH_UP), provider)


@pytest.mark.django_db
def test_lost_lock_leaves_the_next_tick_to_catch_up(
    provider: DatabaseLockProvider,
) -> None:
    """A worker that vanished has its tick. After its release a catch-up has others."""
    with store_clock(NOON):
        lock = take(quarters(), provider)
        LockRecord.objects.update(lock_until=DatabaseNow())
        assert not runs(provider)
        assert not lock.refresh() or lock.is_active
    with store_clock(NOON + timedelta(minutes=5)):
        assert isinstance(try_from(provider, quarters(Trigger.CATCH_UP)), LockHolder)
        assert force_release(provider, "job")
        holder = try_from(provider, quarters(Trigger.CATCH_UP))
        assert isinstance(holder, LockHolder)
        assert holder.tick == NOON
    with store_clock(NOON + QUARTER + timedelta(minutes=5)):
        again = take(quarters(Trigger.CATCH_UP), provider)
        assert not provider.release(lock)
        assert ticks(provider).due_at == NOON
        assert provider.release(again)
    assert ticks(provider).due_at == NOON + 2 * QUARTER


@pytest.mark.django_db
def test_catch_up_and_scheduler_at_one_tick_make_one_run(
    provider: DatabaseLockProvider,
) -> None:
    """What is caught up at the very moment of the next tick stands for that tick."""
    with store_clock(NOON - QUARTER):
        assert runs(provider)
    catch_up = configure_tick(Trigger.CATCH_UP, expression=QUARTERS, grace=QUARTER)
    with store_clock(NOON + QUARTER):
        assert provider.release(take(catch_up, provider))
        assert ticks(provider).due_at == NOON + 2 * QUARTER
        assert not runs(provider)
    with store_clock(NOON + 2 * QUARTER):
        assert runs(provider)


@pytest.mark.django_db
def test_hosts_of_two_releases_run_each_tick_once(
    provider: DatabaseLockProvider,
) -> None:
    """While hosts with an old and a new schedule run, each starts its own ticks."""
    ran: dict[str, list[int]] = {"*/15 * * * *": [], "*/20 * * * *": []}
    for minute in range(61):
        for expression, minutes in ran.items():
            with store_clock(NOON + timedelta(minutes=minute)):
                for _host in range(2):
                    if minute % int(expression[2:4]):
                        continue
                    lock = try_from(provider, configure_tick(expression=expression))
                    if isinstance(lock, Lock) and provider.release(lock):
                        minutes.append(minute)
    at_both = sorted(ran["*/15 * * * *"] + ran["*/20 * * * *"])
    assert at_both == [0, 15, 20, 30, 40, 45, 60]


@pytest.mark.django_db
@pytest.mark.parametrize("old_comes_first", [True, False])
def test_hosts_of_two_releases_see_that_nothing_runs(
    provider: DatabaseLockProvider, *, old_comes_first: bool
) -> None:
    """Two releases that register in turn don't hide that a job is overdue."""
    old, new = Schedule("0 12 * * *", "UTC"), Schedule("30 12 * * *", "UTC")
    with store_clock(NOON + 2 * QUARTER):
        lock = take(LockConfiguration("job", MINUTE, schedule=new), provider)
        assert provider.release(lock)
    tomorrow = 4 * 24
    for quarter in range(3, tomorrow + 5):
        with store_clock(NOON + quarter * QUARTER):
            for schedule in (old, new) if old_comes_first else (new, old):
                provider.register("job", schedule)
            status = status_of(provider, "job")
            is_late = status.overdue_since(5 * MINUTE) is not None
        assert is_late or quarter <= tomorrow + 2
        assert not is_late or quarter > tomorrow


SCHEDULES = ("* * * * *", QUARTERS, "@hourly", "30 3 * * *", "0 0 29 2 *")
STEPS = 90


@contextmanager
def clocks(moment: datetime) -> Iterator[None]:
    ahead = moment - datetime.now(UTC)
    memory = "django_shedlock.providers.memory.host_now"
    with store_clock(moment), patch(memory, lambda: datetime.now(UTC) + ahead):
        yield


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(3))
def test_database_does_what_memory_does(
    provider: DatabaseLockProvider, seed: int
) -> None:
    """Whatever comes after whatever, both stores give the lock for the same ticks."""
    chance = random.Random(seed)
    memory = MemoryLockProvider("memory")
    # Never where a clock that goes on between the two could choose another tick.
    moment = NOON + timedelta(seconds=7)
    given = 0
    for step in range(STEPS):  # of a job whose lock is always free
        moment += chance.choice([0, 0, 1, 7, 15, 60, 60, 60 * 24, -30, -90]) * MINUTE
        schedule = Schedule(chance.choice(SCHEDULES), "UTC")
        start = Start(chance.choice(list(Trigger)))
        configuration = LockConfiguration(
            "job", MINUTE, schedule=schedule, grace=5 * MINUTE, start=start
        )
        succeeded = chance.random() < 0.5
        results = []
        with clocks(moment):
            for store in (provider, memory):
                if step % 17 == 0:
                    store.register("job", schedule)
                lock = try_from(store, configuration)
                results.append(isinstance(lock, Lock))
                if isinstance(lock, Lock):
                    store.release(lock, succeeded=succeeded)
                end_every_lease()
            [left], [right] = provider.statuses(), memory.statuses()
        where = f"step {step}, {start.trigger} of {schedule} at {moment}"
        assert results[0] == results[1], where
        assert left.schedule_state == right.schedule_state, where
        given += results[0]
    assert STEPS / 10 < given < STEPS


PROCESSES = 16
LEVELS = {
    "sqlite": ["default"],
    "postgresql": ["read committed", "serializable"],
    "mysql": ["read committed", "serializable"],
}
SET_LEVEL = {
    "postgresql": "SET default_transaction_isolation = '{}'",
    "mysql": "SET SESSION TRANSACTION ISOLATION LEVEL {}",
}
ROUNDS = 3


def come_at_once(parent: Parent, barrier: Barrier, level: str) -> list[bool]:
    """Run the job of a new name, and that of its next tick, round by round."""
    if connection.vendor in SET_LEVEL:
        with connection.cursor() as cursor:
            cursor.execute(SET_LEVEL[connection.vendor].format(level))
    provider = DatabaseLockProvider("default")
    won = []
    for turn in range(ROUNDS):
        schedule = Schedule(QUARTERS, "UTC")
        configuration = LockConfiguration(f"job {turn}", MINUTE, schedule=schedule)
        for tick in (NOON, NOON + QUARTER):
            barrier.wait()
            with store_clock(tick):
                lock = try_from(provider, configuration)
                won.append(isinstance(lock, Lock))
                if isinstance(lock, Lock):
                    provider.release(lock)
    return won


@committed
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.servers_only)])
def test_of_many_who_come_at_once_one_runs_the_tick(number: int) -> None:
    """One of many simultaneous starts runs the tick, at each isolation level."""
    level = LEVELS[connection.vendor][number]
    winners = race(PROCESSES, come_at_once, level)
    assert [sum(of_round) for of_round in zip(*winners, strict=True)] == [1] * (
        2 * ROUNDS
    )


BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 29, tzinfo=BERLIN)
AUTUMN = datetime(2026, 10, 25, tzinfo=BERLIN)


def in_utc(day: datetime, *clock: int, fold: int = 0) -> datetime:
    """Return the instant at which the clock on the wall shows this."""
    hour, minute = clock
    return day.replace(hour=hour, minute=minute, fold=fold).astimezone(UTC)


def started_by_cron(day: datetime) -> dict[str, list[datetime]]:
    """
    Return when Debian's cron starts two jobs until 4 o'clock, and the next day.

    See cron(8): the job at 2:30 runs right after the hour that is left out in spring,
    and the first time only in autumn. The one with a star follows the clock: two starts
    fewer in spring, two more in autumn.
    """
    half_hours = [turn * HOUR / 2 for turn in range(8)]
    at_half_past_two = in_utc(day, 3, 0) if day == SPRING else in_utc(day, 2, 30)
    return {
        "30 2 * * *": [at_half_past_two, in_utc(day + timedelta(days=1), 2, 30)],
        "*/30 * * * *": [in_utc(day, 0, 0) + away for away in half_hours],
    }


@pytest.mark.django_db
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/30 * * * *"])
@pytest.mark.parametrize("day", [SPRING, AUTUMN], ids=["spring", "autumn"])
def test_clock_changes_as_cron_has_it(
    provider: DatabaseLockProvider, day: datetime, expression: str
) -> None:
    """Hosts up to two minutes late run each start of cron once, on such a day, too."""
    schedule = Schedule(expression, "Europe/Berlin")
    configuration = LockConfiguration("job", MINUTE, schedule=schedule)
    for begin in started_by_cron(day)[expression]:
        ran = []
        for late in (0, 1, 2):
            now = begin + late * MINUTE
            with store_clock(now):
                lock = try_from(provider, configuration)
                ran.append(isinstance(lock, Lock))
                if isinstance(lock, Lock):
                    provider.release(lock)
        assert ran == [True, False, False], begin
        assert ticks(provider).tick == begin


@pytest.mark.django_db
def test_cron_that_starts_a_job_in_both_hours_runs_it_once(
    provider: DatabaseLockProvider,
) -> None:
    """
    A daily job runs once in a night that repeats its hour.

    Other schedulers may start the job in both hours.
    """
    schedule = Schedule("30 2 * * *", "Europe/Berlin")
    configuration = LockConfiguration("job", MINUTE, schedule=schedule)
    ran = []
    for fold in range(2):
        with store_clock(in_utc(AUTUMN, 2, 30, fold=fold)):
            lock = try_from(provider, configuration)
            ran.append(isinstance(lock, Lock) and provider.release(lock))
    assert ran == [True, False]
