"""Ticks in a database: what it costs, who is first, and what clocks do to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_shedlock.configuration import LockConfiguration
from django_shedlock.functions import DatabaseNow
from django_shedlock.locks import Lock
from django_shedlock.models import LockRecord
from django_shedlock.occasions import Occasion
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.schedules import Schedule
from django_shedlock.triggers import Trigger
from tests.providers.ticks import configure_tick
from tests.support.clocks import both_clocks, store_clock
from tests.support.locks import MINUTE, configure, take_from
from tests.support.processes import Parent, context, workers
from tests.support.statements import Failing, Once
from tests.support.waiting import PATIENCE

committed = pytest.mark.django_db(transaction=True)

QUARTERS = "*/15 * * * *"
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
def provider() -> DatabaseLockProvider:
    return DatabaseLockProvider("default")


def quarters(trigger: Trigger = Trigger.SCHEDULER) -> LockConfiguration:
    return configure_tick(trigger, expression=QUARTERS)


def runs(provider: DatabaseLockProvider, *, succeeded: bool = True) -> bool:
    """Run the job of the schedule if it may be run now; return whether it was."""
    lock = provider.acquire(quarters())
    return isinstance(lock, Lock) and provider.release(lock, succeeded=succeeded)


def progress(provider: DatabaseLockProvider) -> Any:
    [status] = provider.statuses("job")
    return status.progress


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

    def test_take_and_give_back_are_one_statement_each(
        self, provider: DatabaseLockProvider
    ) -> None:
        """A schedule costs no further statement where its tick is to run."""
        with both_clocks(NOON):
            take_from(provider, quarters()).release()
        with both_clocks(NOON + QUARTER):
            assert self.count(lambda: provider.acquire(quarters())) == 1
            [status] = provider.statuses("job")
            assert status.progress.tick == NOON + QUARTER
            provider.force_release("job", running=True)
        with both_clocks(NOON + 2 * QUARTER):
            lock = take_from(provider, quarters())
            assert self.count(lock.release) == 1

    def test_skip_is_two_statements(self, provider: DatabaseLockProvider) -> None:
        """Who comes for a tick that runs or is done pays an UPDATE and a SELECT."""
        lock = take_from(provider, quarters())
        assert self.count(lambda: provider.acquire(quarters())) == 2
        lock.release()
        assert self.count(lambda: provider.acquire(quarters())) == 2

    def test_operator_pays_no_more(self, provider: DatabaseLockProvider) -> None:
        """An operator who comes while the job runs pays the same."""
        take_from(provider, quarters())
        assert self.count(lambda: provider.acquire(quarters(Trigger.OPERATOR))) == 2

    def test_first_take_is_four_statements(
        self, provider: DatabaseLockProvider
    ) -> None:
        """The tick of a name that is new is chosen by the clock that it asks for."""
        assert self.count(lambda: provider.acquire(quarters())) == 4

    @pytest.mark.parametrize("wrong", [-3 * HOUR, 3 * HOUR, timedelta(days=-20_000)])
    def test_host_whose_clock_is_wrong(
        self, provider: DatabaseLockProvider, wrong: timedelta
    ) -> None:
        """With ticks that are not near the store's clock, it pays a second UPDATE."""
        with both_clocks(NOON):
            take_from(provider, quarters()).release()
        with both_clocks(NOON + QUARTER, host_ahead=wrong):
            assert self.count(lambda: provider.acquire(quarters())) == 3
            assert progress(provider).tick == NOON + QUARTER
            assert self.count(lambda: provider.acquire(quarters())) == 2


@pytest.mark.django_db
def test_lock_that_is_freed_meanwhile_is_taken(provider: DatabaseLockProvider) -> None:
    """A job that was over after our UPDATE does not pass for one that ran our tick."""
    take_from(provider, configure())
    free = Once("UPDATE", lambda: provider.force_release("job", running=True))
    with connection.execute_wrapper(free):
        assert isinstance(provider.acquire(quarters()), Lock)


