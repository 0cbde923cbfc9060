"""What real faults do to a lock, on real servers."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter as Counted
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from threading import active_count
from typing import Any, NoReturn
from unittest.mock import patch

import pytest
from django.db import connections, transaction

from django_shedlock import (
    LockLost,
    aexecute,
    current_lock,
    hold,
    locks_held,
)
from django_shedlock.clocks import uptime
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.signals import lock_extended, lock_lost
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import is_held, locked_in_memory
from tests.models import Counter
from tests.support.bridges import bridge
from tests.support.leases import (
    beat_now,
    beat_often,
    end_own_count,
    lease_end,
    next_beat,
    wait_until_idle,
)
from tests.support.locks import (
    configure,
    force_release,
    status_of,
    take_at_last,
    try_from,
)
from tests.support.processes import Parent, worker
from tests.support.servers import Server, own_server
from tests.support.threads import threads_named
from tests.support.waiting import NEVER_SECONDS, PATIENCE, wait_for, wait_for_servers

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]

LEASE = timedelta(minutes=10)
"""A worker may stand still for a part of it, as it does on a busy machine."""


@pytest.fixture
def provider() -> DatabaseLockProvider:
    return DatabaseLockProvider("default")


def hold_on(parent: Parent) -> dict[str, Any]:
    """Hold a lock that is kept alive until the test says to end; report on it."""
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        parent.say(lock.locked_by)
        parent.wait()
        beat_now(lock)
        parent.wait()
        return {"was_lost": lock.is_lost, "released": lock.release()}


def test_killed_worker_is_replaced_within_its_lease(
    provider: DatabaseLockProvider,
) -> None:
    """Another worker gets the lock of a killed worker exactly when its lease ends."""
    with worker(hold_on) as holder:
        identity = holder.heard()
        before = status_of(provider, "job")
        holder.send()
        wait_for(lambda: status_of(provider, "job").lock_until > before.lock_until)
        holder.kill()
        dead = status_of(provider, "job")
        assert dead.locked_by == identity
        assert dead.remaining <= LEASE
        soon = DatabaseNow() + timedelta(seconds=1)  # so as not to wait for all of it
        LockRecord.objects.update(lock_until=soon)
        dead = status_of(provider, "job")
        lock = take_in_time(provider, dead.lock_until)
    status = status_of(provider, "job")
    assert status.locked_by == lock.locked_by
    assert status.locked_at >= dead.lock_until


def take_in_time(provider: DatabaseLockProvider, lock_until: datetime) -> Lock:
    """Try until the lock is ours, and fail if it is not from this instant on."""
    while True:
        asked = provider.now()
        acquired = try_from(provider, configure())
        if isinstance(acquired, Lock):
            return acquired
        assert asked < lock_until
        time.sleep(0.005)


def test_kept_alive_while_others_try(provider: DatabaseLockProvider) -> None:
    """While the worker lives, nobody else gets in, and the lease goes on."""
    with worker(hold_on) as holder:
        identity = holder.heard()
        before = status_of(provider, "job")

        def is_extended() -> bool:
            acquired = try_from(provider, configure())
            assert not isinstance(acquired, Lock)
            assert acquired.locked_by == identity
            return status_of(provider, "job").lock_until > before.lock_until

        holder.send()
        wait_for(is_extended)
        holder.send()
        assert holder.result() == {"was_lost": False, "released": True}


def go_on_too_late(parent: Parent) -> dict[str, Any]:
    """Do what a worker does after a pause in which somebody took its lock."""
    report: dict[str, Any] = {}
    # So long that no heartbeat is in the middle of its statement when this stops.
    with hold("job", lock_at_most_for="10m", keep_alive=True) as lock:
        parent.say("inside")
        parent.wait()
        end_own_count(lock)
        report["fenced"] = write_fenced(lock)
        report["told"] = lock.lost.wait(PATIENCE)
        report["extended"] = extend(lock)
        report["released"] = lock.release()
    return report


def write_fenced(lock: Lock) -> bool:
    try:
        with transaction.atomic():
            Counter.objects.create(name="late")
            lock.fence()
    except LockLost:
        return False
    return True


def extend(lock: Lock) -> bool:
    try:
        lock.extend("1h")
    except LockLost:
        return False
    return True


def test_stopped_worker_does_no_harm(provider: DatabaseLockProvider) -> None:
    """Who was stopped past its lease is told, and changes nothing any more."""
    with worker(go_on_too_late) as late:
        assert late.heard() == "inside"
        late.stop()
        LockRecord.objects.update(lock_until=DatabaseNow())
        lock = take_at_last(provider, configure())
        before = status_of(provider, "job")
        late.send()
        late.go_on()
        assert late.result() == {
            "fenced": False,
            "told": True,
            "extended": False,
            "released": False,
        }
    after = status_of(provider, "job")
    assert (after.locked_by, after.lock_until) == (lock.locked_by, before.lock_until)
    assert after.state is LockState.RUNNING
    assert not Counter.objects.exists()


def hold_the_fence(parent: Parent) -> bool:
    """Fence, write, wait past the lease, and commit."""
    while True:
        # Where the machine is too slow for so short a lease, it takes another one.
        with suppress(LockLost):
            with hold("job", lock_at_most_for="600ms") as lock, transaction.atomic():
                lock.fence()
                Counter.objects.create(name="in time")
                parent.say("fenced")
                parent.wait()
            return lock.is_lost


def take_and_look(parent: Parent) -> tuple[bool, int]:
    """Take the lock as soon as it can be had, and count what is committed then."""
    parent.say("waiting")
    take_at_last(DatabaseLockProvider("default"), configure())
    return True, Counter.objects.count()


def test_nobody_takes_the_lock_before_a_fenced_commit() -> None:
    """Another process waits for a fenced transaction even after the lease has ended."""
    with worker(hold_the_fence) as holder:
        assert holder.heard() == "fenced"
        with worker(take_and_look) as other:
            assert other.heard() == "waiting"
            time.sleep(0.9)
            holder.send()
            assert other.result() == (True, 1)
        assert holder.result() is True


def wait_for_beat(parent: Parent) -> int:
    """Say in how many seconds the next beat is due; return how many the loss takes."""
    beats: list[Lock] = []
    heartbeat = DatabaseLockProvider.heartbeat

    def count(self: DatabaseLockProvider, lock: Lock) -> bool:
        beats.append(lock)
        return heartbeat(self, lock)

    with hold("job", lock_at_most_for="10m", keep_alive=True) as lock:
        parent.say(next_beat(lock))
        parent.wait()
        with patch.object(DatabaseLockProvider, "heartbeat", count):
            beat_now(lock)
            wait_for(lock.lost.is_set)
        return len(beats)


def test_force_release_is_told_within_a_third_of_the_lease(
    provider: DatabaseLockProvider,
) -> None:
    """A body whose lock an operator releases knows it by the next heartbeat."""
    with worker(wait_for_beat) as holder:
        assert holder.heard() <= timedelta(minutes=10) / 3
        assert force_release(provider, "job")
        holder.send()
        assert holder.result() == 1


@pytest.fixture
def server() -> Iterator[Server]:
    with own_server() as server:
        yield server


def hold_through_a_restart(parent: Parent) -> dict[str, Any]:
    with hold("job", lock_at_most_for="10m", keep_alive=True) as lock:
        parent.say("inside")
        parent.wait()
        beat_now(lock)
        wait_for(lambda: next_beat(lock) > timedelta(0))
        before = lease_end(lock)
        parent.say("without a server")
        wait_for(lambda: lease_end(lock) > before)
        return {"lost": lock.is_lost, "released": lock.release()}


def test_restarted_server_does_not_end_a_lock(
    server: Server, provider: DatabaseLockProvider
) -> None:
    """The body goes on, the heartbeat recovers, and the lock is released."""
    with worker(hold_through_a_restart) as holder:
        holder.heard()
        connections["default"].close()
        server.stop()
        holder.send()
        assert holder.heard() == "without a server"
        server.start()
        wait_for(lambda: is_answering(provider))
        assert holder.result() == {"lost": False, "released": True}
    assert status_of(provider, "job").state is LockState.FREE


def is_answering(provider: DatabaseLockProvider) -> bool:
    try:
        return provider.status("job") is not None
    except Exception:
        connections["default"].close()
        return False


def wait_for_loss(parent: Parent) -> tuple[float, float]:
    """Return when the lease is over, and when the body is told, by one clock."""
    with hold("job", lock_at_most_for="10m", keep_alive=True) as lock:
        parent.say("inside")
        parent.wait()
        # So as not to wait for all of it.
        deadline = end_own_count(lock, after=timedelta(seconds=1))
        beat_now(lock)
        wait_for(lock.lost.is_set)
        return deadline, uptime()


def test_server_that_stays_down_loses_the_lock_in_time(server: Server) -> None:
    """When the lease is over by the worker's own clock, the body is told."""
    with worker(wait_for_loss) as holder:
        holder.heard()
        connections["default"].close()
        server.stop()
        holder.send()
        deadline, told = holder.result()
        assert deadline <= told
        server.start()


