"""A day of earlier runs for the jobs of the incident: copies of a run that was made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from secrets import token_hex
from zlib import crc32

from django.db import models
from django.db.models import F

from django_shedlock.console.models import LockAction
from django_shedlock.locks.status import RunOutcome, next_usual
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.schedules.state import parse_known

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
START_DELAY = timedelta(seconds=1.3)
"""How long after its tick a run begins: cron has to start a process first."""
HOSTS = ("web-1", "web-2", "web-3")
DEAD_HOST = "web-3"
DEAD_HOST_AGE = 6 * HOUR
"""How long ago this host started its last job; the others went on."""

# Note [Time that has to pass]
# Nobody waits for a day to see a pause of a day. So the demo makes each fault with real
# processes, and then moves the instants that the tables have of it back by an UPDATE,
# as if it had happened so long ago. All other faults are then older than the last start
# by cron: so it is true that no host has started a job since.

# Note [Runs that are copies]
# Nobody waits for a day to see a day of runs either. So each job runs once for real,
# and the demo copies the row of that run to the ticks before it. A copy gets its own
# host, identity and duration. Hosts, delays and durations are drawn by the names of the
# jobs and the copies' numbers, so each demo shows the same.


@dataclass(frozen=True)
class EarlierRuns:
    """
    What a job did before its fault: a run at each ``interval``, all successful.

    Each takes at least ``usual``, and less than ``1 + spread`` times as long. The
    oldest began at most ``reach`` ago.
    """

    job: str
    interval: timedelta
    usual: timedelta
    spread: float = 0.4
    reach: timedelta = DAY + HOUR

    def write(self) -> None:
        """Stretch the job's one successful run to its usual duration, and copy it."""
        # See Note [Runs that are copies].
        newest = LockRun.objects.get(name=self.job, outcome=RunOutcome.SUCCEEDED.value)
        self._stretch(newest)
        assert newest.started is not None
        now = LockRecord.objects.clock()
        starts = self._starts_before(newest.started)
        recent = takewhile((now - self.reach).__lt__, starts)
        copies = [
            self._copy(newest, number, start, self._host(now - start, number))
            for number, start in enumerate(recent, start=1)
        ]
        copies.reverse()
        LockRun.objects.bulk_create(copies)
        usual = None
        for run in (*copies, newest):
            assert run.duration is not None
            usual = next_usual(usual, run.duration.total_seconds())
        LockRecord.objects.filter(name=self.job).update(usual=usual)

    def _stretch(self, run: LockRun) -> None:
        """Act as if the run, whose body only waited for a moment, had taken longer."""
        assert run.started is not None
        run.duration, run.ended = self.usual, run.started + self.usual
        run.save(update_fields=["duration", "ended"])
        record = LockRecord.objects.filter(name=self.job)
        # A later run may have failed since, or be missing in the history.
        record.filter(last_run=run.locked_by).update(ended_at=run.ended)
        record.filter(locked_by=run.locked_by).update(released_at=run.ended)
        has_succeeded_since = ~models.Q(last_run=run.locked_by) & models.Q(
            outcome=RunOutcome.SUCCEEDED.value
        )
        record.exclude(has_succeeded_since).update(succeeded_at=run.ended)

    def _starts_before(self, start: datetime) -> Iterator[datetime]:
        number = 0
        while True:
            number += 1
            delay = timedelta(seconds=2 * self._draw("delay", number))
            yield start - number * self.interval + delay

    def _copy(self, run: LockRun, number: int, start: datetime, host: str) -> LockRun:
        pid = 700 + int(29_000 * self._draw("pid", number))
        took = self.usual * (1 + self.spread * self._draw("took", number))
        return LockRun(
            name=run.name,
            provider=run.provider,
            outcome=run.outcome,
            trigger=run.trigger,
            locked_by=f"{host}:{pid}:{token_hex(8)}",
            host=host,
            pid=pid,
            started=start,
            ended=start + took,
            duration=took,
        )

    def _host(self, age: timedelta, number: int) -> str:
        """Return the host of a copy of this age: one of them started nothing lately."""
        is_dead = age < DEAD_HOST_AGE
        alive = [host for host in HOSTS if not (is_dead and host == DEAD_HOST)]
        return alive[int(len(alive) * self._draw("host", number))]

    def _draw(self, what: str, number: int) -> float:
        """Return a number from 0 to 1, the same one in each demo."""
        return crc32(f"{what} {number} of {self.job}".encode()) / 2**32


def token_at(start: datetime) -> int:
    """Return the fencing token of an acquisition, which follows the store's clock."""
    return int(start.timestamp() * 1000)


def tick_before(moment: datetime, interval: timedelta = MINUTE) -> datetime:
    """Return the last multiple of the interval, as ``*/5`` counts in UTC."""
    return moment - (moment - datetime(1970, 1, 1, tzinfo=UTC)) % interval


def move_back(job: str, ago: timedelta, *, but: str = "") -> None:
    """Act as if all that the tables have of the job had happened earlier."""
    # See Note [Time that has to pass].
    for model in (LockRecord, LockRun, LockAction):
        columns = [
            field.name
            for field in model._meta.concrete_fields
            if isinstance(field, models.DateTimeField) and field.name != but
        ]
        rows = model._default_manager.filter(name=job)
        rows.update(**{column: F(column) - ago for column in columns})


def move_to(job: str, tick: datetime, *, but: str = "") -> None:
    """Act as if the job's lock had been acquired last right after this tick."""
    record = LockRecord.objects.get(name=job)
    move_back(job, record.locked_at - tick - START_DELAY, but=but)
    set_ticks(job)


def move_ago(job: str, ago: timedelta, *, but: str = "") -> None:
    """Act as if the job's lock had been acquired last at a full minute so long ago."""
    move_to(job, tick_before(LockRecord.objects.clock() - ago), but=but)


def set_ticks(job: str) -> None:
    """Let the ticks in the record be those of its schedule, if the job has one."""
    record = LockRecord.objects.get(name=job)
    schedule = parse_known(record.schedule)
    if schedule is None:
        return
    tick, following = schedule.around(record.locked_at)
    former = next(schedule.ticks_until(tick - MINUTE))
    due_at = following if record.open_run is None else tick
    LockRecord.objects.filter(name=job).update(
        tick=tick, former_tick=former, due_at=due_at
    )


def put_in_order() -> None:
    """Rewrite all runs, the oldest first, with the fencing tokens of their times."""
    # People see the runs in the order in which they were written.
    runs = list(LockRun.objects.order_by("ended"))
    LockRun.objects.all().delete()
    for run in runs:
        assert run.started is not None
        run.pk, run.fencing_token = None, token_at(run.started)
    LockRun.objects.bulk_create(runs)
    for record in LockRecord.objects.exclude(fencing_token=0):
        record.fencing_token = token_at(record.locked_at)
        record.save(update_fields=["fencing_token"])
