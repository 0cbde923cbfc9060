"""``manage.py shedlock run`` in a terminal: it is one job with its command."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from django_shedlock.models import LockRecord
from tests.support.commands import run
from tests.support.runs import InterpreterRunner, is_alive, sh
from tests.support.terminals import CTRL_C, CTRL_Z, Shell
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

COUNTER = """
import os, signal

received = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, received)
print("pid", os.getpid(), flush=True)
count = 0
while signal.sigwait(received) != signal.SIGUSR1:
    count += 1
    print("interrupted", flush=True)
print("signals:", count, flush=True)
"""
"""Tells on SIGUSR1 how many other signals it has got."""
TIDY = """
import os, signal, sys, time

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(print("tidy")))
print("pid", os.getpid(), flush=True)
while True:
    time.sleep(600)
"""
"""Ends in good order. A shell could not be stopped while it starts a program."""
QUICK = """
import django

django.setup()

from django.core.management import execute_from_command_line
from tests.support.leases import beat_often
from tests.support.run_conditions import measure_guard

beat_often()
measure_guard()
execute_from_command_line()
"""
"""Is ``manage.py``, and beats often."""


@pytest.fixture
def shell(interpreter: InterpreterRunner) -> Iterator[Shell]:
    started = Shell(interpreter.environment)
    yield started
    started.close()


@pytest.fixture
def command() -> list[str]:
    """Return the beginning of the line that is typed."""
    return [sys.executable, "-c", QUICK, "shedlock", "run", "job"]


def started_by(shell: Shell) -> tuple[psutil.Process, psutil.Process]:
    """Return ``shedlock run`` and its command, which shows its id."""
    running = psutil.Process(shell.number_after("pid "))
    return running.parents()[0], running


def is_stopped(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_STOPPED


@pytest.mark.parametrize("before", ["", "echo x |"])
def test_command_reads_the_terminal(
    shell: Shell, command: list[str], before: str
) -> None:
    """A command can read the terminal, even if its standard input is a pipe."""
    script = "echo ready; read line </dev/tty; echo got $line"
    shell.run([*command, *sh(script)], before=before)
    shell.read_until("ready")
    shell.type("hello\n")
    assert shell.read_until("got hello")


@pytest.mark.parametrize("before", ["", "echo x |"])
def test_ctrl_z_stops_both_until_fg(
    shell: Shell, command: list[str], before: str
) -> None:
    """The lock is not extended while nobody works, and then both go on."""
    script = "echo pid $$; read line </dev/tty; echo got $line"
    shell.run([*command, *sh(script)], before=before)
    wrapper, running = started_by(shell)
    shell.type(CTRL_Z)
    wait_for(lambda: is_stopped(wrapper) and is_stopped(running))
    shell.type("fg\n")
    wait_for(lambda: not is_stopped(wrapper) and not is_stopped(running))
    shell.type("hello\n")
    assert shell.read_until("got hello")


def test_lock_that_is_lost_while_it_is_stopped(
    shell: Shell, command: list[str]
) -> None:
    """The command gets no further than to tidy up when it is continued."""
    shell.run([*command, "--kill-after", "1h", "--", sys.executable, "-c", TIDY])
    wrapper, running = started_by(shell)
    shell.type(CTRL_Z)
    wait_for(lambda: is_stopped(wrapper) and is_stopped(running))
    run("release", "job", "--force", "--reason", "test")
    shell.type("fg; echo status $?.\n")
    assert "tidy" in shell.read_until("status 123.")


def test_signal_to_all_is_sent_once(shell: Shell, command: list[str]) -> None:
    """A terminal signals the whole job, so nothing is passed on twice."""
    locked = shlex.join([*command, "--", sys.executable, "-c", COUNTER])
    # Between them, since the shell would take a job that stops out of the foreground.
    shell.run(["sh", "-c", f"trap : INT; {locked}; echo over"])
    wrapper, _ = started_by(shell)
    # Stopped, it passes nothing on before the command has counted the terminal's.
    wrapper.suspend()
    wait_for(lambda: is_stopped(wrapper))
    shell.type(CTRL_C)
    shell.read_until("interrupted")
    wrapper.resume()

    # What is passed on comes in its order, so it gets these after the first.
    def ask() -> None:
        with suppress(psutil.NoSuchProcess):  # it has ended, and is not read yet
            wrapper.send_signal(signal.SIGUSR1)

    assert shell.number_after("signals: ", meanwhile=ask) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signal_to_the_wrapper_is_passed_on(
    shell: Shell, command: list[str], number: signal.Signals
) -> None:
    """A terminal sends no such signal, so somebody has sent it to the wrapper alone."""
    trap = f"trap 'echo received' {number.name[3:]}"
    shell.run([*command, *sh(f"{trap}; echo pid $$; while :; do sleep 0.1; done")])
    wrapper, _ = started_by(shell)
    wrapper.send_signal(number)
    assert shell.read_until("received")


@pytest.mark.parametrize("before", ["", "echo x |"])
def test_command_ends_when_the_wrapper_is_killed(
    shell: Shell, command: list[str], before: str
) -> None:
    """The shell goes on."""
    shell.run([*command, *sh("echo pid $$; exec sleep 600")], before=before)
    wrapper, running = started_by(shell)
    wrapper.kill()
    assert wait_for(lambda: not is_alive(running.pid))
    shell.type("echo goes on\n")
    shell.read_until("goes on")


def test_others_of_the_job_go_on(shell: Shell, command: list[str]) -> None:
    """What runs beside the command, as in a pipe or a script, is none of its own."""
    locked = shlex.join([*command, "--", "sleep", "600"])
    shell.run(["sh", "-c", f"sleep 600 & echo pid $!; {locked}; echo over"])
    beside = shell.number_after("pid ")
    wait_for(LockRecord.objects.exists)
    run("release", "job", "--force", "--reason", "test")
    shell.read_until("over")
    assert is_alive(beside)
    os.kill(beside, signal.SIGKILL)
