"""``manage.py shedlock run`` and signals: those for it are for its command."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from functools import partial

import pytest
from django.db import connections

from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRun
from django_shedlock.processes.child import Child
from django_shedlock.processes.run import RunSignals
from tests.support.commands import run
from tests.support.locks import state, take
from tests.support.run_conditions import (
    FAILED,
    PAUSES,
    RELEASES,
    be_ended_in,
    be_signalled_at_the_start,
    be_signalled_in_release,
    fail_to_pass_on,
    hang_in_release,
    release_within,
    signal_nobody,
    tell_of_pauses,
    tell_of_release,
)
from tests.support.runs import (
    InterpreterRunner,
    Runner,
    first_line,
    is_alive,
    send,
    sh,
)
from tests.support.waiting import NEVER_SECONDS, PATIENCE, wait_for
from tests.support.warm import Command

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

KILL_AFTER = timedelta(seconds=10)
IGNORING = """
import os, signal, sys

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Ignores the ends of children, as some supervisors do."""
PARENT = """
import signal, sys

sys.exit(7 if signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL else 8)
"""
"""Fails, and tells by its status whether it would learn that of a child."""


def test_failure_is_seen_where_ends_of_children_are_ignored(
    interpreter: InterpreterRunner,
) -> None:
    """What the supervisor ignores is neither ignored here nor in the command."""
    interpreter.command[:0] = [sys.executable, "-c", IGNORING]
    status, _, err = interpreter.run("job", "--", sys.executable, "-c", PARENT)
    assert (status, err) == (7, "")
    assert LockRun.objects.get().outcome == "failed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on(
    interpreter: InterpreterRunner, number: signal.Signals
) -> None:
    """The command gets the signal, may tidy up, and its status is passed on."""
    trap = f"trap 'echo tidy; exit 5' {number.name[3:]}"
    script = f"{trap}; echo begun; while :; do sleep 0.1; done"
    running = interpreter.start("job", *sh(script))
    assert first_line(running) == "begun"
    send(running, number)
    assert running.communicate(timeout=PATIENCE)[0] == "tidy\n"
    assert running.returncode == 5
    assert state("job") is LockState.FREE


def test_signal_reaches_what_the_command_started(runner: Runner) -> None:
    """No grandchild goes on without the lock."""
    running = runner.start("job", *sh("sleep 600 & echo $!; wait"))
    grandchild = int(first_line(running))
    send(running, signal.SIGTERM)
    assert running.wait(PATIENCE) == 128 + signal.SIGTERM
    wait_for(lambda: not is_alive(grandchild))


def start_unsignalled(runner: Runner, condition: Callable[[], None]) -> Command:
    """Start a command that a signal does not reach, and send it one."""
    runner.prepare += [condition, tell_of_release]
    running = runner.start("job", *sh("echo begun; read end; echo ended; exit 5"))
    assert first_line(running) == "begun"
    send(running, signal.SIGTERM)
    assert first_line(running) == FAILED
    return running


def test_command_that_cannot_be_signalled_keeps_its_lock(runner: Runner) -> None:
    """What runs as another user, as with sudo, goes on; a line says so."""
    running = start_unsignalled(runner, signal_nobody)
    out, err = running.communicate("\n", timeout=PATIENCE)
    assert out == "ended\nreleased after the command has ended\n"
    assert running.returncode == 5
    assert "Command 'sh'" in err
    assert "can't be sent SIGTERM" in err


def test_command_does_not_outlive_an_exception(runner: Runner) -> None:
    """Whatever goes wrong here, the command is ended, and then the lock released."""
    runner.prepare += [fail_to_pass_on, tell_of_release]
    trap = "trap 'echo tidy; exit 5' TERM"
    script = f"{trap}; echo begun; while :; do sleep 0.1; done"
    running = runner.start("job", "--kill-after", "1h", *sh(script))
    assert first_line(running) == "begun"
    send(running, signal.SIGTERM)
    out, err = running.communicate(timeout=PATIENCE)
    assert out == f"{FAILED}\ntidy\nreleased after the command has ended\n"
    assert running.returncode == 1
    assert "no signals, please" in err


def test_signal_just_before_a_wait_ends_it() -> None:
    """A signal that comes just before a wait ends the wait."""
    signals = RunSignals()
    with signals.handled(), signals.passed_on():
        signal.raise_signal(signal.SIGTERM)
        signals.wait(PATIENCE)
        assert signals.take() == [signal.SIGTERM]


def test_signal_that_another_thread_gets_ends_a_wait() -> None:
    """The system may choose any thread, such as a heartbeat's."""
    signals = RunSignals()
    with signals.handled(), signals.passed_on():
        # Not for this thread, which waits.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        kill = partial(signal.raise_signal, signal.SIGTERM)
        other = threading.Thread(target=_unblocked, args=[kill])
        other.start()
        signals.wait(PATIENCE)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        other.join()
        assert signals.take() == [signal.SIGTERM]


