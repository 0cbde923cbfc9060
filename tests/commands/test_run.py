"""``manage.py shedlock run``: programs under a lock, with real processes."""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connections

from django_shedlock import Lock, process_signals
from django_shedlock.children import Child
from django_shedlock.functions import DatabaseNow
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.process_signals import PASSED_ON, Signals
from django_shedlock.providers import get_provider
from django_shedlock.signals import lock_acquired
from django_shedlock.states import LockState
from tests.support.commands import run
from tests.support.documents import ROOT
from tests.support.leases import end_own_count
from tests.support.locks import state, take
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

SETTINGS = """
from tests.settings import *

DATABASES["default"].update({address!r})
"""
QUICK = """
from tests.support.leases import beat_often

beat_often()
"""
"""Added to the settings, it shows soon what the heartbeat does in a long lease."""
FAILING = """
import os
from django_shedlock.signals import lock_released

def fail(group, number):
    os.write(1, b"failed\\n")  # while it prints, a second signal's handler can't
    raise {error}("no signals, please")

def tell(**kwargs):
    try:
        os.waitpid(-1, os.WNOHANG)
        print("released before the command has ended", flush=True)
    except ChildProcessError:
        print("released after the command has ended", flush=True)

os.killpg = fail
lock_released.connect(tell, weak=False)
"""
"""Added to the settings, the command can't be signalled, as if it ran as root."""
SIGNALLED_IN_STATEMENT = """
import os, signal
from django.db.backends.signals import connection_created

def end(execute, sql, *args):
    result = execute(sql, *args)
    if sql.startswith("{statement}") and end in wrappers:
        wrappers.remove(end)
        os.kill(os.getpid(), signal.SIGTERM)
    return result

def watch(connection, **kwargs):
    global wrappers
    wrappers = connection.execute_wrappers
    wrappers.append(end)

connection_created.connect(watch)
"""
"""Added to the settings, a signal comes while the first such statement returns."""
TERMINAL = """
import fcntl, os, sys, termios

os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Begins a session of its own in a terminal, as a log-in does."""
ADOPTING = """
import ctypes

PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
"""
"""Added to the settings, it inherits orphans, as a container's first process does."""
FIRST = f"{ADOPTING}\nimport subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))"
"""Inherits orphans, too, and waits for its own child only."""
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


class Runner:
    """Starts ``shedlock run`` in processes of their own, and leaves none behind."""

    def __init__(self, folder: Path):
        self.command = [sys.executable, "-m", "django", "shedlock", "run"]
        settings = connections["default"].settings_dict
        keys = ("NAME", "HOST", "PORT", "USER", "PASSWORD")
        address = {key: settings[key] for key in keys}
        self.settings = folder / "run_settings.py"
        self.settings.write_text(SETTINGS.format(address=address))
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "run_settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        }
        self._stack = contextlib.ExitStack()

    def configure(self, text: str) -> None:
        """Add to the settings."""
        with self.settings.open("a") as settings:
            settings.write(text)

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


@pytest.fixture
def quick(runner: Runner) -> Runner:
    """Let the runner's heartbeat beat often."""
    runner.configure(QUICK)
    return runner


def sh(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


def with_child(script: str) -> list[str]:
    return sh(f"sh -c {shlex.quote(script)} & wait")


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


def wait_until_handled(pid: int, number: signal.Signals) -> None:
    """Wait until the process has begun to handle the signal itself."""
    if sys.platform != "linux":
        time.sleep(5)
        return

    def is_handled() -> bool:
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> (number - 1) & 1)

    wait_for(is_handled)


def first_line(process: subprocess.Popen[str]) -> str:
    """Return the next line of the output; one that never comes is empty."""
    assert process.stdout is not None
    impatience = threading.Timer(TIMEOUT, process.kill)
    impatience.start()
    try:
        return process.stdout.readline().strip()
    finally:
        impatience.cancel()


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


def test_failure_is_seen_where_ends_of_children_are_ignored(runner: Runner) -> None:
    """What the supervisor ignores is neither ignored here nor in the command."""
    runner.command[:0] = [sys.executable, "-c", IGNORING]
    status, _, err = runner.run("job", "--", sys.executable, "-c", PARENT)
    assert (status, err) == (7, "")
    assert LockRun.objects.get().outcome == "failed"


def test_lock_is_held_while_the_child_runs(quick: Runner) -> None:
    """The lock is kept alive for longer than its lease, and then released."""
    running = quick.start("job", *sh("echo begun; read end"))
    assert first_line(running) == "begun"
    [before] = get_provider().statuses("job")

    def is_extended() -> bool:
        [now] = get_provider().statuses("job")
        assert now.state is LockState.RUNNING
        return now.lock_until > before.lock_until

    wait_for(is_extended)
    running.communicate("\n", timeout=TIMEOUT)
    assert running.returncode == 0
    assert state("job") is LockState.FREE


def test_held_lock_skips(runner: Runner) -> None:
    """The command does not run; nothing is printed, and the status is 0."""
    take("job")
    assert runner.run("job", *sh("echo ran")) == (0, "", "")
    assert runner.run("job", "--on-skip-exit", "99", *sh("echo ran")) == (99, "", "")


