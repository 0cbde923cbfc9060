"""Each acquisition is accounted for once, whatever becomes of its worker."""

from __future__ import annotations

import os
import random
import time
from datetime import timedelta

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.signals import lock_acquired
from django_shedlock.sql.fields import DatabaseNow
from tests.support.locks import Broken, configure
from tests.support.processes import Parent, workers

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 6
ROUNDS = 60
LEASE = timedelta(milliseconds=30)


def begin(provider: DatabaseLockProvider, lease: timedelta = LEASE) -> Lock | None:
    """Begin a run if the lock is free, as a job does."""
    lock = Lock(provider, configure(lock_at_most_for=lease))
    try:
        holder = provider.acquire(lock)
    except LockProviderError:  # nobody knows whether the lock was acquired
        return None
    if holder is not None:
        return None
    lock_acquired.send_robust(type(provider), lock=lock)
    return lock


def live_and_die(parent: Parent) -> dict[str, str]:
    """Return each acquisition of this process, and what has become of it."""
    provider, chance = DatabaseLockProvider("default"), random.Random(os.getpid())
    ends: dict[str, str] = {}
    parent.say("ready")
    parent.wait()
    for _ in range(ROUNDS):
        if (lock := begin(provider)) is None:
            time.sleep(chance.uniform(0, 0.01))
            continue
        end = chance.choice(["succeed", "fail", "die", "be late"])
        if end == "be late":
            time.sleep(LEASE.total_seconds() * 1.5)
        if end != "die":
            lock.release(Broken() if end == "fail" else None)
        ends[lock.locked_by] = end
    return ends


def test_each_acquisition_is_accounted_for_once() -> None:
    """The history has one row of each, and the record counts the last failures."""
    with workers(WORKERS, live_and_die) as running:
        for each in running:
            assert each.heard() == "ready"
        for each in running:
            each.send()
        ends: dict[str, str] = {}
        for each in running:
            ends |= each.result()
    LockRecord.objects.update(lock_until=DatabaseNow())
    last = begin(DatabaseLockProvider("default"), timedelta(minutes=5))
    assert last is not None
    failures = LockRecord.objects.get().failures
    outcomes = dict(LockRun.objects.values_list("locked_by", "outcome"))
    assert outcomes.keys() == ends.keys()
    assert LockRun.objects.count() == len(ends) > WORKERS
    expected = {
        "succeed": {RunOutcome.SUCCEEDED, RunOutcome.LOST},  # if it took too long
        "fail": {RunOutcome.FAILED, RunOutcome.LOST},
        "die": {RunOutcome.ABANDONED},
        "be late": {RunOutcome.LOST},
    }
    for locked_by, end in ends.items():
        assert outcomes[locked_by] in expected[end], (locked_by, end)
    successes = LockRun.objects.filter(outcome=RunOutcome.SUCCEEDED)
    newest = successes.order_by("-fencing_token").first()
    since = 0 if newest is None else newest.fencing_token
    record = LockRecord.objects.get()
    assert (record.open_run, record.locked_by) == (last.locked_by, last.locked_by)
    # Of those that died nobody knows the token, so the record has the number.
    assert failures >= LockRun.objects.filter(fencing_token__gt=since).count()
    assert last.release()
    assert LockRecord.objects.get().failures == 0
