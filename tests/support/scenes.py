"""Locks and runs as an operator meets them, on a bad morning and on a quiet day."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from operator import attrgetter
from secrets import token_hex
from typing import Any
from zoneinfo import ZoneInfo

from django.db import transaction

from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.schedules.cron import Schedule
from tests.support.last_runs import follow_history

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
ZONE = "America/Chicago"
START_DELAY = timedelta(seconds=1.4)
"""How long after its tick a scheduler starts a job."""

STUCK = "billing.send_digest"
KILLED = "reports.monthly"
FAILING = "invoices.export"
LATE = "feeds.import"
KEPT = "rates.refresh"
PAUSED = "shop.send_newsletter"
ASKED = "taxes.export"
PASSED_OVER = "stock.count"
UNRECORDED = "orders.archive"
FREE = 300
HOLDER = "web-2:4711:9f86d081884c7d65"

NEXT = "rates.fetch"
"""On the quiet day, the job that comes next."""
QUIET_RUNNING = {"exports.customers": 40 * SECOND, "media.transcode": 3 * MINUTE}
"""The jobs that run on the quiet day, and for how long they have run."""
QUIET_AREAS = "search sessions shipping shop stats stock suppliers tax tickets users"
QUIET_WORK = "archive check clean count export import notify rebuild report sync"
QUIET_SCHEDULES = {
    "0 6 * * 1": (110 * SECOND, 2),
    "30 2 * * *": (95 * SECOND, 6),
    "@hourly": (24 * SECOND, 42),
    "*/15 * * * *": (9 * SECOND, 30),
    "*/5 * * * *": (5 * SECOND, 20),
}
"""Schedules with ticks of ``*/5``: how long runs take, and how many jobs there are."""
QUIET_FREE = 197
QUIET_AREAS_WITH_HISTORY = 5
"""The jobs of so many areas, those on the list's first page, have a day of runs."""


@transaction.atomic
def bad_morning() -> None:
    """Make locks in each state, with runs behind them."""
    with stage() as morning:
        morning.bad_morning()


@transaction.atomic
def incident() -> None:
    """Add to the bad morning what else can go wrong, among 300 locks that are free."""
    with stage() as morning:
        _incident(morning)


@transaction.atomic
def every_kind() -> None:
    """Make the incident, and a lock for each other kind of finding in a lock."""
    with stage() as morning:
        _incident(morning)
        morning.other_kinds()


@transaction.atomic
def quiet() -> None:
    """Make 299 locks in which nothing is wrong, and a day of runs of the first ones."""
    with stage() as day:
        day.quiet()


@transaction.atomic
def each_state() -> None:
    """Make locks in each state, and with each finding that is common."""
    with stage() as morning:
        morning.each_state()


def _incident(morning: Stage) -> None:
    morning.bad_morning()
    morning.more_faults()
    for number in range(FREE):
        morning.free(f"cron:shop.imports.nightly.customer_{number:03}", 2 * HOUR)


@contextmanager
def stage() -> Iterator[Stage]:
    """Give the store at this moment, and save what the block adds to it."""
    scene = Stage(LockRecord.objects.clock())
    yield scene
    LockRecord.objects.bulk_create(scene.records)
    # People see the runs in the order in which they were written.
    LockRun.objects.bulk_create(sorted(scene.runs, key=attrgetter("ended")))
    follow_history(*{run.name for run in scene.runs})