@committed
def test_record_that_is_registered_meanwhile_is_taken(
    provider: DatabaseLockProvider,
) -> None:
    """Who registers a new name just before our INSERT has not run its tick."""
    register = Once(
        "INSERT",
        lambda: provider.register("job", Schedule(QUARTERS, "UTC")),
        before=True,
    )
    with connection.execute_wrapper(register):
        lock = provider.acquire(quarters())
    assert isinstance(lock, Lock)
    assert LockRecord.objects.get().locked_by == lock.locked_by
    assert provider.release(lock)
    assert progress(provider).succeeded == progress(provider).tick


@pytest.mark.django_db
def test_clock_that_comes_in_reach_meanwhile(provider: DatabaseLockProvider) -> None:
    """A tick is not lost that begins to be near while we look."""
    with both_clocks(NOON - HOUR):
        assert runs(provider)
    ahead = QUARTER + SECOND
    with both_clocks(NOON - SECOND, host_ahead=ahead), ExitStack() as later:
        a_second_later = store_clock(datetime.now(UTC) + SECOND)
        goes_on = Once("UPDATE", lambda: later.enter_context(a_second_later))
        with connection.execute_wrapper(goes_on):
            assert runs(provider)
    assert progress(provider).tick == NOON


@committed
def test_lost_reply_loses_no_tick(provider: DatabaseLockProvider) -> None:
    """If the connection breaks after the UPDATE, the tick is ours, once."""
    with both_clocks(NOON):
        assert runs(provider)
    lost = OperationalError("server closed the connection unexpectedly")
    with both_clocks(NOON + QUARTER):
        with connection.execute_wrapper(Failing(lost, times=1, after=True)):
            lock = provider.acquire(quarters())
        assert isinstance(lock, Lock)
        assert LockRecord.objects.get().fencing_token == 2
        assert provider.release(lock)
        assert not runs(provider)
    assert progress(provider).succeeded == NOON + QUARTER


@committed
def test_lost_reply_of_a_release_is_a_success(provider: DatabaseLockProvider) -> None:
    """If the connection breaks after the release, its tick has succeeded."""
    with both_clocks(NOON):
        lock = take_from(provider, quarters())
        lost = OperationalError("server closed the connection unexpectedly")
        with connection.execute_wrapper(Failing(lost, times=1, after=True)):
            assert lock.release()
    assert progress(provider).succeeded == NOON


@pytest.mark.django_db
def test_deleted_row_loses_its_ticks_only(provider: DatabaseLockProvider) -> None:
    """A row that was deleted is made again, with the tick of this moment."""
    with both_clocks(NOON):
        lock = take_from(provider, quarters())
        LockRecord.objects.all().delete()
        assert not lock.release()
        assert runs(provider)
        assert not runs(provider)
    assert progress(provider).tick == NOON


@pytest.mark.servers_only
@committed
def test_tick_is_run_though_the_caller_rolls_back(
    provider: DatabaseLockProvider,
) -> None:
    """Inside the caller's transaction the tick is not part of it."""
    with transaction.atomic():
        assert runs(provider)
        transaction.set_rollback(True)
    assert not runs(provider)


@pytest.mark.django_db
def test_tick_begins_halfway(provider: DatabaseLockProvider) -> None:
    """The tick to come is the one from the very middle on, and not before it."""
    halfway = NOON + QUARTER / 2
    with both_clocks(NOON):
        assert runs(provider)
    with both_clocks(halfway - MINUTE):
        assert not runs(provider)
    with both_clocks(halfway):
        assert runs(provider)
    with both_clocks(NOON + QUARTER):
        assert not runs(provider)
    assert progress(provider).tick == NOON + QUARTER


@pytest.mark.django_db
def test_clock_that_is_set_back_stops_no_job(provider: DatabaseLockProvider) -> None:
    """After it was set back by an hour its ticks are run, each once."""
    with both_clocks(NOON + HOUR):
        assert runs(provider)
    end_every_lease()
    for turn in range(6):
        with both_clocks(NOON + turn * QUARTER):
            assert runs(provider)
            assert not runs(provider)


