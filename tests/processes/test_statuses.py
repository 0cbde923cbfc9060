"""``manage.py shedlock run``: when its command runs, and what comes of it."""

from __future__ import annotations

from functools import partial

import pytest
from django.core.management import CommandError
from django.db import connections

from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord, LockRun
from tests.support.commands import run
from tests.support.locks import has_succeeded, state, take
from tests.support.paths import ROOT
from tests.support.run_conditions import (
    PAUSES,
    have_no_room_for,
    lack_an_interpreter,
    tell_of_pauses,
)
from tests.support.runs import InterpreterRunner, Runner, first_line, sh
from tests.support.waiting import PATIENCE, wait_for

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]


def test_child_has_the_streams_and_gives_the_status(
    interpreter: InterpreterRunner,
) -> None:
    """Standard input, output, errors and the exit status are the command's own."""
    ended = interpreter.run("job", *sh("cat; echo oops >&2; exit 7"), stdin="hello")
    assert ended == (7, "hello", "oops\n")
    assert state("job") is LockState.FREE
    recorded = LockRun.objects.get()
    assert (recorded.outcome, recorded.exception_message) == ("failed", "7")


def test_child_that_succeeds(runner: Runner) -> None:
    """A command that ends well is a run that succeeded, and prints nothing of ours."""
    assert runner.run("job", "--", "true") == (0, "", "")
    assert LockRun.objects.get().outcome == "succeeded"


def test_held_lock_skips(runner: Runner) -> None:
    """The command does not run; nothing is printed, and the status is 0."""
    take("job")
    assert runner.run("job", *sh("echo ran")) == (0, "", "")
    assert runner.run("job", "--on-skip-exit", "99", *sh("echo ran")) == (99, "", "")


def test_waiting_for_a_held_lock(runner: Runner) -> None:
    """With --wait the command runs as soon as the lock is released."""
    lock = take("job")
    runner.prepare.append(tell_of_pauses)
    waiting = runner.start("job", "--wait", "1h", *sh("echo ran"))
    assert first_line(waiting) == PAUSES
    lock.release()
    out, err = waiting.communicate(timeout=PATIENCE)
    assert out.splitlines()[-1] == "ran"
    assert set(out.splitlines()[:-1]) <= {PAUSES}
    assert (waiting.returncode, err) == (0, "")


def test_wait_that_ends_is_a_skip(runner: Runner) -> None:
    """A lock that is not got in time has the skip's status."""
    take("job")
    args = ("--wait", "100ms", "--on-skip-exit", "1")
    assert runner.run("job", *args, *sh("echo ran")) == (1, "", "")


def test_one_of_several_runs(runner: Runner) -> None:
    """Of several that start while the command runs, no other one runs it."""
    started = [runner.start("job", *sh("echo ran; read end")) for _ in range(4)]
    wait_for(lambda: sum(each.poll() is None for each in started) == 1)
    outputs = [process.communicate("\n", timeout=PATIENCE)[0] for process in started]
    assert sorted(outputs) == ["", "", "", "ran\n"]


def test_command_that_cannot_be_started(runner: Runner) -> None:
    """The statuses are a shell's, and the lock is free again."""
    ended = runner.run("job", "--", "/no/such/program")
    assert ended == (127, "", "/no/such/program: not found\n")
    status, _, err = runner.run("job", "--", str(ROOT / "README.rst"))
    assert status == 126
    assert "Permission denied" in err
    assert state("job") is LockState.FREE


def test_guard_that_cannot_be_started(runner: Runner) -> None:
    """A line says so, and the lock is free again."""
    runner.prepare.append(lack_an_interpreter)
    status, out, err = runner.run("job", *sh("echo ran"))
    assert (status, out, err.count("\n")) == (126, "", 1)
    assert "/no/such/python" in err
    assert state("job") is LockState.FREE


def test_host_without_room_for_the_command(runner: Runner) -> None:
    """A line says so, and the lock is free again."""
    runner.prepare.append(partial(have_no_room_for, "become"))
    status, out, err = runner.run("job", *sh("echo ran"))
    assert (status, out, err.count("\n")) == (126, "", 1)
    assert "sh can't be started: [Errno 11]" in err
    assert state("job") is LockState.FREE