@dataclass(frozen=True)
class Stage:
    """The store at one instant of its clock, to which locks and runs are added."""

    now: datetime
    records: list[LockRecord] = field(default_factory=list)
    runs: list[LockRun] = field(default_factory=list)

    def bad_morning(self) -> None:
        self.taken(STUCK, HOLDER, ago=2 * HOUR, left=40 * MINUTE)
        self.taken(
            "search.reindex", "web-1:815:2c624232cdd22177", ago=MINUTE, left=9 * MINUTE
        )
        self.taken(KILLED, "web-3:99:4e07408562bedb8b", ago=5 * HOUR, left=-HOUR)
        for name, took in (
            (STUCK, timedelta(minutes=3, seconds=22)),
            (KILLED, 23 * MINUTE),
            ("search.reindex", 4 * MINUTE),
        ):
            self.runs.extend(
                self.run(name, self.now - days * DAY, took + days % 5 * 11 * SECOND)
                for days in range(14, 0, -1)
            )
        self._nightly()
        self._mirror()
        self._kept()

    def _nightly(self) -> None:
        """Let a daily job fail, seven hours ago."""
        name, holder = "nightly.cleanup", "web-2:12:6b86b273ff34fce1"
        schedule = self.daily(self.now - 7 * HOUR)
        *earlier, last = self.ticks(schedule, self.now, 15)
        self.runs.extend(
            self.run(name, tick + START_DELAY, (6 + day % 3) * MINUTE)
            for day, tick in enumerate(earlier)
        )
        failed = self.run(
            name,
            last + START_DELAY,
            12 * MINUTE,
            locked_by=holder,
            outcome=RunOutcome.FAILED,
            exception_type="django.db.utils.OperationalError",
            exception_message="could not extend file: No space left on device",
        )
        self.runs.append(failed)
        self.released(failed, schedule)

    def _mirror(self) -> None:
        """Let an hourly job run all day; it failed once, and lost its lock once."""
        name, schedule = "mirror.pull", Schedule("@hourly", ZONE)
        ticks = self.ticks(schedule, self.now - 3 * MINUTE, 24)
        outcomes = {14: RunOutcome.FAILED, 7: RunOutcome.LOST}
        runs = [
            self.run(
                name,
                tick + START_DELAY,
                timedelta(seconds=40 + 17 * (hour % 6)),
                host="web-3",
                outcome=outcomes.get(hour, RunOutcome.SUCCEEDED),
            )
            for hour, tick in enumerate(ticks)
        ]
        self.runs.extend(runs)
        self.released(runs[-1], schedule)

    def _kept(self) -> None:
        """Let ``lock_at_least_for`` keep the lock of a job that has just run."""
        schedule = self.hourly(self.now)
        *earlier, last = self.ticks(schedule, self.now, 12)
        took = timedelta(milliseconds=740)
        self.runs.extend(
            self.run(KEPT, tick + START_DELAY, took + hour % 4 * took)
            for hour, tick in enumerate(earlier)
        )
        # Its tick may have come only now.
        start = min(last + START_DELAY, self.now - took)
        run = self.run(KEPT, max(last, start), min(took, self.now - last))
        self.runs.append(run)
        self.released(run, schedule, at_least=5 * MINUTE)

    def more_faults(self) -> None:
        runs = [
            self.run(
                FAILING,
                self.now - quarters * HOUR / 4 - 9 * MINUTE / quarters,
                9 * MINUTE / quarters,
                outcome=RunOutcome.FAILED,
                host="web-2",
                exception_type="requests.exceptions.ConnectTimeout",
                exception_message="ledger.example.net did not answer within 30 seconds",
            )
            for quarters in (4, 3, 2, 1)
        ]
        self.runs.extend(runs)
        self.released(runs[-1])
        schedule = Schedule("@hourly", ZONE)
        ticks = self.ticks(schedule, self.now - 4 * HOUR, 20)
        runs = [self.run(LATE, tick + START_DELAY, 3 * MINUTE) for tick in ticks]
        self.runs.extend(runs)
        self.released(runs[-1], schedule)

    def other_kinds(self) -> None:
        for name, outcome in (
            ("exports.partners", RunOutcome.TIMED_OUT),
            ("imports.partners", RunOutcome.ABANDONED),
        ):
            runs = [
                self.run(name, self.now - 7 * HOUR, 20 * MINUTE),
                self.run(name, self.now - 6 * HOUR, 50 * MINUTE, outcome=outcome),
            ]
            self.runs.extend(runs)
            self.released(runs[-1])
        hours = Schedule("@hourly", ZONE)
        oldest, *ticks = self.ticks(hours, self.now - 4 * MINUTE, 5)
        whole = {ASKED: ticks, UNRECORDED: ticks, PASSED_OVER: [oldest, ticks[-1]]}
        for name, begun in whole.items():
            runs = [self.run(name, tick + START_DELAY, MINUTE) for tick in begun]
            self.runs.extend(runs)
            self.released(runs[-1], hours)
        asked, unrecorded, passed_over = self.records[-3:]
        asked.asked_at, asked.asked_by = self.now - HOUR / 3, "maria"
        asked.asked_why = "for the audit"
        unrecorded.unrecorded_at = self.now - MINUTE
        passed_over.former_tick = oldest
        reason = "until the new template is approved"
        pause = Pause("maria", reason).identity()
        self.acquired(PAUSED, pause, 2 * DAY, left=FOREVER)

    def each_state(self) -> None:
        """
        Add locks whose names are in the order of urgency backwards.

        Their times are half an hour from a full one, so whole hours stay for a while.
        """
        half = HOUR / 2
        bad = self.now - 5 * HOUR - half
        moment = (self.now - 7 * HOUR - half).astimezone(UTC)
        daily = Schedule(f"{moment.minute} {moment.hour} * * *", "UTC")
        self._ended("a.free", self.now - 2 * HOUR - half, 3 * SECOND)
        self._ended("b.kept", self.now - HOUR - half, MINUTE, at_least=4 * HOUR)
        pause = Pause("maria", "until the new template is approved")
        self.acquired("c.paused", pause.identity(), 2 * DAY + half, left=FOREVER)
        self.runs.append(self.run("d.running", self.now - 2 * DAY, 4.5 * HOUR))
        self.taken("d.running", HOLDER, ago=3 * HOUR + half, left=3 * HOUR + half)
        running = self.records[-1]
        running.extended_at = self.now - HOUR - half
        running.schedule, running.due_at = str(daily), self.now - DAY
        for name in ("e.abandoned", "e.unknown"):
            self._ended(name, bad, None, outcome=RunOutcome.ABANDONED)
        self.runs[-1].started = None
        self._ended("f.lost", bad, 2 * HOUR, outcome=RunOutcome.LOST)
        self.runs.append(self.run("g.long", self.now - 23.5 * HOUR, 10 * MINUTE))
        holder = "web-1:815:2c624232cdd22177"
        self.taken("g.long", holder, ago=2 * HOUR + half, left=3 * HOUR + half)
        self.runs.append(self.run("h.expired", self.now - 9 * HOUR - half, MINUTE))
        holder = "web-3:99:4e07408562bedb8b"
        self.taken("h.expired", holder, ago=5 * HOUR + half, left=-HOUR - half)
        self.records[-1].extended_at = self.now - 2 * HOUR - half
        self._failed_twice()
        for tick in self.ticks(daily, self.now - 2 * DAY, 2):
            identity = f"web-1:7:{token_hex(8)}"
            run = self.run("j.overdue", tick + START_DELAY, SECOND, locked_by=identity)
            self.runs.append(run)
        self.released(run, daily)

    def _failed_twice(self) -> None:
        """Let a job fail, and fail again for an operator; a third run is asked for."""
        timed_out = self.run(
            "i.failed",
            self.now - 4 * HOUR,
            9 * MINUTE,
            locked_by=f"web-2:12:{token_hex(8)}",
            outcome=RunOutcome.TIMED_OUT,
        )
        self.runs.append(timed_out)
        self._ended(
            "i.failed",
            self.now - 2.5 * HOUR,
            MINUTE,
            outcome=RunOutcome.FAILED,
            trigger="operator",
            operator="alice",
            reason="a customer waits",
            exception_type="shop.errors.NoPaper",
            exception_message="tray 2",
        )
        record = self.records[-1]
        record.asked_at, record.asked_by = self.now - HOUR / 4, "maria"
        record.asked_why = "for the audit"

    def _ended(
        self,
        name: str,
        started: datetime,
        took: timedelta | None,
        *,
        at_least: timedelta | None = None,
        **columns: Any,
    ) -> None:
        """Add a lock without a schedule, and its last run."""
        identity = f"web-1:7:{token_hex(8)}"
        run = self.run(name, started, took or HOUR, locked_by=identity, **columns)
        run.duration = took
        self.runs.append(run)
        self.released(run, at_least=at_least)

    def quiet(self) -> None:
        for name, ago in QUIET_RUNNING.items():
            self.runs.extend(
                self.run(name, self.now - days * DAY, 4 * ago) for days in (3, 2, 1)
            )
            holder = f"web-1:{1200 + len(name)}:{token_hex(8)}"
            self.taken(name, holder, ago=ago, left=HOUR)
        names = [
            f"{area}.{work}"
            for work in QUIET_WORK.split()
            for area in QUIET_AREAS.split()
        ]
        shown = tuple(QUIET_AREAS.split()[:QUIET_AREAS_WITH_HISTORY])
        # Of the jobs with the same next tick, its name is the first.
        names[-1] = NEXT
        jobs = iter(names)
        for expression, (took, count) in QUIET_SCHEDULES.items():
            schedule = Schedule(expression, ZONE)
            for name in islice(jobs, count):
                has_history = name == NEXT or name.startswith(shown)
                runs = list(self._past(name, schedule, took, has_history))
                self.runs.extend(runs)
                self.released(runs[-1], schedule)
        for number in range(QUIET_FREE):
            self.free(f"tenants.import_customer_{number:03}", 3 * MINUTE)

    def _past(
        self, name: str, schedule: Schedule, took: timedelta, has_history: bool
    ) -> Iterator[LockRun]:
        """Yield the runs of a day, or only the last one."""
        last, *earlier = islice(schedule.ticks_until(self.now - 2 * took), 289)
        recent = list(takewhile((self.now - DAY).__lt__, earlier))
        ticks = [*reversed(recent if has_history else []), last]
        for number, tick in enumerate(ticks, start=len(name)):
            lasted = took + took * (number * 7 % 10) / 20
            host = f"web-{1 + number * 5 % 3}"
            yield self.run(name, tick + START_DELAY, lasted, host=host)

    def ticks(self, schedule: Schedule, until: datetime, count: int) -> list[datetime]:
        """Return so many ticks up to a moment, the oldest first."""
        return list(islice(schedule.ticks_until(until), count))[::-1]

    def daily(self, moment: datetime) -> Schedule:
        """Return a schedule whose tick is the minute of this moment on each day."""
        shown = moment.astimezone(ZoneInfo(ZONE))
        return Schedule(f"{shown.minute} {shown.hour} * * *", ZONE)

    def hourly(self, moment: datetime) -> Schedule:
        """Return a schedule whose tick is the minute of this moment in each hour."""
        return Schedule(f"{moment.minute} * * * *", ZONE)

    def run(
        self,
        name: str,
        started: datetime,
        took: timedelta,
        *,
        outcome: RunOutcome = RunOutcome.SUCCEEDED,
        host: str = "web-1",
        locked_by: str = "",
        trigger: str = "scheduler",
        **columns: Any,
    ) -> LockRun:
        """Return a run, which has yet to be saved."""
        number = 300 + int(started.timestamp()) // 60 % 20_000
        identity = locked_by or f"{host}:{number}:{token_hex(8)}"
        shown_host, pid = split_identity(identity)
        return LockRun(
            name=name,
            provider="default",
            locked_by=identity,
            host=shown_host,
            pid=pid,
            fencing_token=_token(started),
            trigger=trigger,
            outcome=outcome,
            started=started,
            ended=started + took,
            duration=took,
            **columns,
        )

    def taken(self, name: str, holder: str, *, ago: timedelta, left: timedelta) -> None:
        """Add a lock whose job runs, or whose worker has died."""
        self.acquired(name, holder, ago, left=left)
        self.records[-1].open_run = holder

    def acquired(
        self, name: str, holder: str, ago: timedelta, *, left: timedelta
    ) -> None:
        """Add a lock that was acquired so long ago, and not released."""
        locked_at = self.now - ago
        self.records.append(
            LockRecord(
                name=name,
                locked_by=holder,
                locked_at=locked_at,
                lock_until=self.now + left,
                fencing_token=_token(locked_at),
            )
        )

    def released(
        self,
        run: LockRun,
        schedule: Schedule | None = None,
        *,
        at_least: timedelta | None = None,
    ) -> None:
        """Add the lock of this run, which has released it."""
        assert run.started is not None
        record = LockRecord(
            name=run.name,
            locked_by=run.locked_by,
            locked_at=run.started,
            lock_until=run.started + (at_least or timedelta(0)),
            released_at=run.ended,
            fencing_token=run.fencing_token,
        )
        if at_least is not None:
            record.lock_at_least_until = record.lock_until
        if schedule is not None:
            tick, following = schedule.around(run.started)
            record.schedule, record.tick = str(schedule), tick
            record.former_tick = next(schedule.ticks_until(tick - SECOND))
            has_succeeded = run.outcome == RunOutcome.SUCCEEDED
            record.due_at = following if has_succeeded else tick
        self.records.append(record)

    def free(self, name: str, ago: timedelta) -> None:
        """Add a lock without a schedule, released long ago."""
        self.acquired(name, HOLDER, ago, left=-ago)
        self.records[-1].released_at = self.now - ago + MINUTE


def _token(moment: datetime) -> int:
    """Return a fencing token, which follows the store's clock."""
    return int(moment.timestamp() * 1000)