def test_waiting_for_a_held_lock(runner: Runner) -> None:
    """With --wait the command runs as soon as the other one has ended."""
    lock = take("job")
    waiting = runner.start("job", "--wait", "30s", *sh("echo ran"))
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(1.5)
    lock.release()
    assert waiting.communicate(timeout=TIMEOUT) == ("ran\n", "")
    assert waiting.returncode == 0


def test_wait_that_ends_is_a_skip(runner: Runner) -> None:
    """A lock that is not got in time has the skip's status."""
    take("job")
    args = ("--wait", "100ms", "--on-skip-exit", "1")
    assert runner.run("job", *args, *sh("echo ran")) == (1, "", "")


def test_one_of_several_runs(runner: Runner) -> None:
    """Of several that start while the command runs, no other one runs it."""
    started = [runner.start("job", *sh("echo ran; read end")) for _ in range(4)]
    wait_for(lambda: sum(each.poll() is None for each in started) == 1, TIMEOUT)
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


def start_unsignalled(runner: Runner, error: str) -> subprocess.Popen[str]:
    """Start a command that a signal does not reach, and send it one."""
    runner.configure(FAILING.format(error=error))
    running = runner.start("job", *sh("echo begun; read end; echo ended; exit 5"))
    assert first_line(running) == "begun"
    running.terminate()
    assert first_line(running) == "failed"
    return running


def test_command_that_cannot_be_signalled_keeps_its_lock(runner: Runner) -> None:
    """What runs as another user, as with sudo, goes on; a warning says so."""
    running = start_unsignalled(runner, "PermissionError")
    out, err = running.communicate("\n", timeout=TIMEOUT)
    assert out == "ended\nreleased after the command has ended\n"
    assert running.returncode == 5
    assert "Command 'sh'" in err
    assert "can't be sent SIGTERM" in err


def test_exceptions_wait_for_the_command(runner: Runner) -> None:
    """Whatever goes wrong here, the lock is not released while the command runs."""
    running = start_unsignalled(runner, "RuntimeError")
    running.terminate()
    assert first_line(running) == "failed"
    out, err = running.communicate("\n", timeout=TIMEOUT)
    assert out == "ended\nreleased after the command has ended\n"
    assert running.returncode == 1
    assert "no signals, please" in err


def test_child_is_never_left_alone() -> None:
    """Also what fails beside the command waits for its end."""
    with pytest.raises(LookupError), Signals().started(["true"]) as child:
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
    with Signals().started(["true"]) as child:
        pass
    child.send(signal.SIGTERM)
    assert sent == []


def test_child_is_asked_to_end_once(sent: list[int]) -> None:
    """Whoever sees the lost lock, in whatever thread, one grace counts."""
    with Signals().started(["sleep", "60"]) as child:
        child.end(timedelta(hours=1))
        child.end(timedelta(hours=1))
    assert sent == [signal.SIGTERM]


def test_child_that_a_signal_ended(runner: Runner) -> None:
    """The status is 128 and the signal's number, as in a shell."""
    assert runner.run("job", *sh("kill -KILL $$"))[0] == 128 + signal.SIGKILL


def test_signal_while_waiting_ends_the_wait(runner: Runner) -> None:
    """Before the command begins, a signal ends all, and no lock stays behind."""
    lock = take("job")
    waiting = runner.start("job", "--wait", "60s", *sh("echo ran"))
    wait_until_handled(waiting.pid, PASSED_ON[-1])
    waiting.terminate()
    assert waiting.communicate(timeout=TIMEOUT)[0] == ""
    assert waiting.returncode == 128 + signal.SIGTERM
    lock.release()
    assert state("job") is LockState.FREE


@pytest.mark.parametrize(("statement", "waits"), [("INSERT", False), ("UPDATE", True)])
def test_signal_in_a_statement_leaves_no_lock(
    runner: Runner, statement: str, waits: bool
) -> None:
    """What has been taken is given back, and what waits does not wait on."""
    runner.configure(SIGNALLED_IN_STATEMENT.format(statement=statement))
    lock = take("job") if waits else None
    status, out, _ = runner.run("job", "--wait", "60s", *sh("echo ran"))
    assert (status, out) == (128 + signal.SIGTERM, "")
    if lock is not None:
        lock.release()
    assert state("job") is LockState.FREE


def test_signal_is_never_raised_in_a_statement() -> None:
    """SQLite would swallow it; it ends the pause after it, or what would start."""
    signals = Signals()
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

    monkeypatch.setattr(process_signals, "Child", Signalled)
    signals = Signals()
    with signals.handled(), signals.started(["sleep", "60"]) as child:
        status = child.wait()
    assert (status, sent) == (128 + signal.SIGTERM, [signal.SIGTERM])


def test_second_signal_ends_at_once() -> None:
    """A store that hangs keeps nobody."""
    with Signals().handled():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit, match=str(128 + signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)


def test_signal_that_comes_with_a_skip(runner: Runner) -> None:
    """The status says that it was ended, and not that it was skipped."""
    runner.configure(SIGNALLED_IN_STATEMENT.format(statement="UPDATE"))
    take("job")
    assert runner.run("job", *sh("echo ran"))[:2] == (128 + signal.SIGTERM, "")


