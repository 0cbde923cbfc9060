"""``manage.py shedlock run`` keeps its lock; without it, its command must not go on."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.core.management import CommandError

from django_shedlock import Lock
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.processes.run import RunSignals
from django_shedlock.providers import get_provider
from django_shedlock.signals import lock_acquired
from django_shedlock.sql.fields import DatabaseNow
from tests.support.bridges import bridge
from tests.support.commands import run
from tests.support.leases import beat_now, end_own_count
from tests.support.locks import state, status_of
from tests.support.processes import use
from tests.support.run_conditions import adopt_orphans, lose_the_lock_while_it_starts
from tests.support.runs import (
    InterpreterRunner,
    Runner,
    first_line,
    guard_of,
    is_alive,
    sh,
    with_child,
)
from tests.support.waiting import PATIENCE, wait_for, wait_for_servers

DAEMON = """
import os, time

if not os.fork():
    os._exit(0)
os.setsid()
os.write(1, b"%d\\n" % os.getpid())
time.sleep(600)
"""
"""Has a session of its own, and waits for no child."""

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]


def test_lease_that_is_over_before_the_command() -> None:
    """Who learns too late that the lock is lost does not run the command."""

    def end_lease(*, lock: Lock, **kwargs: Any) -> None:
        LockRecord.objects.update(lock_until=DatabaseNow())
        end_own_count(lock)

    lock_acquired.connect(end_lease)
    try:
        with pytest.raises(CommandError, match="'job'.*did not run") as caught:
            run("run", "job", "--", "false")
    finally:
        lock_acquired.disconnect(end_lease)
    assert caught.value.returncode == 123


@pytest.mark.parametrize("lose", [Lock.declare_lost, end_own_count])
def test_lock_that_is_lost_while_the_command_starts(
    runner: Runner, lose: Callable[[Lock], None]
) -> None:
    """The command is ended before it has done anything, however the loss is known."""
    runner.prepare.append(partial(lose_the_lock_while_it_starts, lose))
    status, out, _ = runner.run("job", "--kill-after", "1h", *sh("sleep 600; echo ran"))
    assert (status, out) == (123, "")
    assert LockRun.objects.get().outcome == "lost"


def test_lock_that_is_lost_before_the_command_starts() -> None:
    """The command does not start, whatever the receivers have taken their time for."""

    def lose(*, lock: Lock, **kwargs: Any) -> None:
        passed_on = RunSignals.passed_on

        @contextmanager
        def losing(signals: RunSignals) -> Iterator[None]:
            with passed_on(signals):
                lock.declare_lost()
                yield

        patch.setattr(RunSignals, "passed_on", losing)

    lock_acquired.connect(lose)
    try:
        with (
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(CommandError, match="no longer held") as caught,
        ):
            run("run", "job", "--", "touch", "/no/such/folder/file")
    finally:
        lock_acquired.disconnect(lose)
    assert caught.value.returncode == 123


def test_lock_is_held_while_the_child_runs(quick: Runner) -> None:
    """The lock is kept alive for longer than its lease, and then released."""
    running = quick.start("job", *sh("echo begun; read end"))
    assert first_line(running) == "begun"
    before = status_of(get_provider(), "job")

    def is_extended() -> bool:
        now = status_of(get_provider(), "job")
        assert now.state is LockState.RUNNING
        return now.lock_until > before.lock_until

    wait_for(is_extended)
    running.communicate("\n", timeout=PATIENCE)
    assert running.returncode == 0
    assert state("job") is LockState.FREE


def test_lost_lock_ends_the_child(quick: Runner) -> None:
    """The command is asked to end, and the status says why."""
    script = "trap 'echo tidy; exit 0' TERM; echo begun; while :; do sleep 0.1; done"
    running = quick.start("job", "--kill-after", "1h", *sh(script))
    assert first_line(running) == "begun"
    run("release", "job", "--force", "--reason", "test")
    out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, out) == (123, "tidy\n")
    assert "Lock 'job' lost" in err
    assert LockRun.objects.get().outcome == "lost"


class Hasty:
    """Lets the lease of a process's lock end as soon as a file is there."""

    def __init__(self, file: Path):
        self._file = file

    def __call__(self) -> None:
        lock_acquired.connect(self._watch, weak=False)

    def _watch(self, *, lock: Lock, **kwargs: Any) -> None:
        threading.Thread(target=self._hurry, args=[lock], daemon=True).start()

    def _hurry(self, lock: Lock) -> None:
        wait_for(self._file.exists)
        end_own_count(lock, after=timedelta(seconds=1))
        beat_now(lock)


@pytest.mark.servers_only
def test_child_is_ended_in_time_though_the_store_hangs(
    runner: Runner, tmp_path: Path
) -> None:
    """Nobody waits for the store: by the wrapper's own clock the lease is over."""
    script = "trap 'echo tidy; exit 0' TERM; echo begun; while :; do sleep 0.1; done"
    with bridge() as to_server:
        runner.prepare += [
            wait_for_servers,
            partial(use, {"default": to_server.address}),
            Hasty(tmp_path / "hurry"),
        ]
        running = runner.start("job", "--kill-after", "1h", *sh(script))
        assert first_line(running) == "begun"
        to_server.freeze()
        Path(tmp_path, "hurry").touch()
        assert first_line(running) == "tidy"
        to_server.close()  # else the release would wait for it
        assert running.wait(PATIENCE) == 123