def exit_when_lost(**kwargs: Any) -> NoReturn:
    raise SystemExit("a receiver ends its thread")


def keep_two_alive_with_a_bad_receiver(parent: Parent) -> bool:
    """Lose one lock, whose receiver raises; report whether the other one is lost."""
    beat_often()
    lock_lost.connect(exit_when_lost)
    with (
        hold("lost", lock_at_most_for=LEASE, keep_alive=True) as lost,
        hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock,
    ):
        parent.say("inside")
        wait_for(lost.lost.is_set)
        parent.say("told")
        parent.wait()
        return lock.is_lost


def test_receiver_that_exits_ends_no_other_lock(provider: DatabaseLockProvider) -> None:
    """A ``lock_lost`` receiver that raises SystemExit stops no other heartbeat."""
    with worker(keep_two_alive_with_a_bad_receiver) as holder:
        assert holder.heard() == "inside"
        assert force_release(provider, "lost")
        assert holder.heard() == "told"
        for _ in range(2):
            wait_for_an_extension("job")
        holder.send()
        assert holder.result() is False


def wait_for_an_extension(name: str) -> None:
    before = LockRecord.objects.get(name=name).lock_until
    wait_for(LockRecord.objects.filter(name=name, lock_until__gt=before).exists)


def wait_for_cancellation(
    parent: Parent, address: dict[str, Any], options: dict[str, Any]
) -> str:
    """Run an async body whose lease ends while the store hangs."""
    wait_for_servers()  # which no statement gives up
    connections["default"].settings_dict.update(address)

    async def body() -> None:
        lock = current_lock()
        parent.say("inside")
        await asyncio.to_thread(parent.wait)
        end_own_count(lock, after=timedelta(seconds=1))  # so as not to wait for it
        if options:
            beat_now(lock)
        try:
            await asyncio.sleep(NEVER_SECONDS)
        finally:
            parent.say("cancelled")

    try:
        asyncio.run(aexecute(body, "job", lock_at_most_for=LEASE, **options))
    except LockLost as error:
        return str(error)
    return "not lost"


