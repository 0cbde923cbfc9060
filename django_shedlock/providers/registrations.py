"""Let a lock have a schedule before its job runs for the first time."""

from __future__ import annotations

from contextlib import suppress

from django.db import IntegrityError

from django_shedlock.clocks import aware
from django_shedlock.models import LockRecord
from django_shedlock.progress import before_next
from django_shedlock.providers.claims import without_beyond
from django_shedlock.providers.statements import savepoint
from django_shedlock.schedules import Schedule
from django_shedlock.ticks import nearest


def register(name: str, schedule: Schedule, using: str) -> None:
    """See ``LockProvider.register()``; ``using`` is the alias of the database."""
    records = LockRecord.objects.using(using)
    named = records.filter(name=name)
    now = aware(records.clock())
    columns = {
        "schedule": str(schedule),
        "succeeded_tick": before_next(schedule, now),
    }
    forgotten = without_beyond(nearest(schedule, now), "tick", "caught_up_tick")
    others = named.unlike(schedule=str(schedule)).not_running()
    if others.update(**columns, **forgotten):
        return
    # A record that somebody else creates at this moment is of a job that runs.
    with suppress(IntegrityError), savepoint(using):
        if not named.exists():
            records.create_free(name, **columns)