def test_loss_is_written_while_the_child_still_tidies_up(quick: Runner) -> None:
    """The history and the record say at once that it lost its lock, then its end."""
    script = "trap 'read go; exit 0' TERM; echo begun; while :; do sleep 0.1; done"
    running = quick.start("job", "--kill-after", "1h", *sh(script))
    assert first_line(running) == "begun"
    run("release", "job", "--force", "--reason", "test")
    wait_for(lambda: LockRun.objects.get().lost_at)
    lost = LockRun.objects.get()
    assert lost.outcome == "lost"
    wait_for(lambda: LockRecord.objects.get().outcome == "lost")
    assert LockRecord.objects.get().ended_at is None
    assert running.poll() is None
    running.communicate("go\n", timeout=PATIENCE)
    assert running.returncode == 123
    ended = LockRun.objects.get()
    assert ended.outcome == "lost"
    assert ended.ended > lost.ended
    assert LockRecord.objects.get().ended_at is not None


def test_child_that_does_not_end_is_killed(quick: Runner) -> None:
    """A child that ignores SIGTERM is killed after ``--kill-after``."""
    script = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
    running = quick.start("job", "--kill-after", "3s", *sh(script))
    child = int(first_line(running))
    run("release", "job", "--force", "--reason", "test")
    assert running.wait(PATIENCE) == 123
    assert not is_alive(child)


def test_grandchild_that_does_not_end_is_killed(quick: Runner) -> None:
    """A grandchild that ignores SIGTERM is killed, even if its parent has ended."""
    stubborn = "trap '' TERM; echo $$; exec sleep 600"
    running = quick.start("job", "--kill-after", "3s", *with_child(stubborn))
    grandchild = int(first_line(running))
    run("release", "job", "--force", "--reason", "test")
    assert running.wait(PATIENCE) == 123
    wait_for(lambda: not is_alive(grandchild))


def test_wait_ends_with_the_last_of_what_the_command_started(quick: Runner) -> None:
    """Nobody waits longer than it takes to tidy up."""
    tidying = "trap 'echo tidy; exit' TERM; echo begun; while :; do sleep 0.1; done"
    running = quick.start("job", "--kill-after", "1h", *with_child(tidying))
    assert first_line(running) == "begun"
    run("release", "job", "--force", "--reason", "test")
    assert running.wait(PATIENCE) == 123
    assert first_line(running) == "tidy"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_first_process_of_a_container_waits_for_orphans(quick: Runner) -> None:
    """What the command leaves behind as it ends is not taken for running."""
    quick.prepare.append(adopt_orphans)
    running = quick.start(
        "job", "--kill-after", "1h", *sh("sleep 600 & echo begun; wait")
    )
    assert first_line(running) == "begun"
    run("release", "job", "--force", "--reason", "test")
    assert running.wait(PATIENCE) == 123


def test_daemon_goes_on(quick: Runner) -> None:
    """A daemon that has left the command's group goes on after the lock is lost."""
    daemon = shlex.join([sys.executable, "-c", DAEMON])
    running = quick.start(
        "job", "--kill-after", "1s", *sh(f"{daemon} & exec sleep 600")
    )
    pid = int(first_line(running))
    run("release", "job", "--force", "--reason", "test")
    assert running.wait(PATIENCE) == 123
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_taken_lock_ends_the_child(quick: Runner) -> None:
    """A holder whose row was taken over does not go on."""
    running = quick.start("job", *sh("echo begun; exec sleep 600"))
    assert first_line(running) == "begun"
    LockRecord.objects.update(lock_until=DatabaseNow(), locked_by="other:1:a")
    assert running.wait(PATIENCE) == 123


def test_all_ends_when_the_wrapper_is_killed(interpreter: InterpreterRunner) -> None:
    """Nobody keeps the lock alive any more, so nothing must go on."""
    running = interpreter.start("job", *with_child("echo $PPID $$; exec sleep 600"))
    started = [int(pid) for pid in first_line(running).split()]
    running.kill()
    assert wait_for(lambda: not any(map(is_alive, started)))


def test_killed_wrapper_leaves_time_to_tidy_up(interpreter: InterpreterRunner) -> None:
    """The command gets SIGTERM, and what ignores that is killed after that."""
    stubborn = "trap '' TERM; echo $$; exec sleep 600"
    script = f"trap 'echo tidy; exit' TERM; sh -c {shlex.quote(stubborn)} & wait"
    running = interpreter.start("job", "--kill-after", "10s", *sh(script))
    grandchild = int(first_line(running))
    running.kill()
    assert first_line(running) == "tidy"
    wait_for(lambda: not is_alive(grandchild))


def test_killed_guard_changes_nothing(runner: Runner) -> None:
    """The command goes on under its lock, and its status is seen."""
    running = runner.start("job", *sh("echo begun; read end; exit 7"))
    assert first_line(running) == "begun"
    guard_of(running).kill()
    running.communicate("\n", timeout=PATIENCE)
    assert running.returncode == 7
    assert state("job") is LockState.FREE


def test_guard_is_not_found_by_the_command(runner: Runner) -> None:
    """``pkill -9 -f COMMAND`` does not end the process that would end the rest."""
    running = runner.start("job", *sh("echo begun; read end"))
    assert first_line(running) == "begun"
    assert "echo begun" not in " ".join(guard_of(running).cmdline())


def test_stopped_command_ends_as_well(quick: Runner) -> None:
    """A stopped command is continued when the lock is lost, so that it can tidy up."""
    script = "trap 'echo tidy; exit' TERM; echo $$; while :; do sleep 0.1; done"
    running = quick.start("job", "--kill-after", "1h", *sh(script))
    command = psutil.Process(int(first_line(running)))
    command.suspend()
    wait_for(lambda: command.status() == psutil.STATUS_STOPPED)
    run("release", "job", "--force", "--reason", "test")
    assert first_line(running) == "tidy"
    assert running.wait(PATIENCE) == 123
