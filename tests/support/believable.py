"""Whether rows that a scene or a demo has written could have come from real runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import pairwise

from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.schedules.state import parse_known

LONGEST_DELAY = timedelta(seconds=10)
"""A scheduler starts a job at most so long after its tick."""


def contradictions(records: Iterable[LockRecord]) -> Iterator[str]:
    """Return what can't be true in these records, and in the runs of their locks."""
    now = LockRecord.objects.clock()
    for record in records:
        runs = list(LockRun.objects.filter(name=record.name).order_by("started"))
        for wrong in _wrong_runs(runs):
            yield f"{record.name}: {wrong}"
        for wrong in _wrong_starts(record, runs):
            yield f"{record.name}: {wrong}"
        ends = [run.ended for run in runs]
        if record.open_run and max(ends, default=now) > record.locked_at:
            yield f"{record.name}: a run ended after {record.open_run} began"
        if max([record.locked_at, record.released_at or now, *ends]) > now:
            yield f"{record.name}: something of the future"


def _wrong_runs(runs: list[LockRun]) -> Iterator[str]:
    # A run that lost its lock may run beside the next one.
    lasting = [run for run in runs if run.outcome != RunOutcome.LOST]
    for one, other in pairwise(lasting):
        assert other.started is not None
        if one.ended > other.started:
            yield f"{one.locked_by} ran beside {other.locked_by}"
    for run in runs:
        assert run.started is not None
        assert run.duration is not None
        if abs(run.ended - run.started - run.duration) > timedelta(seconds=1):
            yield f"{run.locked_by} did not take {run.duration}"
    if [run.pk for run in runs] != sorted(run.pk for run in runs):
        yield "runs in another order than that of their times"
    tokens = [run.fencing_token or 0 for run in runs]
    if tokens != sorted(set(tokens)):
        yield "fencing tokens that do not grow"


def _wrong_starts(record: LockRecord, runs: list[LockRun]) -> Iterator[str]:
    schedule = parse_known(record.schedule)
    if schedule is None:
        return
    starts = {run.started for run in runs if run.started} | {record.locked_at}
    ticks = []
    for start in sorted(starts):
        tick, _ = schedule.around(start)
        if start - tick > LONGEST_DELAY:
            yield f"no tick at {start}"
        if tick not in ticks:
            ticks.append(tick)
    for one, other in pairwise(ticks):
        if next(schedule.ticks_after(one)) != other:
            yield f"no run between {one} and {other}"
    if record.tick != ticks[-1]:
        yield f"its tick is {record.tick} instead of {ticks[-1]}"
    if record.due_at not in (record.tick, next(schedule.ticks_after(ticks[-1]))):
        yield f"due at {record.due_at}"
