"""Time limits: of the command of ``shedlock run``, and of a forked body."""

from __future__ import annotations

import asyncio
import math
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from django.core.management import CommandError

from django_shedlock import ahold, hold, scheduler_lock
from django_shedlock.clocks import uptime
from django_shedlock.locks import time_limits
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.processes.child import Child
from tests.support.commands import run
from tests.support.locks import state
from tests.support.run_conditions import (
    PAUSES,
    have_pauses_of_hours,
    reach_time_limits_at,
)
from tests.support.runs import (
    Runner,
    first_line,
    is_alive,
    limits_over_once,
    send,
    sh,
    with_child,
)
from tests.support.waiting import NEVER_SECONDS, PATIENCE, wait_for

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

LIMIT = timedelta(seconds=2)
LONG = timedelta(hours=1)
TIMED_OUT = 124
LOOP = "while :; do sleep 0.1; done"


def last_outcome(name: str = "job") -> tuple[str | None, int]:
    """Return the outcome of the last run, and the failures in a row."""
    record = LockRecord.objects.get(name=name)
    assert LockRun.objects.get(name=name).outcome == record.outcome
    return record.outcome, record.failures


def wait_for_ever() -> None:
    for _ in range(NEVER_SECONDS * 10):
        time.sleep(0.1)


# The command of ``shedlock run``


def test_command_that_takes_too_long_is_ended(runner: Runner, tmp_path: Path) -> None:
    """A command that exceeds its time limit gets SIGTERM, and its run has timed out."""
    begun = tmp_path / "begun"
    runner.prepare.append(partial(reach_time_limits_at, begun))
    script = f"trap 'echo tidy; exit 3' TERM; : > {shlex.quote(str(begun))}; {LOOP}"
    limits = ("--time-limit", "1h", "--kill-after", "1h")
    status, out, err = runner.run("job", *limits, *sh(script))
    assert (status, out) == (TIMED_OUT, "tidy\n")
    assert "sh has reached its time limit of 1h" in err
    assert last_outcome() == ("timed out", 1)
    assert state("job") is LockState.FREE
    told = LockRun.objects.get()
    assert told.exception_type == "django_shedlock.locks.time_limits.TimeLimitExceeded"
    assert told.exception_message == "the time limit of 1h is over"


def test_command_that_ends_well_after_its_limit_has_timed_out(runner: Runner) -> None:
    """A command that exits with status 0 after its time limit has still timed out."""
    script = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
    limits = ("--time-limit", "2s", "--kill-after", "1h")
    assert runner.run("job", *limits, *sh(script))[0] == TIMED_OUT
    assert last_outcome() == ("timed out", 1)


def test_command_that_ignores_the_end_of_its_limit_is_killed(runner: Runner) -> None:
    """A command that ignores SIGTERM at its time limit is killed with its children."""
    stubborn = "trap '' TERM; echo $PPID $$; while :; do sleep 0.1; done"
    limits = ("--time-limit", "2s", "--kill-after", "300ms")
    running = runner.start("job", *limits, *with_child(stubborn))
    started = [int(pid) for pid in first_line(running).split()]
    assert running.wait(PATIENCE) == TIMED_OUT
    wait_for(lambda: not any(map(is_alive, started)))
    assert last_outcome() == ("timed out", 1)


def test_command_within_its_limit(runner: Runner) -> None:
    """A command that ends within its time limit keeps its status and its outcome."""
    assert runner.run("job", "--time-limit", "1h", *sh("exit 3")) == (3, "", "")
    assert last_outcome() == ("failed", 1)


def test_limit_counts_from_the_start_of_the_command(runner: Runner) -> None:
    """The time limit does not count the wait for the lock."""
    with hold("job", lock_at_most_for="1h") as lock:
        args = ("--wait", "1h", "--time-limit", "1h", *sh("echo ran"))
        runner.prepare.append(have_pauses_of_hours)
        running = runner.start("job", *args)
        assert first_line(running) == PAUSES
        lock.release()
        assert running.communicate(timeout=PATIENCE)[0].splitlines()[-1] == "ran"
    assert running.returncode == 0