@pytest.mark.django_db
def test_clock_that_stumbles_runs_no_tick_again(provider: DatabaseLockProvider) -> None:
    """Set back by less than an interval, it makes nobody run what is done."""
    with both_clocks(NOON + QUARTER):
        assert runs(provider)
    for back in (timedelta(seconds=1), timedelta(minutes=5), timedelta(minutes=14)):
        with both_clocks(NOON + QUARTER - back):
            assert not runs(provider)


@pytest.mark.django_db
def test_clock_that_was_ahead_hides_no_missed_run(
    provider: DatabaseLockProvider,
) -> None:
    """A tick of tomorrow that succeeded by mistake is no success of today's."""
    with both_clocks(NOON + 24 * HOUR):
        assert runs(provider)
    end_every_lease()
    with both_clocks(NOON):
        assert runs(provider, succeeded=False)
    with both_clocks(NOON + timedelta(minutes=6)):
        [status] = provider.statuses("job")
        assert status.overdue_since(timedelta(minutes=5)) == NOON
        assert take_from(provider, quarters(Trigger.CATCH_UP))


@pytest.mark.django_db
def test_lost_lock_leaves_its_tick_to_catch_up(provider: DatabaseLockProvider) -> None:
    """A worker that vanished has its tick: no scheduler runs it, catch-up does."""
    with both_clocks(NOON):
        lock = take_from(provider, quarters())
        LockRecord.objects.update(lock_until=DatabaseNow())
        assert not runs(provider)
        assert not lock.refresh() or lock.is_active
    with both_clocks(NOON + timedelta(minutes=5)):
        again = take_from(provider, quarters(Trigger.CATCH_UP))
        assert not provider.release(lock)
        assert progress(provider).newest_success is None
        assert provider.release(again)
    assert progress(provider).succeeded == NOON


@pytest.mark.django_db
@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_first_tick_that_counts_is_near_whatever_the_host_thinks(
    provider: DatabaseLockProvider, beside: int
) -> None:
    """A lock that gets a schedule counts from its tick on, or from one beside it."""
    with both_clocks(NOON + beside * MINUTE, host_ahead=beside * QUARTER / 2):
        LockRecord.objects.create_free("job")
        assert runs(provider, succeeded=False)
    told = progress(provider)
    first = NOON + beside * QUARTER
    assert (told.tick, told.succeeded) == (NOON, first - SECOND)
    assert told.newest_success is None


@pytest.mark.django_db
def test_catch_up_and_scheduler_at_one_tick_make_one_run(
    provider: DatabaseLockProvider,
) -> None:
    """What is caught up at the very moment of the next tick stands for that tick."""
    with both_clocks(NOON):
        assert runs(provider, succeeded=False)
    catch_up = configure_tick(Trigger.CATCH_UP, expression=QUARTERS, grace=QUARTER)
    with both_clocks(NOON + QUARTER):
        assert provider.release(take_from(provider, catch_up))
        assert progress(provider).succeeded == NOON + QUARTER
        assert not runs(provider)
    with both_clocks(NOON + 2 * QUARTER):
        assert runs(provider)


@pytest.mark.django_db
def test_hosts_of_two_releases_run_each_tick_once(
    provider: DatabaseLockProvider,
) -> None:
    """While hosts with an old and a new schedule run, each starts its own ticks."""
    ran: dict[str, list[int]] = {"*/15 * * * *": [], "*/20 * * * *": []}
    for minute in range(61):
        for expression, minutes in ran.items():
            with both_clocks(NOON + timedelta(minutes=minute)):
                for _host in range(2):
                    if minute % int(expression[2:4]):
                        continue
                    lock = provider.acquire(configure_tick(expression=expression))
                    if isinstance(lock, Lock) and provider.release(lock):
                        minutes.append(minute)
    at_both = sorted(ran["*/15 * * * *"] + ran["*/20 * * * *"])
    assert at_both == [0, 15, 20, 30, 40, 45, 60]


