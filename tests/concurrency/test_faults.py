"""What real faults do to a lock, on real servers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter as Counted
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from threading import active_count, enumerate
from typing import Any

import pytest
from django.db import connections, transaction

from django_shedlock import LockLost, hold, locks_held
from django_shedlock.locks import Lock
from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.signals import lock_extended
from django_shedlock.states import LockState
from django_shedlock.test import is_held, locked_in_memory
from tests.concurrency.models import Counter
from tests.concurrency.processes import Parent, wait_for, worker
from tests.concurrency.servers import Server, own_server
from tests.providers.contract import MINUTE, configure, take, take_at_last

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]

LEASE = timedelta(seconds=3)
SLACK = timedelta(seconds=1.5)


@pytest.fixture
def provider() -> DatabaseLockProvider:
    return DatabaseLockProvider("default")


def hold_on(parent: Parent, lease: str) -> dict[str, Any]:
    """Hold a lock that is kept alive until the test says to end; report on it."""
    with hold("job", lock_at_most_for=lease, keep_alive=True) as lock:
        parent.say(lock.locked_by)
        parent.wait()
        return {"was_lost": lock.is_lost, "released": lock.release()}


def test_killed_worker_is_replaced_within_its_lease(
    provider: DatabaseLockProvider,
) -> None:
    """After SIGKILL the next one gets in when the lease ends: not earlier or later."""
    with worker(hold_on, "3s") as holder:
        identity = holder.heard()
        time.sleep(0.7)
        wait_for(lambda: provider.statuses("job")[0].remaining > LEASE * 0.9)
        holder.kill()
        [dead] = provider.statuses("job")
        assert dead.locked_by == identity
        lock = take_at_last(provider, configure())
    [status] = provider.statuses("job")
    assert status.locked_by == lock.locked_by
    assert timedelta(0) <= status.locked_at - dead.lock_until < SLACK
    assert dead.remaining <= LEASE


def test_kept_alive_for_longer_than_its_lease(provider: DatabaseLockProvider) -> None:
    """While the worker lives, nobody else gets in, however short the lease."""
    with worker(hold_on, "900ms") as holder:
        identity = holder.heard()
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            acquired = provider.acquire(configure())
            assert not isinstance(acquired, Lock)
            assert acquired.locked_by == identity
            time.sleep(0.05)
        holder.send()
        assert holder.result() == {"was_lost": False, "released": True}


def go_on_too_late(parent: Parent) -> dict[str, Any]:
    """Do what a worker does after a pause in which somebody took its lock."""
    report: dict[str, Any] = {}
    with hold("job", lock_at_most_for="900ms", keep_alive=True) as lock:
        parent.say("inside")
        parent.wait()
        report["fenced"] = write_fenced(lock)
        report["told"] = lock.lost.wait(20)
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
        lock = take_at_last(provider, configure())
        [before] = provider.statuses("job")
        late.send()
        late.go_on()
        assert late.result() == {
            "fenced": False,
            "told": True,
            "extended": False,
            "released": False,
        }
    [after] = provider.statuses("job")
    assert (after.locked_by, after.lock_until) == (lock.locked_by, before.lock_until)
    assert after.state is LockState.RUNNING
    assert not Counter.objects.exists()


def hold_the_fence(parent: Parent) -> bool:
    """Fence, write, wait past the lease, and commit."""
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
    """Also after the lease, who wants the lock waits for the fenced transaction."""
    with worker(hold_the_fence) as holder:
        assert holder.heard() == "fenced"
        with worker(take_and_look) as other:
            assert other.heard() == "waiting"
            time.sleep(0.9)
            holder.send()
            assert other.result() == (True, 1)
        assert holder.result() is True


def wait_for_loss(parent: Parent) -> float:
    """Return how many seconds after its start the body is told of the loss."""
    with hold("job", lock_at_most_for="3s", keep_alive=True) as lock:
        parent.say("inside")
        parent.wait()
        started = time.monotonic()
        assert lock.lost.wait(20)
        return time.monotonic() - started


def test_force_release_is_told_within_a_third_of_the_lease(
    provider: DatabaseLockProvider,
) -> None:
    """A body whose lock an operator releases knows it by the next heartbeat."""
    with worker(wait_for_loss) as holder:
        holder.heard()
        holder.send()
        assert provider.force_release("job", running=True)
        assert timedelta(seconds=holder.result()) < LEASE / 3 + SLACK


def is_fake_clock_possible() -> str | None:
    return shutil.which("faketime")


@pytest.mark.parametrize("offset", [3600, -3600])
def test_wrong_clock_of_a_worker_changes_nothing(
    provider: DatabaseLockProvider, offset: int
) -> None:
    """A worker an hour early or late neither takes a held lock nor a longer lease."""
    if not is_fake_clock_possible():
        pytest.skip("faketime is not installed")
    lock = take(provider, configure())
    assert at_another_time(offset) == lock.locked_by
    assert lock.release()
    assert at_another_time(offset) == "me"
    [status] = provider.statuses("job")
    assert MINUTE - timedelta(seconds=30) < status.remaining <= MINUTE


def at_another_time(offset: int) -> str:
    """Return who holds the lock, by a process whose clock is wrong by ``offset``."""
    database = connections["default"].settings_dict["NAME"]
    command = [sys.executable, "-m", "tests.concurrency.other_clock", database, "job"]
    answer = subprocess.run(
        ["faketime", "-f", f"{offset:+d}s", *command],
        env={**os.environ, "FAKETIME_DONT_FAKE_MONOTONIC": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    clock, holder = answer.stdout.split()
    assert abs(float(clock) - time.time() - offset) < 60, "the clock is not wrong"
    return holder


@pytest.fixture
def server() -> Iterator[Server]:
    with own_server() as server:
        yield server


def hold_through_a_restart(parent: Parent) -> dict[str, Any]:
    with hold("job", lock_at_most_for="12s", keep_alive=True) as lock:
        first = lock.remaining()
        parent.say("inside")
        parent.wait()
        extended = wait_for(lambda: lock.remaining() > first - timedelta(seconds=1))
        return {"extended": extended, "lost": lock.is_lost, "released": lock.release()}


def test_restarted_server_does_not_end_a_lock(
    server: Server, provider: DatabaseLockProvider
) -> None:
    """The body goes on, the heartbeat recovers, and the lock is released."""
    with worker(hold_through_a_restart) as holder:
        holder.heard()
        connections["default"].close()
        time.sleep(0.9)
        server.stop()
        server.start()
        wait_for(lambda: is_answering(provider))
        holder.send()
        assert holder.result() == {"extended": True, "lost": False, "released": True}
    assert provider.statuses("job")[0].state is LockState.FREE


def is_answering(provider: DatabaseLockProvider) -> bool:
    try:
        return bool(provider.statuses("job"))
    except Exception:
        connections["default"].close()
        return False


def test_server_that_stays_down_loses_the_lock_in_time(server: Server) -> None:
    """When the lease is over by the worker's own clock, the body is told."""
    with worker(wait_for_loss) as holder:
        holder.heard()
        connections["default"].close()
        server.stop()
        holder.send()
        assert timedelta(seconds=holder.result()) < LEASE + SLACK
        server.start()


