"""The jobs that a beat has started, of which a few run at once, each in a process."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from django_shedlock import current_lock
from django_shedlock.beat import ending, leases
from django_shedlock.beat.children import DeadAcquisition, StartedJobs
from django_shedlock.beat.ending import OrderlyEnd
from django_shedlock.beat.looks import DueStart, EndTimes
from django_shedlock.clocks import uptime
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.locks.time_limits import TimeLimit
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.processes import child
from django_shedlock.processes.child import BODY_SIGNALS, reap_orphans
from django_shedlock.processes.process_signals import ProcessSignals
from django_shedlock.providers import get_provider
from django_shedlock.registry.jobs import Job
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start
from django_shedlock.signals import lock_acquired
from tests.support.runs import is_alive, limits_over_once
from tests.support.waiting import NEVER_SECONDS, wait_for

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

ZERO = timedelta(0)
LATE = timedelta(seconds=NEVER_SECONDS)
PAUSE = 0.05
"""Seconds between two looks for a signal."""
PR_SET_CHILD_SUBREAPER = 36


class Tried:
    """Jobs that write their names into a folder, and go on until they may end."""

    def __init__(self, folder: Path, signals: ProcessSignals, *, most: int = 2):
        self.folder, self.signals = folder, signals
        self.jobs = StartedJobs(get_provider(), most, ZERO)
        self.written: list[str] = []

    def start(
        self, name: str, body: Callable[[], object] | None = None, **options: Any
    ) -> bool:
        target = partial(self._run, name, body or partial(self._wait, name))
        job = Job(name, target, **options)
        due = DueStart(job, Start(), datetime.now(UTC))
        return self.jobs.start(due, self.written.append)

    def let_end(self, name: str) -> None:
        """Let the job of this name end."""
        (self.folder / f"{name} may end").touch()

    def turn_until(self, condition: Callable[[], Any]) -> Any:
        """Look after the jobs again and again, as a beat does."""

        def turn() -> Any:
            self.signals.wait(0)
            self.jobs.look()
            self.jobs.read_and_release_dead()
            return condition()

        return wait_for(turn)

    def end_of_all(self) -> None:
        """Wait until nothing runs."""
        self.turn_until(lambda: not self.jobs.running)

    def end(self, stop_timeout: timedelta, kill_after: timedelta = ZERO) -> None:
        """End as a beat does."""
        times = EndTimes(stop_timeout, kill_after)
        OrderlyEnd(self.jobs, self.signals, times, self.written.append).run()

    def begun(self) -> list[str]:
        """Return those that have begun, in their order."""
        log = self.folder / "begun"
        return log.read_text().split() if log.exists() else []

    def _run(self, name: str, body: Callable[[], object]) -> None:
        with (self.folder / "begun").open("a") as log:
            print(name, file=log)
        body()

    def _wait(self, name: str) -> None:
        wait_for((self.folder / f"{name} may end").exists, NEVER_SECONDS)


@pytest.fixture
def tried(tmp_path: Path) -> Iterator[Tried]:
    signals = ProcessSignals(BODY_SIGNALS)
    with signals.handled():
        made = Tried(tmp_path, signals)
        yield made
        for started in made.jobs.running.values():
            started.kill()
        made.end_of_all()


def status() -> Any:
    return get_provider().status("job")


def test_room(tried: Tried) -> None:
    """There is room again when a job has ended."""
    tried.start("one")
    tried.start("two")
    assert (tried.jobs.room, sorted(tried.jobs.names)) == (0, ["one", "two"])
    tried.let_end("one")
    tried.turn_until(lambda: tried.jobs.room == 1)
    assert [*tried.jobs.names] == ["two"]


def test_beat_knows_the_identity_of_a_child(tried: Tried) -> None:
    """The beat knows the holder's identity, though only its child acquires the lock."""
    tried.start("job")
    tried.turn_until(tried.begun)
    [started] = tried.jobs.running.values()
    assert status().locked_by == started.locked_by
    assert status().locked_by.split(":")[1] == str(started.child.pid)


