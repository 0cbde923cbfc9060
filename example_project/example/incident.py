"""The incident of the demo: ten faults at once, for the console to report."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import ClassVar, NamedTuple

from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection

from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from example.crash import until
from example.models import JobRun
from example.past import (
    DAY,
    HOUR,
    MINUTE,
    EarlierRuns,
    move_ago,
    move_back,
    move_to,
    put_in_order,
    tick_before,
)
from example.screen import Screen
from example.shop import FAIL, HANG, WELL
from example.workers import FAILED, RAN, SKIPPED, Worker

Team = Mapping[str, Worker]
"""The workers by their names."""
CRON = "cron"
"""The worker that stands for the hosts' cron, which starts what does not hang."""
LINE = "  {:<34}  {}"
HISTORY = LockRun._meta.db_table
HISTORY_AWAY = f"{HISTORY}_away"
"""Its name while nobody can write it."""


class Expected(NamedTuple):
    """What is found of a fault: a finding of this kind, in this lock or in none."""

    fault: str
    lock: str | None
    kind: str


class Fault:
    """Something that goes wrong."""

    title: ClassVar[str]
    kind: ClassVar[str]
    """The kind of its one finding, as ``check --json`` prints it."""
    lock: ClassVar[str] = ""
    """The lock that the finding is in; empty if it is about the whole store."""
    worker: ClassVar[str] = CRON
    """The worker that runs its job."""

    @property
    def shown_lock(self) -> str:
        """Where it happened, for people."""
        return self.lock

    def make(self, team: Team) -> None:
        """Let it happen. Raises ``CommandError`` if something else happens."""
        raise NotImplementedError


class DeadCron(Fault):
    """Twenty minutes ago cron started its jobs for the last time."""

    title = "cron is dead"
    kind = "silent"
    past = (
        EarlierRuns("shop.import_orders", 5 * MINUTE, timedelta(seconds=41)),
        EarlierRuns("shop.send_mails", 5 * MINUTE, timedelta(seconds=9)),
        EarlierRuns("shop.update_stock", 10 * MINUTE, timedelta(seconds=150)),
    )

    @property
    def shown_lock(self) -> str:
        """All locks whose jobs are overdue."""
        return ", ".join(earlier.job for earlier in self.past)

    def make(self, team: Team) -> None:
        died = LockRecord.objects.clock() - 20 * MINUTE
        for earlier in self.past:
            run(team[CRON], earlier.job, WELL, RAN)
            move_to(earlier.job, tick_before(died, earlier.interval))
            earlier.write()


class Hanging(Fault):
    """A job has hung for three hours; all its later ticks are skipped."""

    title = "a job hangs"
    lock = "shop.sync_prices"
    kind = "long"
    worker = "hanging"
    past = EarlierRuns(lock, 5 * MINUTE, timedelta(seconds=55))

    def make(self, team: Team) -> None:
        run(team[CRON], self.lock, WELL, RAN)
        move_back(self.lock, self.past.interval)  # its next tick may run now
        start_to_hang(team[self.worker], self.lock)
        began = LockRecord.objects.clock() - 3 * HOUR
        tick = tick_before(began, self.past.interval)
        move_to(self.lock, tick, but="lock_until")
        self.past.write()
        run(team[CRON], self.lock, WELL, SKIPPED)


class Failing(Fault):
    """A job has failed three times in a row."""

    title = "a job failed three times"
    lock = "shop.charge_cards"
    kind = "failed"
    past = EarlierRuns(lock, 15 * MINUTE, timedelta(seconds=74))

    def make(self, team: Team) -> None:
        run(team[CRON], self.lock, WELL, RAN)
        for _ in range(3):
            move_back(self.lock, self.past.interval)
            run(team[CRON], self.lock, FAIL, FAILED)
        move_ago(self.lock, 45 * MINUTE)
        self.past.write()


class Killed(Fault):
    """A worker was killed while it held a lock, whose lease is over."""

    title = "a worker was killed"
    lock = "shop.make_thumbnails"
    kind = "expired"
    worker = "killed"
    past = EarlierRuns(lock, HOUR, 6 * MINUTE)

    def make(self, team: Team) -> None:
        run(team[CRON], self.lock, WELL, RAN)
        move_back(self.lock, self.past.interval)
        start_to_hang(team[self.worker], self.lock)
        team[self.worker].kill()
        move_ago(self.lock, HOUR)
        self.past.write()


class Lost(Fault):
    """A process stood still until another one had its lock, and then went on."""

    title = "a job went on without its lock"
    lock = "shop.pay_suppliers"
    kind = "lost"
    worker = "stopped"
    past = EarlierRuns(lock, HOUR, timedelta(seconds=95))

    def make(self, team: Team) -> None:
        start_to_hang(team[self.worker], self.lock)
        with team[self.worker].stopped():
            until(self.is_lease_over)
            run(team[CRON], self.lock, WELL, RAN)
        until(self.is_loss_known)
        move_ago(self.lock, 40 * MINUTE)
        self.past.write()

    def is_lease_over(self) -> bool:
        """Return whether the next start acquires the lock."""
        status = get_provider().status(self.lock)
        return status is not None and status.state is LockState.EXPIRED

    def is_loss_known(self) -> bool:
        """Return whether the process that went on has reported its loss."""
        is_on_record = LockRecord.objects.filter(name=self.lock, lost_at__isnull=False)
        lost = LockRun.objects.filter(name=self.lock, outcome=RunOutcome.LOST.value)
        return is_on_record.exists() and lost.exists()