def keep_two_alive(parent: Parent) -> bool:
    """Report whether the second lock is still ours when the first one's row is free."""
    with (
        hold("blocked", lock_at_most_for="6s", keep_alive=True),
        hold("job", lock_at_most_for="3s", keep_alive=True) as lock,
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
            deadline = time.monotonic() + 8
            while time.monotonic() < deadline:
                assert LockRecord.objects.held().filter(name="job").exists()
                time.sleep(0.2)
        holder.send()
        assert holder.result() is False


def keep_many_alive(parent: Parent) -> dict[str, int]:
    """Keep 300 locks alive for more than a third of their lease, and count."""
    extended: Counted[str] = Counted()

    def receiver(*, lock: Lock, **kwargs: Any) -> None:
        extended[lock.name] += 1

    lock_extended.connect(receiver)
    begun = time.monotonic()
    with ExitStack() as stack:
        for number in range(300):
            lock = hold(f"job {number}", lock_at_most_for="12s", keep_alive=True)
            stack.enter_context(lock)
        wait_for(lambda: len(extended) == 300, timeout=80)
        return {
            "threads": sum(t.name.startswith("django_shedlock") for t in enumerate()),
            "held": LockRecord.objects.held().count(),
            "most extensions": max(extended.values()),
            "most allowed": int((time.monotonic() - begun) / 4),
        }


def test_many_locks_share_one_thread() -> None:
    """300 locks are kept alive by one thread, each once in a third of its lease."""
    with worker(keep_many_alive) as holder:
        report = holder.result()
    assert (report["threads"], report["held"]) == (1, 300)
    assert 1 <= report["most extensions"] <= report["most allowed"]


def fork_while_kept_alive(parent: Parent) -> int:
    """Fork under a lock that is kept alive; return the child's exit status."""
    with locked_in_memory(), hold("parent", lock_at_most_for="1s", keep_alive=True):
        child = os.fork()
        if not child:
            os._exit(0 if keeps_alive_by_itself() else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def keeps_alive_by_itself() -> bool:
    """Whether this process has no thread yet, and starts one for its own lock."""
    alone = active_count() == 1 and not locks_held()
    with hold("child", lock_at_most_for="240ms", keep_alive=True):
        time.sleep(0.6)
        return alone and is_held("child")


def test_forked_child_has_a_heartbeat_of_its_own() -> None:
    """A fork in the middle of a job leaves both processes sound."""
    with worker(fork_while_kept_alive) as holder:
        assert holder.result() == 0