def test_lost_lock_counts_for_more_than_the_limit(
    quick: Runner, tmp_path: Path
) -> None:
    """A command that has lost its lock may have run twice: that is the worse news."""
    begun = tmp_path / "begun"
    quick.prepare.append(partial(reach_time_limits_at, begun))
    tidy = "trap 'echo over; read go; exit 0' TERM"
    script = f"{tidy}; : > {shlex.quote(str(begun))}; {LOOP}"
    limits = ("--time-limit", "1h", "--kill-after", "1h")
    running = quick.start("job", *limits, *sh(script))
    assert first_line(running) == "over"
    run("release", "job", "--force", "--reason", "test")
    wait_for(lambda: LockRun.objects.filter(lost_at__isnull=False).exists())
    running.communicate("go\n", timeout=PATIENCE)
    assert running.returncode == 123
    assert last_outcome()[0] == "lost"


def test_signal_is_passed_on_at_once(runner: Runner) -> None:
    """
    The wrapper of one command holds nothing back.

    And no SIGKILL follows: only a lost lock, or a limit, ends the command by force.
    """
    tidy = "trap 'echo tidy; read end; exit 9' TERM"
    script = f"{tidy}; echo begun; while :; do sleep 0.1; done"
    running = runner.start("job", "--kill-after", "0s", *sh(script))
    assert first_line(running) == "begun"
    send(running, signal.SIGTERM)
    assert first_line(running) == "tidy"
    time.sleep(0.5)
    running.communicate("\n", timeout=PATIENCE)
    assert running.returncode == 9
    assert last_outcome() == ("failed", 1)


@pytest.mark.parametrize("limit", ["0s", "-1s", "soon"])
def test_wrong_time_limit(limit: str) -> None:
    """What can't work is refused before anything runs."""
    with pytest.raises(CommandError, match="time-limit"):
        run("run", "job", f"--time-limit={limit}", "--", "false")


def test_grace_is_no_option_any_more() -> None:
    """The option ``--grace`` is refused: SHEDLOCK_GRACE means something else."""
    with pytest.raises(CommandError, match="--grace"):
        run("run", "job", "--grace=1s", "--", "false")


# A forked body


class SlowBodies:
    """Processes whose body is at work when its time limit of 2 s is over."""

    def __init__(self, folder: Path):
        self._begun = folder / "begun"

    def work(self) -> None:
        """Take too long."""
        self._begun.touch()
        wait_for_ever()

    async def awork(self) -> None:
        """Take too long, in a task."""
        self._begun.touch()
        await asyncio.sleep(NEVER_SECONDS)

    def end_of(self, body: Callable[[], object]) -> Child:
        """Return the child of a body that its limit has ended."""
        with limits_over_once(self._begun.exists):
            started = Child.of_body("job", body, time_limit=LIMIT, kill_after=LONG)
            started.close()
        assert started.has_timed_out
        return started


@pytest.fixture
def slow(tmp_path: Path) -> SlowBodies:
    return SlowBodies(tmp_path)


def test_body_that_takes_too_long_times_out(slow: SlowBodies, child_log: Path) -> None:
    """
    The run of a body that exceeds its time limit has timed out.

    The process ends with the exit status of ``timeout``.
    """

    def body() -> None:
        with hold("job"):
            slow.work()

    assert slow.end_of(body).status == TIMED_OUT
    assert last_outcome() == ("timed out", 1)
    assert state("job") is LockState.FREE
    assert "job has reached its time limit of 2s" in child_log.read_text()


def test_async_body_that_takes_too_long_times_out(slow: SlowBodies) -> None:
    """The run of an async body that exceeds its time limit has timed out."""

    async def body() -> None:
        async with ahold("job"):
            await slow.awork()

    slow.end_of(lambda: asyncio.run(body()))
    assert last_outcome() == ("timed out", 1)


