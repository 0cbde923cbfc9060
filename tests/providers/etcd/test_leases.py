"""What etcd's leases decide, whatever the clocks and the records say."""

from __future__ import annotations

import json
import math
from datetime import timedelta

import pytest

from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers import etcd_gateway as gateway
from django_shedlock.providers.etcd import EtcdLockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.testing.contract.harness import force_extend
from tests.providers.etcd.test_contract import (
    end_lease,
    known,
    lost_answers,
    put_record,
    send,
)
from tests.providers.etcd.test_requests import asked
from tests.support.etcd_servers import PATIENT, ReachableEtcd, prefixes
from tests.support.locks import MINUTE, configure, status_of, take, try_from

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HOUR_NEARLY = 59 * 60
another_clock = pytest.mark.parametrize("by", [-DAY, DAY], ids=["behind", "ahead"])


def left(locks: EtcdLockProvider) -> float:
    """Return the seconds that etcd's lease lasts still."""
    lease = known(locks, "job")[1].lease
    answer, _ = locks.members.ask("lease/timetolive", {"ID": str(lease)})
    return float(answer["TTL"])


def shift_clock(locks: EtcdLockProvider, by: timedelta) -> None:
    """Let the record be as if a member with another clock had answered."""
    values = json.loads(known(locks, "job")[0].value)
    for field in ("locked_at", "lock_until", "lock_at_least_until"):
        values[field] += by.total_seconds()
    put_record(locks, json.dumps(values).encode())


def test_lease_is_never_too_short(locks: EtcdLockProvider) -> None:
    """Whole seconds, and one more since two members' clocks may differ by one."""
    take(LockConfiguration("job", timedelta(seconds=90.2)), locks)
    lease = known(locks, "job")[1].lease
    answer, _ = locks.members.ask("lease/timetolive", {"ID": str(lease)})
    assert int(answer["grantedTTL"]) == math.ceil(90.2) + 1


def test_lease_of_etcd_decides(locks: EtcdLockProvider) -> None:
    """Not the times in the record, which are for people and for ticks."""
    lock = take(configure(), locks)
    end_lease(locks, "job")
    assert not locks.extend(lock, MINUTE)
    [status] = locks.statuses()
    assert not status.remaining
    take(configure(), locks)
    values = json.loads(known(locks, "job")[0].value)
    values["lock_until"] = 1.0
    put_record(locks, json.dumps(values).encode())
    assert isinstance(try_from(locks, configure()), LockHolder)
    [status] = locks.statuses()
    assert status.remaining


def test_no_lease_is_left(locks: EtcdLockProvider) -> None:
    """Neither a release nor an extension leaves an old etcd lease behind."""
    lock = take(configure(), locks)
    leases = [known(locks, "job")[1].lease]
    assert locks.extend(lock, MINUTE)
    leases.append(known(locks, "job")[1].lease)
    assert locks.release(lock)
    for lease in leases:
        answer, _ = locks.members.ask("lease/timetolive", {"ID": str(lease)})
        assert answer["TTL"] == "-1"


def test_lost_race_leaves_no_lease(
    locks: EtcdLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was granted for it is revoked."""
    entry, version, _ = locks.read("job")
    assert entry is None
    winner = take(configure(), locks)
    taken = locks.read("job")[0]
    assert taken is not None
    with asked(monkeypatch) as paths:
        assert not locks.write("job", taken, version)
    assert paths == ["lease/grant", "kv/txn", "lease/revoke"]
    assert locks.release(winner)


@another_clock
def test_change_of_the_job_leaves_the_lease(
    locks: EtcdLockProvider, monkeypatch: pytest.MonkeyPatch, by: timedelta
) -> None:
    """What is written about its runs neither ends a lease nor makes it longer."""
    lock = take(configure(), locks)
    shift_clock(locks, by)
    lease = known(locks, "job")[1].lease
    with asked(monkeypatch) as paths:
        locks.request_run("job", "alice", "again")
        locks.note_unrecorded("job")
        locks.account_for_loss(lock, has_ended=False)
    assert set(paths) == {"kv/txn"}
    assert known(locks, "job")[1].lease == lease
    assert 0 < left(locks) <= 61
    assert status_of(locks, "job").job.asked_by == "alice"
    assert isinstance(try_from(locks, configure()), LockHolder)


@another_clock
def test_extension_after_another_clock(locks: EtcdLockProvider, by: timedelta) -> None:
    """etcd's lease lasts as long as the holder was promised."""
    lock = take(LockConfiguration("job", MINUTE), locks)
    shift_clock(locks, by)
    assert locks.extend(lock, HOUR)
    assert left(locks) > HOUR_NEARLY
    [status] = locks.statuses()
    assert status.remaining < HOUR + MINUTE


def test_extension_of_a_lease_that_is_nearly_over(locks: EtcdLockProvider) -> None:
    """
    An extension renews an etcd lease that is nearly over.

    The record may say that the lease has only begun.
    """
    lock = take(LockConfiguration("job", HOUR), locks)
    value = known(locks, "job")[0].value
    grant = {"TTL": 60, "ID": 0}
    short = int(locks.members.ask("lease/grant", grant)[0]["ID"])
    send(locks, gateway.put_key(locks._keys("job")[1], value, short))
    shift_clock(locks, DAY)
    assert locks.extend(lock, HOUR)
    assert left(locks) > HOUR_NEARLY


@another_clock
def test_shorter_extension(locks: EtcdLockProvider, by: timedelta) -> None:
    """A shorter extension never shortens etcd's lease, whatever the record says."""
    lock = take(LockConfiguration("job", HOUR), locks)
    shift_clock(locks, by)
    assert locks.extend(lock, MINUTE)
    assert left(locks) > HOUR_NEARLY
    assert force_extend(locks, "job", MINUTE)
    assert left(locks) > HOUR_NEARLY


def test_lease_in_its_last_second(
    locks: EtcdLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd leaves out a number that is 0, such as the seconds that are left."""
    monkeypatch.setattr(gateway.Members, "ask", lambda *_: ({"header": {}}, 0.0))
    assert locks._left("job", 1) == 0


def test_deleted_record_frees_no_lock(locks: EtcdLockProvider) -> None:
    """
    A lock whose record was deleted stays held.

    The lock is still listed, and its holder can extend and release it.
    """
    lock = take(configure(), locks)
    token = lock.fencing_token
    send(locks, gateway.delete_key(locks._keys("job")[0]))
    assert isinstance(try_from(locks, configure()), LockHolder)
    [status] = locks.statuses()
    assert status.locked_by == lock.locked_by
    assert list(locks.names()) == ["job"]
    assert lock.fencing_token == token
    assert locks.extend(lock, MINUTE)
    assert known(locks, "job")[0].revision
    assert locks.release(lock)
    assert status_of(locks, "job").state.name == "FREE"


def test_lease_in_use_is_not_revoked(running_etcd: ReachableEtcd) -> None:
    """Not even by the one who granted it, and could not see that it was used."""
    endpoints = [running_etcd.url, running_etcd.url]
    locks = EtcdLockProvider(
        "default", endpoints=endpoints, prefix=next(prefixes), **PATIENT
    )
    lock = take(LockConfiguration("job", HOUR, MINUTE), locks)
    schedule = Schedule("0 8 * * *", "UTC")
    with lost_answers(1, lambda: locks.register("job", schedule)):
        locks.release(lock)
    assert left(locks) > 30
    holder = try_from(locks, configure())
    assert isinstance(holder, LockHolder)
    assert status_of(locks, "job").schedule_state.schedule == schedule
    locks.members.clients.close()