class Slow(Fault):
    """A job that usually takes 25 minutes has run for more than three times as long."""

    title = "a job takes three times as long"
    lock = "shop.rebuild_search"
    kind = "long"
    worker = "slow"
    past = EarlierRuns(lock, 4 * HOUR, 25 * MINUTE, spread=0.02)

    def make(self, team: Team) -> None:
        run(team[CRON], self.lock, WELL, RAN)
        move_back(self.lock, self.past.interval)
        start_to_hang(team[self.worker], self.lock)
        move_ago(self.lock, 4 * self.past.usual, but="lock_until")
        self.past.write()


class Paused(Fault):
    """Two days ago somebody paused a job, without an end."""

    title = "a pause has no end"
    lock = "shop.send_newsletter"
    kind = "paused"
    past = EarlierRuns(lock, DAY, 3 * MINUTE, reach=8 * DAY)

    def make(self, team: Team) -> None:
        run(team[CRON], self.lock, WELL, RAN)
        move_ago(self.lock, 3 * HOUR)
        reason = "until the new template is approved"
        printed = io.StringIO()
        call_command("shedlock", "pause", self.lock, "--reason", reason, stdout=printed)
        move_back(self.lock, 2 * DAY)
        self.past.write()


class Requested(Fault):
    """Somebody asked for a run in the admin, but neither a beat nor catch-up runs."""

    title = "nobody carries out a request"
    lock = "shop.export_taxes"
    kind = "request"

    def make(self, team: Team) -> None:
        get_provider().request_run(self.lock, "maria", "the tax office asks for it")
        move_back(self.lock, 25 * MINUTE)


class Unrecorded(Fault):
    """A job ran, but the history could not be written."""

    title = "the history can't be written"
    lock = "shop.archive_orders"
    kind = "history"
    past = EarlierRuns(lock, HOUR, timedelta(seconds=22))

    def make(self, team: Team) -> None:
        run(team[CRON], self.lock, WELL, RAN)
        move_back(self.lock, self.past.interval)
        with history_away():
            run(team[CRON], self.lock, WELL, RAN)
        move_ago(self.lock, 45 * MINUTE)
        self.past.write()


class WrongClock(Fault):
    """The clock of a host is two minutes ahead of the store's."""

    title = "a host's clock is two minutes off"
    kind = "clock"
    ahead = timedelta(minutes=2)

    @property
    def shown_lock(self) -> str:
        """No lock: only that host can see it."""
        return "(seen on that host: see below)"

    def make(self, team: Team) -> None:
        """Do nothing: see ``example.apps`` for the processes that run on that host."""


FAULTS: tuple[Fault, ...] = (
    *(DeadCron(), Hanging(), Failing(), Killed(), Lost()),
    *(Slow(), Paused(), Requested(), Unrecorded(), WrongClock()),
)
EXPECTED = [Expected(fault.title, fault.lock or None, fault.kind) for fault in FAULTS]
"""What each page, mail and post has to report, once each."""
TEAM = tuple(dict.fromkeys(fault.worker for fault in FAULTS))


class Incident:
    """Makes all faults, and shows which lock has which."""

    def __init__(self, screen: Screen, team: list[Worker]):
        self.screen = screen
        self.team = {worker.name: worker for worker in team}

    def play(self) -> None:
        """Make one fault after the other, then list them."""
        self.screen.title("Ten things go wrong, which takes a few seconds")
        for fault in FAULTS:
            fault.make(self.team)
        put_in_order()
        self.screen.title("What is wrong, and the lock of its job")
        for fault in FAULTS:
            self.screen.write(LINE.format(fault.title, fault.shown_lock))


def run(worker: Worker, job: str, how: str, expected: str) -> None:
    """Let the worker start the job. Raises ``CommandError`` if it surprises."""
    worker.fire(job, how)
    outcome = worker.outcome()
    if outcome != expected:
        raise CommandError(f"{job} {outcome}; expected: {expected}.")


def start_to_hang(worker: Worker, job: str) -> None:
    """Let the worker start the job, and return when the job hangs."""
    worker.fire(job, HANG)
    began = JobRun.objects.filter(job=job, worker=worker.name)
    until(began.exists)


@contextmanager
def history_away() -> Iterator[None]:
    """Rename the table of the history, so that nobody can write it."""
    rename(HISTORY, HISTORY_AWAY)
    try:
        yield
    finally:
        rename(HISTORY_AWAY, HISTORY)


def rename(table: str, name: str) -> None:
    """Rename a table, on SQLite as on PostgreSQL."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO {name}")


def bring_history_back() -> None:
    """Undo what a demo left that was killed while the history was away."""
    if HISTORY_AWAY in connection.introspection.table_names():
        rename(HISTORY_AWAY, HISTORY)


def forget_everything() -> None:
    """Empty the tables of the locks and of the console."""
    for app in ("django_shedlock", "shedlock_console"):
        for model in apps.get_app_config(app).get_models():
            model._default_manager.all().delete()
