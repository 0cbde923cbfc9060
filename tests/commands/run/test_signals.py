"""``manage.py shedlock run`` and signals: those for it are for its command."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import psutil
import pytest

from django_shedlock.locks.states import LockState
from django_shedlock.management.processes import forwarding
from django_shedlock.management.processes.child import Child
from django_shedlock.management.processes.forwarding import SignalForwarder
from django_shedlock.models import LockRun
from tests.support.locks import state, take
from tests.support.run_conditions import (
    FAILED,
    PAUSES,
    be_ended_in,
    pass_on_nothing,
    tell_of_pauses,
)
from tests.support.runs import (
    InterpreterRunner,
    Runner,
    first_line,
    is_alive,
    send,
    sh,
)
from tests.support.waiting import PATIENCE, wait_for
from tests.support.warm import Command

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

TERMINAL = """
import fcntl, os, sys, termios

os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Begins a session of its own in a terminal, as a log-in does."""
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
COUNTER = """
import signal

interrupts = 0
received = {signal.SIGINT, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, received)
print("begun", flush=True)
while signal.sigwait(received) == signal.SIGINT:
    interrupts += 1
    print("interrupted", flush=True)
print("interrupts:", interrupts, flush=True)
signal.sigwait([signal.SIGTERM])
"""
"""Tells on SIGUSR1 how often it was interrupted."""


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


def start_unsignalled(runner: Runner, error: type[Exception]) -> Command:
    """Start a command that a signal does not reach, and send it one."""
    runner.prepare.append(partial(pass_on_nothing, error))
    running = runner.start("job", *sh("echo begun; read end; echo ended; exit 5"))
    assert first_line(running) == "begun"
    send(running, signal.SIGTERM)
    assert first_line(running) == FAILED
    return running


def test_command_that_cannot_be_signalled_keeps_its_lock(runner: Runner) -> None:
    """What runs as another user, as with sudo, goes on; a warning says so."""
    running = start_unsignalled(runner, PermissionError)
    out, err = running.communicate("\n", timeout=PATIENCE)
    assert out == "ended\nreleased after the command has ended\n"
    assert running.returncode == 5
    assert "Command 'sh'" in err
    assert "can't be sent SIGTERM" in err


def test_exceptions_wait_for_the_command(runner: Runner) -> None:
    """Whatever goes wrong here, the lock is not released while the command runs."""
    running = start_unsignalled(runner, RuntimeError)
    send(running, signal.SIGTERM)
    assert first_line(running) == FAILED
    out, err = running.communicate("\n", timeout=PATIENCE)
    assert out == "ended\nreleased after the command has ended\n"
    assert running.returncode == 1
    assert "no signals, please" in err


def test_signal_is_never_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that came just before a wait in C would be handled after the command."""
    options = []
    waitpid = os.waitpid

    def noting(pid: int, option: int) -> tuple[int, int]:
        options.append(option)
        return waitpid(pid, option)

    monkeypatch.setattr(os, "waitpid", noting)
    with SignalForwarder().started(["true"]):
        pass
    assert set(options) == {os.WNOHANG}


def test_child_is_never_left_alone() -> None:
    """Also what fails beside the command waits for its end."""
    with pytest.raises(LookupError), SignalForwarder().started(["true"]) as child:
        raise LookupError
    assert child._process.returncode == 0


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the signals that children are sent from now on."""
    numbers: list[int] = []
    killpg, send_signal = os.killpg, subprocess.Popen.send_signal

    def to_group(group: int, number: int) -> None:
        numbers.extend([number] if number else [])
        killpg(group, number)

    def to_child(process: subprocess.Popen[bytes], number: int) -> None:
        numbers.append(number)
        send_signal(process, number)

    monkeypatch.setattr(os, "killpg", to_group)
    monkeypatch.setattr(subprocess.Popen, "send_signal", to_child)
    return numbers


def test_child_that_has_ended_is_sent_nothing(sent: list[int]) -> None:
    """Its id may be that of another process by then."""
    with SignalForwarder().started(["true"]) as child:
        pass
    child.send(signal.SIGTERM)
    assert sent == []


def test_child_is_asked_to_end_once(sent: list[int]) -> None:
    """Whoever sees the lost lock, in whatever thread, one grace counts."""
    with SignalForwarder().started(["sleep", "600"]) as child:
        child.end(timedelta(hours=1))
        child.end(timedelta(hours=1))
    assert sent == [signal.SIGTERM]


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
    signals = SignalForwarder()
    with signals.handled():
        signal.raise_signal(signal.SIGTERM)
        for end in (signals.end_if_received, lambda: signals.sleep(0)):
            with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)):
                end()
        with pytest.raises(SystemExit), signals.started(["echo", "ran"]):
            pytest.fail("started")


def test_signal_while_the_child_starts_is_for_the_child(
    sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is passed on as soon as there is somebody to get it."""

    class Signalled(Child):
        def __init__(self, command: list[str]):
            super().__init__(command)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(forwarding, "Child", Signalled)
    signals = SignalForwarder()
    with signals.handled(), signals.started(["sleep", "600"]) as child:
        status = child.wait()
    assert (status, sent) == (128 + signal.SIGTERM, [signal.SIGTERM])


def test_second_signal_ends_at_once() -> None:
    """A store that hangs keeps nobody."""
    with SignalForwarder().handled():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit, match=str(128 + signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)


def test_signal_that_comes_with_a_skip(runner: Runner) -> None:
    """The status says that it was ended, and not that it was skipped."""
    runner.prepare.append(partial(be_ended_in, "UPDATE"))
    take("job")
    assert runner.run("job", *sh("echo ran"))[:2] == (128 + signal.SIGTERM, "")


def read_until(
    line: bytes, terminal: int, meanwhile: Callable[[], None] = lambda: None
) -> bytes:
    """Return what the terminal shows, up to the end of a line that begins so."""
    shown = b""

    def is_shown() -> bool:
        nonlocal shown
        if select.select([terminal], [], [], 0)[0]:
            shown += os.read(terminal, 1000)
        else:
            meanwhile()
        return b"\n" in shown.partition(line)[2]

    wait_for(is_shown)
    return shown


def test_ctrl_c_in_a_terminal_is_sent_once(interpreter: InterpreterRunner) -> None:
    """A terminal tells all of its foreground, so nothing is passed on twice."""
    counting = ["--", sys.executable, "-c", COUNTER]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINAL, *interpreter.command, "job", *counting],
        env=interpreter.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        read_until(b"begun", ours)
        # Stopped, it passes nothing on before the command has counted the terminal's.
        process.send_signal(signal.SIGSTOP)
        waiting = psutil.Process(process.pid)
        wait_for(lambda: waiting.status() == psutil.STATUS_STOPPED)
        os.write(ours, b"\x03")
        read_until(b"interrupted", ours)
        process.send_signal(signal.SIGCONT)
        # It gets these after Ctrl-C. Python may notice a single one late.
        ask = partial(process.send_signal, signal.SIGUSR1)
        assert b"interrupts: 1" in read_until(b"interrupts", ours, meanwhile=ask)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE)
        os.close(ours)