@pytest.mark.parametrize("options", [{}, {"keep_alive": True}])
def test_async_body_is_cancelled_in_time_though_its_store_hangs(
    options: dict[str, Any],
) -> None:
    """An async body is cancelled when its lease ends, even if the store hangs."""
    with bridge() as to_server:
        with worker(wait_for_cancellation, to_server.address, options) as holder:
            assert holder.heard() == "inside"
            to_server.freeze()
            holder.send()
            assert holder.heard() == "cancelled"
            to_server.close()  # else the release would wait for it
            assert "'job' was lost" in holder.result()


def keep_two_alive(parent: Parent) -> bool:
    """Report whether the second lock is still ours when the first one's row is free."""
    beat_often()
    with (
        hold("blocked", lock_at_most_for=LEASE, keep_alive=True),
        hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock,
    ):
        parent.say("inside")
        parent.wait()
        return lock.is_lost


def test_row_lock_on_one_lock_does_not_end_another(
    provider: DatabaseLockProvider,
) -> None:
    """While somebody's transaction has the row of one lock, the others are extended."""
    with worker(keep_two_alive) as holder:
        holder.heard()
        with transaction.atomic():
            LockRecord.objects.select_for_update().get(name="blocked")
            for _ in range(2):
                wait_for_an_extension("job")
            assert LockRecord.objects.held().filter(name="job").exists()
        holder.send()
        assert holder.result() is False


def keep_many_alive(parent: Parent) -> dict[str, Any]:
    """Keep 300 locks alive for more than a third of their lease, and count."""
    extended: Counted[str] = Counted()

    def receiver(*, lock: Lock, **kwargs: Any) -> None:
        extended[lock.name] += 1

    lock_extended.connect(receiver)
    with ExitStack() as stack:
        options: Any = {"lock_at_most_for": "1h", "keep_alive": True}
        for number in range(300):
            beat_now(stack.enter_context(hold(f"job {number}", **options)))
        wait_for(lambda: len(extended) == 300)
        return {
            "threads": len(threads_named("keep alive")),
            "held": LockRecord.objects.held().count(),
            "extensions of each": set(extended.values()),
        }


def test_many_locks_share_one_thread() -> None:
    """300 locks are kept alive by one thread, each once in a third of its lease."""
    with worker(keep_many_alive) as holder:
        assert holder.result() == {
            "threads": 1,
            "held": 300,
            "extensions of each": {1},
        }


def fork_while_kept_alive(parent: Parent) -> int:
    """Fork under a lock that is kept alive; return the child's exit status."""
    options: Any = {"lock_at_most_for": "1h", "keep_alive": True}
    with locked_in_memory(), hold("parent", **options) as lock:
        wait_until_idle(lock)
        child = os.fork()
        if not child:
            os._exit(0 if keeps_alive_by_itself() else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def keeps_alive_by_itself() -> bool:
    """Whether this process has no thread yet, and starts one for its own lock."""
    alone = active_count() == 1 and not locks_held()
    with hold("child", lock_at_most_for="1h", keep_alive=True) as lock:
        before = lease_end(lock)
        beat_now(lock)
        with suppress(AssertionError):
            wait_for(lambda: lease_end(lock) > before)
            return alone and is_held("child")
        return False


def test_forked_child_has_a_heartbeat_of_its_own() -> None:
    """A fork in the middle of a job leaves both processes sound."""
    with worker(fork_while_kept_alive) as holder:
        assert holder.result() == 0