def _unblocked(work: Callable[[], None]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    work()


def call(*args: str) -> None:
    try:
        run(*args)
    finally:
        connections.close_all()


def test_run_in_another_thread() -> None:
    """Only the main thread may handle signals, but any thread can run a command."""
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(call, "run", "job", "--", "true")
        with pytest.raises(SystemExit, match="0"):
            ended.result()


def test_child_that_has_ended_is_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A child that has ended is sent no signal.

    Its process id may be that of another process by then.
    """
    with closing(Child.of_program(["true"], kill_after=KILL_AFTER)) as child:
        pass
    child.leads_group = False
    monkeypatch.setattr(os, "kill", lambda pid, number: pytest.fail("sent"))
    assert not child.send(signal.SIGTERM)


def test_another_part_of_the_process_may_wait_for_the_child() -> None:
    """If other code has waited for a child, the child counts as failed."""
    with closing(Child.of_program(["true"], kill_after=KILL_AFTER)) as child:
        os.waitpid(child.pid, 0)
    assert child.status == 1


def test_child_that_a_signal_ended(runner: Runner) -> None:
    """The status is 128 and the signal's number, as in a shell."""
    assert runner.run("job", *sh("kill -KILL $$"))[0] == 128 + signal.SIGKILL


def test_signal_while_waiting_ends_the_wait(runner: Runner) -> None:
    """Before the command begins, a signal ends all, and no lock stays behind."""
    lock = take("job")
    runner.prepare.append(tell_of_pauses)
    waiting = runner.start("job", "--wait", "1h", *sh("echo ran"))
    assert first_line(waiting) == PAUSES
    waiting.terminate()
    assert set(waiting.communicate(timeout=PATIENCE)[0].split()) <= {PAUSES}
    assert waiting.returncode == 128 + signal.SIGTERM
    lock.release()
    assert state("job") is LockState.FREE


@pytest.mark.parametrize(("statement", "waits"), [("INSERT", False), ("UPDATE", True)])
def test_signal_in_a_statement_leaves_no_lock(
    runner: Runner, statement: str, waits: bool
) -> None:
    """What has been taken is given back, and what waits does not wait on."""
    runner.prepare.append(partial(be_ended_in, statement))
    lock = take("job") if waits else None
    status, out, _ = runner.run("job", "--wait", "1h", *sh("echo ran"))
    assert (status, out) == (128 + signal.SIGTERM, "")
    if lock is not None:
        lock.release()
    assert state("job") is LockState.FREE


def test_signal_is_never_raised_in_a_statement() -> None:
    """SQLite would swallow it; it ends the pause after it, or what would start."""
    signals = RunSignals()
    with signals.handled():
        signal.raise_signal(signal.SIGTERM)
        for end in (signals.end_if_received, lambda: signals.sleep(0)):
            with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)):
                end()
        with pytest.raises(SystemExit), signals.passed_on():
            pytest.fail("started")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_while_the_command_starts_is_for_the_command(
    runner: Runner, number: signal.Signals
) -> None:
    """A signal that comes while the command starts is passed on to the command."""
    runner.prepare.append(partial(be_signalled_at_the_start, number))
    ended = runner.run("job", *sh("sleep 600; echo ran"))
    assert ended == (128 + number, "", "")
    assert state("job") is LockState.FREE


def test_second_signal_ends_at_once() -> None:
    """A store that hangs keeps nobody."""
    with RunSignals().handled():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)):
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no alarm ring by itself."""
    monkeypatch.setattr(RunSignals, "release_timeout_seconds", NEVER_SECONDS)


def test_alarm_of_the_process_is_kept() -> None:
    """What calls this within a process of its own finds that as it was."""
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    signal.setitimer(signal.ITIMER_REAL, 3600, 60)
    try:
        signals = RunSignals()
        with signals.handled(), signals.passed_on():
            pass
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        signal.raise_signal(signal.SIGALRM)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (left > 0, interval, rung) == (True, 60, [signal.SIGALRM])


def test_alarm_does_not_outlive_the_release(patient: None) -> None:
    """The alarm that limits the release is off after the release."""
    signals = RunSignals()
    with signals.handled():
        with signals.passed_on():
            pass
        signal.raise_signal(signal.SIGTERM)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_signal_that_came_too_late_for_the_command(patient: None) -> None:
    """A signal that comes too late for the command limits the release."""
    signals = RunSignals()
    with signals.handled():
        with signals.passed_on():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0


def test_alarm_rings_until_it_is_noticed(patient: None) -> None:
    """A ring that comes just before a wait in C is noticed only after that wait."""
    signals = RunSignals()
    with signals.handled():
        with signals.passed_on():
            pass
        signal.raise_signal(signal.SIGTERM)
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left <= signals.release_timeout_seconds
        assert interval > 0
        with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)):
            signal.raise_signal(signal.SIGALRM)
        # What the exception ends must not be interrupted again.
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_signal_ends_a_release_that_hangs(runner: Runner) -> None:
    """After the command has ended, a signal is for nobody else."""
    runner.prepare += [hang_in_release, partial(release_within, 0.2)]
    running = runner.start("job", "--", "true")
    assert first_line(running) == RELEASES
    send(running, signal.SIGTERM)
    assert running.wait() == 128 + signal.SIGTERM


def test_second_signal_ends_a_release_that_hangs(runner: Runner) -> None:
    """A person who is in a hurry need not wait for the limit."""
    runner.prepare += [hang_in_release, partial(release_within, 10 * NEVER_SECONDS)]
    running = runner.start("job", "--", "true")
    assert first_line(running) == RELEASES
    running.terminate()
    running.send_signal(signal.SIGINT)
    assert running.wait(PATIENCE) in {128 + signal.SIGTERM, 128 + signal.SIGINT}


def test_signal_in_a_release_leaves_no_lock(runner: Runner) -> None:
    """A release that takes its usual time is not interrupted."""
    runner.prepare.append(be_signalled_in_release)
    assert runner.run("job", *sh("exit 3")) == (3, "", "")
    assert state("job") is LockState.FREE


def test_signal_that_comes_with_a_skip(runner: Runner) -> None:
    """The status says that it was ended, and not that it was skipped."""
    runner.prepare.append(partial(be_ended_in, "UPDATE"))
    take("job")
    assert runner.run("job", *sh("echo ran"))[:2] == (128 + signal.SIGTERM, "")
