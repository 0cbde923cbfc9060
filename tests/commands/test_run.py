"""``manage.py shedlock run``: programs under a lock, with real processes."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connections

from django_shedlock import Lock
from django_shedlock.functions import DatabaseNow
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.signals import lock_acquired
from django_shedlock.states import LockState
from tests.commands.calls import run, state, take_default
from tests.concurrency.processes import wait_for
from tests.documents import ROOT
from tests.leases import end_own_count

pytestmark = pytest.mark.django_db(transaction=True)

SETTINGS = """
from tests.settings import *

DATABASES["default"].update({address!r})
"""
TERMINAL = """
import fcntl, os, sys, termios

os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Begins a session of its own in a terminal, as a log-in does."""
COUNTER = """
import signal, sys, time

numbers = []
signal.signal(signal.SIGINT, lambda number, frame: numbers.append(number))
print("begun", flush=True)
while not numbers:
    time.sleep(0.01)
time.sleep(1)
sys.exit(len(numbers))
"""
"""Exits with the number of times that it was interrupted."""
TIMEOUT = 60
SHORT = ("--lock-at-most-for", "2s")


class Runner:
    """Starts ``shedlock run`` in processes of their own, and leaves none behind."""

    command = (sys.executable, "-m", "django", "shedlock", "run")

    def __init__(self, folder: Path):
        settings = connections["default"].settings_dict
        keys = ("NAME", "HOST", "PORT", "USER", "PASSWORD")
        address = {key: settings[key] for key in keys}
        (folder / "run_settings.py").write_text(SETTINGS.format(address=address))
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "run_settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        }
        self._stack = contextlib.ExitStack()

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start ``shedlock run`` with these arguments."""
        started = subprocess.Popen(
            [*self.command, *args],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(_end, started)
        return started

    def run(self, *args: str, stdin: str = "") -> tuple[int, str, str]:
        """Return exit status, output and errors."""
        started = self.start(*args)
        out, err = started.communicate(stdin, timeout=TIMEOUT)
        return started.returncode, out, err

    def close(self) -> None:
        self._stack.close()


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(TIMEOUT)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    made = Runner(tmp_path)
    yield made
    made.close()


def sh(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


def is_alive(pid: int) -> bool:
    """Return whether the process runs; one that nobody waits for yet does not."""
    if sys.platform != "linux":
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        found = subprocess.run(command, capture_output=True, text=True)
        return found.stdout.strip()[:1] not in {"", "Z"}
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_child_has_the_streams_and_gives_the_status(runner: Runner) -> None:
    """Standard input, output, errors and the exit status are the command's own."""
    ended = runner.run("job", *sh("cat; echo oops >&2; exit 7"), stdin="hello")
    assert ended == (7, "hello", "oops\n")
    assert state("job") is LockState.FREE
    recorded = LockRun.objects.get()
    assert (recorded.outcome, recorded.exception_message) == ("failed", "7")


def test_child_that_succeeds(runner: Runner) -> None:
    """A command that ends well is a run that succeeded, and prints nothing of ours."""
    assert runner.run("job", "--", "true") == (0, "", "")
    assert LockRun.objects.get().outcome == "succeeded"


def test_lock_is_held_while_the_child_runs(runner: Runner) -> None:
    """The lock is kept alive for longer than its lease, and then released."""
    running = runner.start("job", *SHORT, *sh("echo begun; read end"))
    assert first_line(running) == "begun"
    since = time.monotonic()
    while time.monotonic() - since < 3:
        assert state("job") is LockState.RUNNING
        time.sleep(0.05)
    running.communicate("\n", timeout=TIMEOUT)
    assert running.returncode == 0
    assert state("job") is LockState.FREE


def test_held_lock_skips(runner: Runner) -> None:
    """The command does not run; nothing is printed, and the status is 0."""
    take_default("job")
    assert runner.run("job", *sh("echo ran")) == (0, "", "")
    assert runner.run("job", "--on-skip-exit", "99", *sh("echo ran")) == (99, "", "")


def test_waiting_for_a_held_lock(runner: Runner) -> None:
    """With --wait the command runs as soon as the other one has ended."""
    lock = take_default("job")
    waiting = runner.start("job", "--wait", "30s", *sh("echo ran"))
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(1.5)
    lock.release()
    assert waiting.communicate(timeout=TIMEOUT) == ("ran\n", "")
    assert waiting.returncode == 0


def test_wait_that_ends_is_a_skip(runner: Runner) -> None:
    """A lock that is not got in time has the skip's status."""
    take_default("job")
    args = ("--wait", "100ms", "--on-skip-exit", "1")
    assert runner.run("job", *args, *sh("echo ran")) == (1, "", "")


def test_one_of_several_runs(runner: Runner) -> None:
    """Of several that start while the command runs, no other one runs it."""
    started = [runner.start("job", *sh("echo ran; read end")) for _ in range(4)]
    wait_for(lambda: sum(process.poll() is None for process in started) == 1)
    outputs = [process.communicate("\n", timeout=TIMEOUT)[0] for process in started]
    assert sorted(outputs) == ["", "", "", "ran\n"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on(runner: Runner, number: signal.Signals) -> None:
    """The command gets the signal, may tidy up, and its status is passed on."""
    trap = f"trap 'echo tidy; exit 5' {number.name[3:]}"
    script = f"{trap}; echo begun; while :; do sleep 0.1; done"
    running = runner.start("job", *sh(script))
    assert first_line(running) == "begun"
    running.send_signal(number)
    assert running.communicate(timeout=TIMEOUT)[0] == "tidy\n"
    assert running.returncode == 5
    assert state("job") is LockState.FREE


def test_signal_reaches_what_the_command_started(runner: Runner) -> None:
    """No grandchild goes on without the lock."""
    running = runner.start("job", *sh("sleep 60 & echo $!; wait"))
    grandchild = int(first_line(running))
    running.terminate()
    assert running.wait(TIMEOUT) == 128 + signal.SIGTERM
    wait_for(lambda: not is_alive(grandchild))


def test_child_that_a_signal_ended(runner: Runner) -> None:
    """The status is 128 and the signal's number, as in a shell."""
    assert runner.run("job", *sh("kill -KILL $$"))[0] == 128 + signal.SIGKILL


def test_signal_while_waiting_ends_the_wait(runner: Runner) -> None:
    """Before the command begins, a signal ends all, and no lock stays behind."""
    lock = take_default("job")
    waiting = runner.start("job", "--wait", "60s", *sh("echo ran"))
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(1.5)
    waiting.terminate()
    assert waiting.communicate(timeout=TIMEOUT)[0] == ""
    assert waiting.returncode == 128 + signal.SIGTERM
    lock.release()
    assert state("job") is LockState.FREE


def test_lost_lock_ends_the_child(runner: Runner) -> None:
    """The command is asked to end, and the status says why."""
    script = "trap 'echo tidy; exit 0' TERM; echo begun; while :; do sleep 0.1; done"
    running = runner.start("job", *SHORT, *sh(script))
    assert first_line(running) == "begun"
    run("release", "job", "--force")
    out, err = running.communicate(timeout=TIMEOUT)
    assert (running.returncode, out) == (123, "tidy\n")
    assert "Lock 'job' lost" in err
    assert LockRun.objects.get().outcome == "lost"


def test_child_that_does_not_end_is_killed(runner: Runner) -> None:
    """After the grace there is no more asking."""
    script = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
    running = runner.start("job", *SHORT, "--grace", "500ms", *sh(script))
    child = int(first_line(running))
    run("release", "job", "--force")
    assert running.wait(TIMEOUT) == 123
    assert not is_alive(child)


def test_taken_lock_ends_the_child(runner: Runner) -> None:
    """A holder whose row was taken over does not go on."""
    running = runner.start("job", *SHORT, *sh("echo begun; exec sleep 60"))
    assert first_line(running) == "begun"
    LockRecord.objects.update(lock_until=DatabaseNow(), locked_by="other:1:a")
    assert running.wait(TIMEOUT) == 123


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a dead parent")
def test_child_ends_when_its_parent_is_killed(runner: Runner) -> None:
    """Nobody keeps the lock alive any more, so the command must not go on."""
    running = runner.start("job", *sh("echo $$; exec sleep 60"))
    child = int(first_line(running))
    running.kill()
    wait_for(lambda: not is_alive(child))


def test_command_that_cannot_be_started(runner: Runner) -> None:
    """The statuses are a shell's, and the lock is free again."""
    ended = runner.run("job", "--", "/no/such/program")
    assert ended == (127, "", "/no/such/program: not found\n")
    status, _, err = runner.run("job", "--", str(ROOT / "README.rst"))
    assert status == 126
    assert "Permission denied" in err
    assert state("job") is LockState.FREE


def test_child_is_as_if_a_shell_had_started_it(runner: Runner) -> None:
    """A closed pipe ends a program silently, as everywhere else."""
    assert runner.run("job", *sh("yes | head -n 1")) == (0, "y\n", "")


def test_ctrl_c_in_a_terminal_is_sent_once(runner: Runner) -> None:
    """A terminal tells all of its foreground, so nothing is passed on twice."""
    counting = ["--", sys.executable, "-c", COUNTER]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINAL, *runner.command, "job", *counting],
        env=runner.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        shown = b""
        while b"begun" not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, b"\x03")
        assert process.wait(TIMEOUT) == 1
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(TIMEOUT)
        os.close(ours)


def test_missing_table_says_what_to_do(runner: Runner) -> None:
    """In a deploy the lock's own table may not be there yet."""
    with connections["default"].cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock RENAME TO elsewhere")
    try:
        status, out, err = runner.run("migrations", *sh("echo ran"))
    finally:
        with connections["default"].cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock")
    assert (status, out) == (125, "")
    assert "migrate" in err
    assert "did not run" in err


@pytest.mark.parametrize(
    "args",
    [
        ("--lock-at-most-for", "soon"),
        ("--lock-at-most-for", "0s"),
        ("--wait", "-1s"),
        ("--on-skip-exit", "256"),
        ("--grace", "never"),
    ],
)
def test_wrong_options(args: tuple[str, str]) -> None:
    """What can't work is refused before anything runs."""
    with pytest.raises(CommandError, match=r"job|on-skip-exit|grace"):
        run("run", "job", f"{args[0]}={args[1]}", "--", "false")


def test_missing_command() -> None:
    """Without a command the usage is shown."""
    with pytest.raises(CommandError, match="COMMAND"):
        run("run", "job")


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