def test_child_reports_its_body(tried: Tried) -> None:
    """The beat knows that it has begun, and after its end whether it succeeded."""
    tried.start("job")
    [started] = tried.jobs.running.values()
    tried.turn_until(lambda: started.began is not None)
    tried.let_end("job")
    end = wait_for(started.look)
    tried.jobs.running.clear()
    assert (end.has_begun, end.has_succeeded, end.status) == (True, True, 0)


def test_body_that_fails_is_logged(tried: Tried, child_log: Path) -> None:
    """A body that fails is logged, and its run records the body's own exception."""
    tried.start("job", body=lambda: print(1 // 0))
    tried.end_of_all()
    assert "job failed." in child_log.read_text()
    assert LockRun.objects.get().exception_type == "ZeroDivisionError"


def test_job_that_is_skipped(tried: Tried) -> None:
    """Somebody else holds the lock, so nothing begins, and nothing is to release."""
    tried.start("job")
    tried.turn_until(tried.begun)
    other = Tried(tried.folder, tried.signals)
    other.start("job")
    [started] = other.jobs.running.values()
    other.end_of_all()
    assert started.was_skipped
    assert tried.begun() == ["job"]
    assert status().state is LockState.RUNNING


def test_sigchld_that_is_ignored(tmp_path: Path) -> None:
    """A parent may have left it so; still the beat sees the end of a job."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        signals = ProcessSignals(BODY_SIGNALS)
        with signals.handled():
            made = Tried(tmp_path, signals, most=1)
            for name in ("first", "second"):
                made.start(name, body=bool)
                made.end_of_all()
                assert made.begun()[-1] == name
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_two_signals_interrupt_once(tried: Tried) -> None:
    """`pkill -f "shedlock beat"` reaches the child, and so does the beat's SIGTERM."""
    begun, tidying = tried.folder / "begun tidying", tried.folder / "tidied"
    ready = tried.folder / "ready"

    def work() -> None:
        try:
            ready.touch()
            wait_for(lambda: False, NEVER_SECONDS)
        finally:
            begun.touch()
            time.sleep(10 * PAUSE)
            tidying.touch()

    tried.start("job", body=work)
    tried.turn_until(ready.exists)
    [running] = tried.jobs.running.values()
    running.child.send(signal.SIGTERM)
    tried.turn_until(begun.exists)
    running.child.send(signal.SIGTERM)
    tried.end_of_all()
    assert tidying.exists()


def test_coroutine_gets_the_signal(tried: Tried) -> None:
    """SIGTERM cancels a coroutine, which tidies up and releases its lock."""
    file = tried.folder / "tidied up"

    async def work() -> None:
        try:
            (tried.folder / "ready").touch()
            await asyncio.sleep(NEVER_SECONDS)
        finally:
            file.touch()

    due = DueStart(Job("job", work), Start(), datetime.now(UTC))
    tried.jobs.start(due, print)
    tried.turn_until((tried.folder / "ready").exists)
    tried.end(ZERO, LATE)
    assert file.exists()
    assert status().state is LockState.FREE


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_body_that_is_killed(tried: Tried, caplog: pytest.LogCaptureFixture) -> None:
    """A killed body is logged, its lock is released at once, and its run has failed."""
    tried.start("job", body=die)
    tried.end_of_all()
    text = "The process of the job of lock 'job' was killed by signal 9."
    assert caplog.messages[0] == text
    assert status().state is LockState.FREE
    row = LockRun.objects.get()
    assert row.outcome == RunOutcome.FAILED
    assert row.exception_message == (
        "The job's process was killed by signal 9 before its job had ended."
    )
    assert row.fencing_token


def test_child_that_dies_in_a_receiver(tried: Tried) -> None:
    """
    A child that dies before its body begins has no run.

    The child's tick is given back.
    """

    def receive(**kwargs: Any) -> None:
        die()

    lock_acquired.connect(receive)
    try:
        tried.start("job", body=bool, options={"schedule": Schedule("@yearly")})
        tried.end_of_all()
    finally:
        lock_acquired.disconnect(receive)
    assert status().state is LockState.FREE
    assert status().ticks.tick is None
    assert tried.begun() == []
    assert not LockRun.objects.exists()


def test_child_that_dies_after_its_body_has_succeeded(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is done, so the run counts as a success."""

    def release(lock: Any, exception: BaseException | None = None) -> bool:
        if os.getpid() != beat:
            die()
        return bool(really(lock, exception))

    beat, really = os.getpid(), Lock.release
    monkeypatch.setattr(Lock, "release", release)
    yearly = Schedule("@yearly")
    tried.start("job", body=bool, options={"schedule": yearly})
    tried.end_of_all()
    assert LockRun.objects.get().outcome == RunOutcome.SUCCEEDED
    assert status().state is LockState.FREE
    assert status().ticks.due_at > datetime.now(UTC)


def let_arrive_late(dead: DeadAcquisition) -> None:
    """Let the acquisition of this child arrive after its end."""
    LockRun.objects.all().delete()
    record = LockRecord.objects.filter(name=dead.name)
    end = record.get().locked_at + timedelta(hours=1)
    late = {"locked_by": dead.locked_by, "open_run": dead.locked_by}
    record.update(**late, lock_until=end, released_at=None)
    assert status().state is LockState.RUNNING


def test_update_of_a_dead_child_that_arrives_late(tried: Tried) -> None:
    """
    A dead child's lock is released at the next look, even if acquired late.

    The beat looks for such an update as long as the lease could last.
    """
    tried.start("job", body=die)
    tried.end_of_all()
    [dead] = tried.jobs.dead
    let_arrive_late(dead)
    tried.jobs.read_and_release_dead()
    assert status().state is LockState.FREE
    assert not dead.is_over


def test_child_that_ended_in_order_is_forgotten(tried: Tried) -> None:
    """Nothing of it can arrive late, so its lease does not count."""
    tried.start("job", body=bool, options={"lock_at_most_for": "1d"})
    tried.turn_until(lambda: not tried.jobs.running and not tried.jobs.dead)
    assert status().state is LockState.FREE


def blocked() -> LockProviderError:
    """Return the error for a row that another transaction has locked."""
    error = LockProviderError("Its row is locked.")
    error.is_blocked = True
    return error


def test_locked_row_holds_up_no_other_lock(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock behind it is released in the same look, also at the end of a beat."""
    for name in ("stuck", "other"):
        tried.start(name, body=die)
        wait_for(tried.jobs.look)
    tries: list[str] = []

    def refuse_two_tries(provider: Any, lock: Any, **options: Any) -> bool:
        tries.append(lock.name)
        if tries.count("stuck") <= 2 and lock.name == "stuck":
            raise blocked()
        return bool(release(provider, lock, **options))

    release = type(get_provider()).release
    monkeypatch.setattr(type(get_provider()), "release", refuse_two_tries)
    monkeypatch.setattr(EndTimes, "for_releases", LATE)
    tried.jobs.read_and_release_dead()
    assert tries == ["stuck", "other"]
    assert get_provider().status("other").state is LockState.FREE
    tried.end(ZERO, LATE)
    assert tries == ["stuck", "other", "stuck", "stuck"]
    assert get_provider().status("stuck").state is LockState.FREE


def test_lock_that_cannot_be_released_stops_no_other_one(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure of the store is logged once, and comes last at the next look."""
    for name in ("stuck", "other"):
        tried.start(name, body=die)
        wait_for(partial(tried.jobs.look))

    def refuse_one(provider: Any, lock: Any, **options: Any) -> bool:
        if lock.name == "stuck":
            raise LockProviderError("The store failed.")
        return bool(release(provider, lock, **options))

    release = type(get_provider()).release
    with monkeypatch.context() as patch:
        patch.setattr(type(get_provider()), "release", refuse_one)
        tried.jobs.read_and_release_dead()
        assert get_provider().status("other").state is LockState.RUNNING
        tried.jobs.read_and_release_dead()
    assert get_provider().status("other").state is LockState.FREE
    assert get_provider().status("stuck").state is LockState.RUNNING
    assert caplog.text.count("'stuck': its job's process has ended, but") == 1
    tried.jobs.read_and_release_dead()
    assert get_provider().status("stuck").state is LockState.FREE


def test_time_limit_does_not_count_once_a_job_is_ended(tried: Tried) -> None:
    """Who was ended by something else has not timed out, so ``rerun`` holds."""

    def work() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tried.folder / "ready").touch()
        wait_for(lambda: False, NEVER_SECONDS)

    tried.start("job", body=work, time_limit=timedelta(minutes=1))
    [started] = tried.jobs.running.values()
    wait_for((tried.folder / "ready").exists)
    started.end(LATE)
    started.child._time_limit = TimeLimit.of(ZERO)
    assert started.look() is None
    started.end(ZERO)
    end = wait_for(started.look)
    tried.jobs.running.clear()
    assert (end.killed_by, end.time_limit) == (signal.SIGKILL, None)


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_time_limit_ends_a_job(tried: Tried, is_stubborn: bool) -> None:
    """
    A job over its time limit gets SIGTERM, then SIGKILL.

    The run has timed out, and the lock is free.
    """
    begun_file, tidied = tried.folder / "ready", tried.folder / "tidied"

    def work() -> None:
        if is_stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            begun_file.touch()
            while True:
                time.sleep(PAUSE)
        finally:
            tidied.touch()

    limit = timedelta(seconds=1)
    tried.jobs = StartedJobs(get_provider(), 1, ZERO if is_stubborn else LATE)
    with limits_over_once(begun_file.exists):
        tried.start("job", body=work, time_limit=limit, rerun=True)
        tried.end_of_all()
    assert tidied.exists() is not is_stubborn
    assert status().state is LockState.FREE
    row = LockRun.objects.get()
    assert row.outcome == RunOutcome.TIMED_OUT
    assert "the time limit of 1s is over" in row.exception_message


def test_what_a_job_leaves_behind_ends_with_it(tried: Tried) -> None:
    """
    The processes that a job has started end with the job.

    They would go on without the lock.
    """
    file = tried.folder / "pid"

    def work() -> None:
        started = subprocess.Popen(["sleep", "1000"])
        file.write_text(str(started.pid))

    for body in (work, lambda: (work(), die())):
        file.unlink(missing_ok=True)
        tried.start("job", body=body)
        tried.turn_until(lambda: file.exists() and file.read_text())
        tried.end_of_all()
        assert wait_for(lambda: not is_alive(int(file.read_text())))


@pytest.mark.skipif(sys.platform != "linux", reason="it has subreapers")
@pytest.mark.parametrize("is_first", [True, False])
def test_first_process_of_a_container(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """Orphans become its own, and stay zombies until it waits for them."""
    libc, file = ctypes.CDLL(None), tried.folder / "pid"
    monkeypatch.setattr(child, "is_first_process", lambda: is_first)

    def work() -> None:
        # Unlike a Popen, it does not wait for the process when it is deleted.
        file.write_text(str(os.posix_spawnp("true", ["true"], os.environ)))

    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        tried.start("job", body=work)
        tried.turn_until(lambda: file.exists() and file.read_text())
        orphan = int(file.read_text())
        tried.end_of_all()
        wait_for(lambda: not is_alive(orphan))

        def is_gone() -> bool:
            reap_orphans([])
            return not Path(f"/proc/{orphan}").exists()

        if is_first:
            wait_for(is_gone)
        else:  # they are for others to wait for
            assert not is_gone()
            os.waitpid(orphan, 0)
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0)


@pytest.mark.parametrize(("pid", "is_first"), [(1, True), (2, False)])
def test_which_process_is_the_first(
    monkeypatch: pytest.MonkeyPatch, pid: int, is_first: bool
) -> None:
    """Another one leaves orphans to the first process of its host."""
    monkeypatch.setattr(os, "getpid", lambda: pid)
    assert child.is_first_process() is is_first


def test_end_waits_for_the_jobs(tried: Tried) -> None:
    """A job that ends within the stop timeout gets no signal."""
    file = tried.folder / "ended"

    def work() -> None:
        wait_for((tried.folder / "ready").exists)
        time.sleep(10 * PAUSE)
        file.touch()

    tried.start("job", body=work)
    tried.turn_until(tried.begun)
    (tried.folder / "ready").touch()
    tried.end(LATE)
    assert file.exists()
    assert len(tried.written) == 1
    assert tried.written[0].endswith(" for the end of job.")


def test_end_releases_what_arrives_late(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a job finishes, the lock of a killed one is free within one look."""
    monkeypatch.setattr(ending, "BEAT_LOOK_INTERVAL", timedelta(seconds=PAUSE))
    tried.start("other")
    tried.start("job", body=die)
    tried.turn_until(lambda: [*tried.jobs.names] == ["other"])
    wait_for(tried.begun)
    tried.jobs.read_and_release_dead()
    [dead] = tried.jobs.dead
    let_arrive_late(dead)

    def look() -> Any:
        if status().state is LockState.FREE:
            tried.let_end("other")
        return jobs_look()

    jobs_look = tried.jobs.look
    monkeypatch.setattr(tried.jobs, "look", look)
    tried.end(timedelta(minutes=1))
    assert get_provider().status("other").job.outcome == RunOutcome.SUCCEEDED


@pytest.mark.parametrize(
    ("stop_timeout", "asked"), [(ZERO, []), (LATE, [2])], ids=["soon", "late"]
)
def test_end_is_not_kept_by_a_store_that_hangs(
    tried: Tried,
    monkeypatch: pytest.MonkeyPatch,
    stop_timeout: timedelta,
    asked: list[int],
) -> None:
    """Before the last job has ended, it is asked once, if no signal is due soon."""
    running: list[int] = []

    def hang(query: object) -> None:
        running.append(len(tried.jobs.running))
        raise LockProviderError("no answer")

    def look() -> Any:
        ended = jobs_look()
        for started, _ in ended:
            tried.let_end({"first": "second"}.get(started.name, "third"))
        return ended

    tried.jobs = StartedJobs(get_provider(), 3, ZERO)
    for name in ("first", "second", "third"):
        tried.start(name)
    tried.turn_until(lambda: len(tried.begun()) == 3)
    tried.let_end("first")
    with monkeypatch.context() as patch:
        patch.setattr(ending, "BEAT_LOOK_INTERVAL", LATE)  # no turn for locks only
        patch.setattr(get_provider(), "statuses", hang)
        jobs_look = tried.jobs.look
        patch.setattr(tried.jobs, "look", look)
        tried.end(stop_timeout)
    assert [each for each in running if each] == asked
    assert 0 in running


def test_no_process_can_be_started(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job waits for a better time, and no file stays open."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", refuse)
        assert not tried.start("job")  # this closes connections of former tests
        files = len([*Path("/dev/fd").iterdir()])
        assert not tried.start("job")
    assert caplog.text.count("No process can be started for 'job': no room") == 1
    assert not tried.jobs.running
    assert len([*Path("/dev/fd").iterdir()]) == files
    assert tried.start("job", body=bool)
    tried.end_of_all()
    assert tried.begun() == ["job"]


def refuse() -> int:
    raise BlockingIOError("no room")


def refuse_heartbeats(lock: Any) -> bool:
    """Be a store that does not answer."""
    raise LockProviderError("The store is away.")


@contextmanager
def leases_ending_in(seconds: float) -> Iterator[None]:
    """Let the processes that start now count on so little of their leases."""

    def count_from_long_ago(*, lock: Lock, **kwargs: Any) -> None:
        lock.lease_end = uptime() + seconds

    lock_acquired.connect(count_from_long_ago)
    try:
        yield
    finally:
        lock_acquired.disconnect(count_from_long_ago)


@pytest.mark.parametrize("is_deaf", [False, True])
def test_body_ends_before_its_kept_alive_lease(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, is_deaf: bool
) -> None:
    """If the store extends it no more, no other host finds a second body."""
    monkeypatch.setattr(get_provider(), "heartbeat", refuse_heartbeats)
    monkeypatch.setattr(Lock, "refresh", lambda lock: True)
    # The body gets SIGTERM after 5 s, and SIGKILL after half of the notice.
    notice = leases.LONGEST_NOTICE if is_deaf else LATE
    monkeypatch.setattr(leases, "LONGEST_NOTICE", notice)

    def body() -> None:
        if is_deaf:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tried.let_end("never")
        wait_for(lambda: False, NEVER_SECONDS)

    lease = "1m" if is_deaf else "1d"
    with leases_ending_in(notice.total_seconds() + 5):
        tried.start(
            "job", body, options={"lock_at_most_for": lease, "keep_alive": True}
        )
    [started] = tried.jobs.running.values()
    wait_for((tried.folder / "never may end").exists)
    held_until = status().lock_until
    end = wait_for(started.look)
    tried.jobs.running.clear()
    assert get_provider().now() < held_until
    assert end.killed_by == (signal.SIGKILL if is_deaf else None)
    assert (end.has_begun, end.has_succeeded) == (True, None)


def test_body_goes_on_after_a_slow_acquisition(tried: Tried) -> None:
    """The child asks what is left of the lease before it trusts its own count."""
    with leases_ending_in(4):
        options = {"lock_at_most_for": "1m", "keep_alive": True}
        tried.start("job", lambda: time.sleep(0.2), options=options)
    [started] = tried.jobs.running.values()
    end = wait_for(started.look)
    tried.jobs.running.clear()
    assert (end.has_succeeded, end.killed_by) == (True, None)


def refuse_thread(name: str, work: Callable[[], object]) -> None:
    """Be a host that has no room."""
    raise RuntimeError("can't start new thread")


def test_body_whose_lease_nobody_watches(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, child_log: Path
) -> None:
    """
    A body runs even if no thread watches its lease.

    The beat learns how the body ends.
    """
    monkeypatch.setattr(leases, "start_daemon", refuse_thread)
    tried.start("job", body=die, rerun=True)
    [started] = tried.jobs.running.values()
    end = wait_for(started.look)
    tried.jobs.running.clear()
    assert (end.has_begun, end.has_succeeded) == (True, None)
    assert "no thread watches its lease" in child_log.read_text()


def test_body_outlasts_a_lease_that_is_not_kept_alive(tried: Tried) -> None:
    """A body may outlast a lease that is not kept alive, just as without a beat."""

    def body() -> None:
        wait_for(lambda: current_lock().is_lost)

    tried.start("job", body, options={"lock_at_most_for": "2s"})
    [started] = tried.jobs.running.values()
    end = wait_for(started.look)
    tried.jobs.running.clear()
    assert (end.has_succeeded, end.killed_by) == (True, None)


def test_body_with_a_heartbeat_goes_on(tried: Tried) -> None:
    """A lease that is extended does not end its body."""

    def body() -> None:
        first_end = current_lock().lease_end
        wait_for(lambda: uptime() > first_end)

    tried.start("job", body, options={"lock_at_most_for": "12s", "keep_alive": True})
    [started] = tried.jobs.running.values()
    end = wait_for(started.look)
    tried.jobs.running.clear()
    assert (end.has_succeeded, end.killed_by) == (True, None)