def test_lost_lock_ends_the_child(quick: Runner) -> None:
    """The command is asked to end, and the status says why."""
    script = "trap 'echo tidy; exit 0' TERM; echo begun; while :; do sleep 0.1; done"
    running = quick.start("job", *sh(script))
    assert first_line(running) == "begun"
    run("release", "job", "--force")
    out, err = running.communicate(timeout=TIMEOUT)
    assert (running.returncode, out) == (123, "tidy\n")
    assert "Lock 'job' lost" in err
    assert LockRun.objects.get().outcome == "lost"


def test_child_that_does_not_end_is_killed(quick: Runner) -> None:
    """After the grace there is no more asking."""
    script = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
    running = quick.start("job", "--grace", "500ms", *sh(script))
    child = int(first_line(running))
    run("release", "job", "--force")
    assert running.wait(TIMEOUT) == 123
    assert not is_alive(child)


def test_grandchild_that_does_not_end_is_killed(quick: Runner) -> None:
    """That its parent has ended saves nothing that goes on without the lock."""
    stubborn = "trap '' TERM; echo $$; exec sleep 60"
    running = quick.start("job", "--grace", "500ms", *with_child(stubborn))
    grandchild = int(first_line(running))
    run("release", "job", "--force")
    assert running.wait(TIMEOUT) == 123
    wait_for(lambda: not is_alive(grandchild))


def test_grace_ends_with_the_last_of_what_the_command_started(quick: Runner) -> None:
    """Nobody waits longer than it takes to tidy up."""
    tidying = "trap 'echo tidy; exit' TERM; echo begun; while :; do sleep 0.1; done"
    running = quick.start("job", "--grace", "1h", *with_child(tidying))
    assert first_line(running) == "begun"
    run("release", "job", "--force")
    assert running.wait(TIMEOUT) == 123
    assert first_line(running) == "tidy"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_first_process_of_a_container_waits_for_orphans(quick: Runner) -> None:
    """What the command leaves behind as it ends is not taken for running."""
    quick.configure(ADOPTING)
    assert_orphans_are_left(quick)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_first_process_may_wait_for_no_orphans(quick: Runner) -> None:
    """What has ended, though nobody took notice, is not taken for running, either."""
    quick.command = [sys.executable, "-c", FIRST, *quick.command]
    assert_orphans_are_left(quick)


def assert_orphans_are_left(quick: Runner) -> None:
    running = quick.start("job", "--grace", "1h", *sh("sleep 60 & echo begun; wait"))
    assert first_line(running) == "begun"
    run("release", "job", "--force")
    assert running.wait(TIMEOUT) == 123


def test_taken_lock_ends_the_child(quick: Runner) -> None:
    """A holder whose row was taken over does not go on."""
    running = quick.start("job", *sh("echo begun; exec sleep 60"))
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


def test_each_tick_runs_once(runner: Runner) -> None:
    """With a schedule the command runs once for each tick, on however many hosts."""
    options = ("--schedule", "0 0 29 2 *", "--time-zone", "Asia/Tokyo")
    assert runner.run("nightly", *options, *sh("echo ran"))[:2] == (0, "ran\n")
    assert runner.run("nightly", *options, *sh("echo ran")) == (0, "", "")
    record = LockRecord.objects.get()
    assert record.schedule == "0 0 29 2 * Asia/Tokyo"
    assert record.tick == record.succeeded_tick


def test_time_zone_without_schedule_is_refused() -> None:
    """It would have no effect, and nobody would notice."""
    with pytest.raises(CommandError, match="--time-zone is that of a --schedule"):
        run("run", "job", "--time-zone", "Asia/Tokyo", "--", "true")


def test_schedule_without_cronsim(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the lock and what to install, also with a time zone."""
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(CommandError, match="Lock 'job'.*django-shedlock.schedules"):
        run("run", "job", "--schedule", "@daily", "--time-zone", "UTC", "--", "true")


def test_command_that_fails_has_not_succeeded_for_its_tick(runner: Runner) -> None:
    """An exit status other than 0 leaves the tick without success."""
    assert runner.run("nightly", "--schedule", "@yearly", *sh("exit 4"))[0] == 4
    record = LockRecord.objects.get()
    assert record.tick is not None
    assert record.progress.newest_success is None


def test_force_runs_a_tick_again(runner: Runner) -> None:
    """An operator runs the command at any time, also if the lock is kept."""
    options = ("--schedule", "@yearly", "--lock-at-least-for", "1m")
    runner.run("nightly", *options, *sh("echo ran"))
    assert runner.run("nightly", *options, *sh("echo ran"))[:2] == (0, "")
    forced = runner.run("nightly", *options, "--force", *sh("echo ran"))
    assert forced[:2] == (0, "ran\n")


def test_force_does_not_disturb_a_running_command(runner: Runner) -> None:
    """Not even by force does it run twice at a time."""
    take("nightly")
    assert runner.run("nightly", "--force", *sh("echo ran"))[:2] == (0, "")
