"""Locks and runs as an operator meets them on a bad morning."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from secrets import token_hex
from typing import Any

from django.db import transaction

from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.sql.fields import DatabaseNow
from tests.support.last_runs import follow_history

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

STUCK = "billing.send_digest"
KILLED = "reports.monthly"
FAILING = "invoices.export"
LATE = "feeds.import"
KEPT = "rates.refresh"
FREE = 300
HOLDER = "web-2:4711:9f86d081884c7d65"


@transaction.atomic
def bad_morning() -> None:
    """Make locks in each state, with runs behind them."""
    _record(STUCK, HOLDER, taken=2 * HOUR, left=40 * MINUTE)
    _record(
        "search.reindex", "web-1:815:2c624232cdd22177", taken=MINUTE, left=9 * MINUTE
    )
    _record(KILLED, "web-3:99:4e07408562bedb8b", taken=5 * HOUR, left=-HOUR)
    _record(
        "rates.refresh",
        "web-1:640:60303ae22b998861",
        taken=MINUTE / 3,
        left=2 * MINUTE,
        released=True,
    )
    _record(
        "nightly.cleanup",
        "web-2:12:6b86b273ff34fce1",
        taken=7 * HOUR,
        left=-7 * HOUR,
        released=True,
    )
    _record(
        "mirror.pull",
        "web-3:77:d4735e3a265e16ee",
        taken=HOUR,
        left=-HOUR,
        released=True,
    )
    _schedule("rates.refresh", "*/5 * * * *")
    _schedule("mirror.pull", "@hourly")
    _schedule("nightly.cleanup", "30 1 * * *", succeeded=2 * DAY)
    runs = list(_runs())
    LockRun.objects.bulk_create(runs)
    follow_history(*{run.name for run in runs})


@transaction.atomic
def incident() -> None:
    """Add to the bad morning what else can go wrong, among 300 locks that are free."""
    bad_morning()
    _record(FAILING, HOLDER, taken=HOUR / 4, left=-HOUR / 4, released=True)
    _record(LATE, HOLDER, taken=4 * HOUR, left=-4 * HOUR, released=True)
    LockRecord.objects.filter(name=KEPT).update(
        lock_at_least_until=DatabaseNow() + 2 * MINUTE, due_at=DatabaseNow() + HOUR
    )
    LockRecord.objects.filter(name="mirror.pull").update(due_at=DatabaseNow() + HOUR)
    _schedule(LATE, "@hourly", succeeded=6 * HOUR)
    LockRun.objects.bulk_create(
        _run(
            FAILING,
            ended=quarters * HOUR / 4,
            took=9 * MINUTE / quarters,
            outcome=RunOutcome.FAILED,
            host="web-2",
            exception_type="requests.exceptions.ConnectTimeout",
            exception_message="ledger.example.net did not answer within 30 seconds",
        )
        for quarters in (4, 3, 2, 1)
    )
    LockRun.objects.bulk_create(
        [_run(LATE, ended=hours * HOUR, took=3 * MINUTE) for hours in (6, 5, 4)]
    )
    follow_history(FAILING, LATE)
    LockRecord.objects.bulk_create(
        LockRecord(
            name=f"cron:shop.imports.nightly.customer_{number:03}",
            locked_by=HOLDER,
            locked_at=DatabaseNow() - 2 * HOUR,
            lock_until=DatabaseNow() - 2 * HOUR,
            released_at=DatabaseNow() - HOUR,
        )
        for number in range(FREE)
    )


def _runs() -> Iterator[LockRun]:
    for days in range(14, 0, -1):
        yield _run(
            STUCK, ended=days * DAY, took=timedelta(minutes=3, seconds=11 * (days % 5))
        )
        yield _run(KILLED, ended=days * DAY, took=(20 + days % 7) * MINUTE)
        yield _run("nightly.cleanup", ended=days * DAY, took=(6 + days % 3) * MINUTE)
        yield _run("search.reindex", ended=days * DAY, took=(2 + days % 4) * MINUTE)
    for hours in range(24, 1, -1):
        outcome = RunOutcome.FAILED if hours == 9 else RunOutcome.SUCCEEDED
        if hours == 16:
            outcome = RunOutcome.LOST
        yield _run(
            "mirror.pull",
            ended=hours * HOUR,
            took=timedelta(seconds=40 + 17 * (hours % 6)),
            outcome=outcome,
        )
    yield _run("rates.refresh", ended=MINUTE / 4, took=timedelta(milliseconds=740))
    yield _run(
        "nightly.cleanup",
        ended=7 * HOUR,
        took=12 * MINUTE,
        locked_by="web-2:12:6b86b273ff34fce1",
        outcome=RunOutcome.FAILED,
        host="web-2",
        exception_type="django.db.utils.OperationalError",
        exception_message="could not extend file: No space left on device",
    )


def _record(
    name: str,
    locked_by: str,
    *,
    taken: timedelta,
    left: timedelta,
    released: bool = False,
) -> None:
    LockRecord.objects.create(
        name=name,
        locked_by=locked_by,
        locked_at=DatabaseNow() - taken,
        lock_until=DatabaseNow() + left,
        released_at=DatabaseNow() - taken / 2 if released else None,
        open_run=None if released else locked_by,
        fencing_token=58,
    )


def _schedule(
    name: str, expression: str, *, succeeded: timedelta = timedelta(0)
) -> None:
    LockRecord.objects.filter(name=name).update(
        schedule=f"{expression} America/Chicago",
        tick=DatabaseNow() - succeeded / 2,
        due_at=DatabaseNow() - succeeded / 2,
    )


def _run(
    name: str,
    *,
    ended: timedelta,
    took: timedelta,
    outcome: RunOutcome = RunOutcome.SUCCEEDED,
    host: str = "web-1",
    **columns: Any,
) -> LockRun:
    identity = {
        "locked_by": f"{host}:{300 + ended.days}:{token_hex(4)}",
        "host": host,
        "pid": 300 + ended.days,
    }
    return LockRun(
        name=name,
        provider="default",
        fencing_token=1,
        outcome=outcome,
        started=DatabaseNow() - (ended + took),
        ended=DatabaseNow() - ended,
        duration=took,
        **{**identity, **columns},
    )