def test_missing_table(runner: Runner) -> None:
    """Without the table of locks the command does not run."""
    with connections["default"].cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock RENAME TO elsewhere")
    try:
        status, out, err = runner.run("deploy", *sh("echo ran"))
    finally:
        with connections["default"].cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock")
    assert (status, out) == (125, "")
    assert "its table is missing. Run `python manage.py migrate`." in err


@pytest.mark.parametrize(
    "args",
    [
        ("--lock-at-most-for", "soon"),
        ("--lock-at-most-for", "0s"),
        ("--wait", "-1s"),
        ("--wait", "5"),
        ("--on-skip-exit", "256"),
        ("--kill-after", "never"),
        ("--jitter", "soon"),
        ("--jitter", "-1s"),
    ],
)
def test_wrong_options(args: tuple[str, str]) -> None:
    """What can't work is refused before anything runs."""
    with pytest.raises(CommandError, match=rf"job|{args[0]}"):
        run("run", "job", f"{args[0]}={args[1]}", "--", "false")


@pytest.mark.parametrize("command", [[], ["--"], ["--", ""], ["--", "", "argument"]])
def test_missing_command(command: list[str]) -> None:
    """``shedlock run`` without a command is refused."""
    with pytest.raises(CommandError, match="COMMAND"):
        run("run", "job", *command)


@pytest.mark.parametrize("command", [["--"], ["--", ""]])
def test_status_of_a_missing_command(runner: Runner, command: list[str]) -> None:
    """The call is wrong; nothing was looked for."""
    status, out, err = runner.run("job", *command)
    assert (status, out) == (2, "")
    assert "COMMAND" in err
    assert not LockRecord.objects.exists()


def test_each_tick_runs_once(runner: Runner) -> None:
    """With a schedule the command runs once for each tick, on however many hosts."""
    options = ("--schedule", "0 0 29 2 *", "--time-zone", "Asia/Tokyo")
    assert runner.run("nightly", *options, *sh("echo ran"))[:2] == (0, "ran\n")
    assert runner.run("nightly", *options, *sh("echo ran")) == (0, "", "")
    record = LockRecord.objects.get()
    assert record.schedule == "0 0 29 2 * Asia/Tokyo"
    assert has_succeeded(record)


def test_ticks_of_several_schedules(runner: Runner) -> None:
    """The option may be repeated, and the ticks of all its expressions count."""
    options = ("--schedule", "0 0 29 2 *", "--schedule", "0 12 29 2 *")
    assert runner.run("job", *options, *sh("echo ran"))[1] == "ran\n"
    assert runner.run("job", *options, *sh("echo ran")) == (0, "", "")
    record = LockRecord.objects.get()
    assert record.schedule == "0 0 29 2 * | 0 12 29 2 * America/Chicago"


def test_time_zone_without_schedule_is_refused() -> None:
    """``--time-zone`` without ``--schedule`` is refused, as it would have no effect."""
    with pytest.raises(CommandError, match="--time-zone needs a --schedule"):
        run("run", "job", "--time-zone", "Asia/Tokyo", "--", "true")


def test_command_that_fails_has_not_succeeded_for_its_tick(runner: Runner) -> None:
    """An exit status other than 0 leaves the tick without success."""
    assert runner.run("nightly", "--schedule", "@yearly", *sh("exit 4"))[0] == 4
    record = LockRecord.objects.get()
    assert not has_succeeded(record)


def test_force_runs_a_tick_again(runner: Runner) -> None:
    """An operator runs the command at any time, also if the lock is kept."""
    options = ("--schedule", "@yearly", "--lock-at-least-for", "1m")
    runner.run("nightly", *options, *sh("echo ran"))
    assert runner.run("nightly", *options, *sh("echo ran"))[:2] == (0, "")
    forced = runner.run("nightly", *options, "--force", *sh("echo ran"))
    assert forced[:2] == (0, "ran\n")


def test_force_does_not_disturb_a_running_command(runner: Runner) -> None:
    """``--force`` does not start a command whose lock is held."""
    take("nightly")
    assert runner.run("nightly", "--force", *sh("echo ran"))[:2] == (0, "")