SCHEDULES = ("* * * * *", QUARTERS, "@hourly", "30 3 * * *", "0 0 29 2 *")
STEPS = 90


@contextmanager
def clocks(moment: datetime) -> Iterator[None]:
    ahead = moment - datetime.now(UTC)
    memory = "django_shedlock.providers.memory.host_now"
    with both_clocks(moment), patch(memory, lambda: datetime.now(UTC) + ahead):
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
        occasion = Occasion(chance.choice(list(Trigger)), schedule, 5 * MINUTE)
        succeeded = chance.random() < 0.5
        results = []
        with clocks(moment):
            for store in (provider, memory):
                if step % 17 == 0:
                    store.register("job", schedule)
                lock = store.acquire(
                    LockConfiguration("job", MINUTE, occasion=occasion)
                )
                results.append(isinstance(lock, Lock))
                if isinstance(lock, Lock):
                    store.release(lock, succeeded=succeeded)
                end_every_lease()
            [left], [right] = provider.statuses(), memory.statuses()
        where = f"step {step}, {occasion.trigger} of {schedule} at {moment}"
        assert results[0] == results[1], where
        assert left.progress == right.progress, where
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


def come_at_once(parent: Parent, barrier: Any, level: str) -> list[bool]:
    """Run the job of a new name, and that of its next tick, round by round."""
    if connection.vendor in SET_LEVEL:
        with connection.cursor() as cursor:
            cursor.execute(SET_LEVEL[connection.vendor].format(level))
    provider = DatabaseLockProvider("default")
    won = []
    for turn in range(ROUNDS):
        occasion = Occasion(Trigger.SCHEDULER, Schedule(QUARTERS, "UTC"))
        configuration = LockConfiguration(f"job {turn}", MINUTE, occasion=occasion)
        for tick in (NOON, NOON + QUARTER):
            barrier.wait(PATIENCE)
            with both_clocks(tick):
                lock = provider.acquire(configuration)
                won.append(isinstance(lock, Lock))
                if isinstance(lock, Lock):
                    provider.release(lock)
    return won


@committed
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.servers_only)])
def test_of_many_who_come_at_once_one_runs_the_tick(number: int) -> None:
    """Also of a name that is new, and whatever the isolation level."""
    level = LEVELS[connection.vendor][number]
    barrier = context.Barrier(PROCESSES)
    with workers(PROCESSES, come_at_once, barrier, level) as started:
        winners = [each.result() for each in started]
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
    """Hosts up to two minutes apart run each start of cron once, on such a day, too."""
    occasion = Occasion(Trigger.SCHEDULER, Schedule(expression, "Europe/Berlin"))
    configuration = LockConfiguration("job", MINUTE, occasion=occasion)
    for start in started_by_cron(day)[expression]:
        ran = []
        for ahead in (2, 0, -2):
            now = start - ahead * MINUTE
            with both_clocks(now, host_ahead=ahead * MINUTE):
                lock = provider.acquire(configuration)
                ran.append(isinstance(lock, Lock))
                if isinstance(lock, Lock):
                    provider.release(lock)
        assert ran == [True, False, False], start
        assert progress(provider).tick == start


@pytest.mark.django_db
def test_cron_that_starts_a_job_in_both_hours_runs_it_once(
    provider: DatabaseLockProvider,
) -> None:
    """Other schedulers may start it twice in the night in which an hour is repeated."""
    occasion = Occasion(Trigger.SCHEDULER, Schedule("30 2 * * *", "Europe/Berlin"))
    ran = []
    for fold in range(2):
        with both_clocks(in_utc(AUTUMN, 2, 30, fold=fold)):
            lock = provider.acquire(LockConfiguration("job", MINUTE, occasion=occasion))
            ran.append(isinstance(lock, Lock) and provider.release(lock))
    assert ran == [True, False]