def test_async_job_that_takes_too_long_times_out(slow: SlowBodies) -> None:
    """The decorator's lock is released in the same way."""

    @scheduler_lock("job")
    async def job() -> None:
        await slow.awork()

    slow.end_of(lambda: asyncio.run(job()))
    assert last_outcome() == ("timed out", 1)


def test_body_that_catches_the_end_has_timed_out(slow: SlowBodies) -> None:
    """A body that catches the exit at its time limit has still timed out."""

    def body() -> None:
        with hold("job"), suppress(SystemExit):
            slow.work()

    assert slow.end_of(body).status == 0
    assert last_outcome() == ("timed out", 1)


def test_error_of_the_end_is_the_cause(slow: SlowBodies) -> None:
    """A body that fails while it tidies up shows both."""

    def body() -> None:
        with hold("job"):
            try:
                slow.work()
            finally:
                raise ValueError("no disk")

    slow.end_of(body)
    assert last_outcome() == ("timed out", 1)
    told = LockRun.objects.get().exception_traceback
    assert "ValueError: no disk" in told
    assert "the time limit of 2s is over" in told


def test_lock_that_tidies_up_after_the_limit_succeeds(slow: SlowBodies) -> None:
    """Only what ran when the limit was over has timed out."""

    def body() -> None:
        with hold("before"):
            pass
        try:
            with hold("job"):
                slow.work()
        finally:
            with hold("after"):
                pass

    slow.end_of(body)
    assert last_outcome("before")[0] == "succeeded"
    assert last_outcome("job")[0] == "timed out"
    assert last_outcome("after")[0] == "succeeded"


def test_body_in_another_thread_has_timed_out(slow: SlowBodies) -> None:
    """The signal reaches the main thread; the lock is that of the job's thread."""
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        with hold("job"):
            begun.set()
            wait_for(over.is_set)

    def body() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        try:
            wait_for(begun.is_set)
            slow.work()
        finally:
            over.set()
            thread.join()

    slow.end_of(body)
    assert last_outcome() == ("timed out", 1)


def test_signal_before_the_limit_is_no_timeout(tmp_path: Path) -> None:
    """A beat that ends has ended the body, which only failed."""
    begun = tmp_path / "begun"

    def body() -> None:
        with hold("job"):
            begun.touch()
            wait_for_ever()

    started = Child.of_body("job", body, time_limit=LONG)
    wait_for(begun.exists)
    started.end(LONG)
    started.close()
    assert not started.has_timed_out
    assert started.status == 128 + signal.SIGTERM
    assert last_outcome() == ("failed", 1)


def test_limit_within_a_deallocator(slow: SlowBodies) -> None:
    """Python swallows what is raised there; the body ends all the same."""

    class Deallocated:
        def __del__(self) -> None:
            slow.work()

    def body() -> None:
        with hold("job"):
            Deallocated()
            wait_for_ever()

    assert slow.end_of(body).status == TIMED_OUT
    assert last_outcome() == ("timed out", 1)


def test_look_at_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A parent may wait for a child until the child's time limit is over.

    While the child is ending, the parent looks again and again.
    """

    def body() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / "ready").touch()
        wait_for_ever()

    with closing(Child.of_body("job", wait_for_ever)) as endless:
        assert endless.is_running()
        assert endless.look_within_seconds == math.inf
        endless.send(signal.SIGKILL)
    started = Child.of_body("job", body, time_limit=LONG)
    assert started.is_running()
    assert 3500 < started.look_within_seconds <= 3600
    started.end(timedelta(0))
    assert started.look_within_seconds <= 1
    started.close()
    assert not started.has_timed_out
    ended = Child.of_body("job", sys.exit, time_limit=LONG)
    wait_for(lambda: not ended.is_running())
    now = uptime() + LONG.total_seconds()
    monkeypatch.setattr(time_limits, "uptime", lambda: now)
    assert not ended.is_running()
    assert ended.look_within_seconds == math.inf
    assert not ended.has_timed_out
