"""``manage.py shedlock run`` and what its command inherits, as if it were not there."""

from __future__ import annotations

import os
import signal
import stat
import sys
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import psutil
import pytest
from django.conf import settings
from django.core.management import CommandError

from django_shedlock.models import LockRun
from django_shedlock.processes import child, inheritance
from django_shedlock.processes.child import Child
from tests.support.commands import run
from tests.support.run_conditions import (
    close_a_file_when_acquired,
    connect_again_when_acquired,
    have_no_room_for,
    have_path,
)
from tests.support.runs import InterpreterRunner, Runner, sh
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

KILL_AFTER = timedelta(seconds=10)
MANAGE = """
import os, sys
from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "run_settings")
os.environ["OF_THE_PROJECT"] = "kept"
execute_from_command_line()
"""
DESCRIPTORS = """
import os

for number in os.listdir("/proc/self/fd"):
    try:
        print(number, os.readlink(f"/proc/self/fd/{number}"))
    except FileNotFoundError:
        pass
"""
NAMELESS = """
import ctypes, os, shutil, sys

variables = [b"=value", *(b"%s=%s" % each for each in os.environb.items())]
arguments = [os.fsencode(each) for each in sys.argv[1:]]
ctypes.CDLL(None).execve(
    os.fsencode(shutil.which(sys.argv[1])),
    (ctypes.c_char_p * (len(arguments) + 1))(*arguments, None),
    (ctypes.c_char_p * (len(variables) + 1))(*variables, None),
)
"""
MANY_FILES = """
import os, resource, sys

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
for _ in range(1100):
    os.dup2(0, os.dup(0))
os.execvp(sys.argv[1], sys.argv[1:])
"""
IGNORED = """
import signal

print(*(number.name for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
        if signal.getsignal(number) is signal.SIG_IGN))
"""
BLOCKED = """
import os, signal, sys

blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
everything = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
os.write(1, b"all" if blocked >= everything else b"not all")
"""
"""Tells whether a process starts with its signals blocked."""


@pytest.fixture
def manage(interpreter: InterpreterRunner, tmp_path: Path) -> InterpreterRunner:
    """Start a ``manage.py`` as a cron daemon does: with a small environment."""
    (tmp_path / "manage.py").write_text(MANAGE)
    interpreter.command[1:3] = [str(tmp_path / "manage.py")]
    kept = ("PATH", "PYTHONPATH", *filter(is_for_the_tests, os.environ))
    given = interpreter.environment
    interpreter.environment = {name: given[name] for name in kept if name in given}
    return interpreter


def is_for_the_tests(name: str) -> bool:
    return name.startswith(("SHEDLOCK_TEST_", "COVERAGE"))


def test_environment_is_the_wrapper_s(manage: InterpreterRunner) -> None:
    """No time zone of the settings, no settings, no locale of Python's choice."""
    manage.environment |= {"EMPTY": "", "LINES": "one\ntwo=2"}
    _, out, _ = manage.run("job", "--", "env", "-0")
    shown = dict(entry.split("=", 1) for entry in out.split("\0") if entry)
    ours = {"SHEDLOCK_HELD_BY": LockRun.objects.get().locked_by}
    assert shown == {**manage.environment, **ours, "OF_THE_PROJECT": "kept"}


def test_environment_may_have_what_django_sets(manage: InterpreterRunner) -> None:
    """What was there before stays as it was."""
    own = {"TZ": "Asia/Tokyo", "DJANGO_SETTINGS_MODULE": "run_settings"}
    manage.environment |= own
    out = manage.run("job", *sh('echo "$TZ $DJANGO_SETTINGS_MODULE"'))[1]
    assert out.split() == list(own.values())


def test_environment_where_the_system_does_not_tell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The time zone of the settings is left out; another one is the user's own."""
    missing = tmp_path / "missing"
    monkeypatch.setenv("TZ", settings.TIME_ZONE)
    assert "TZ" not in inheritance.initial_environment(missing)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert inheritance.initial_environment(missing) == dict(os.environ)


def test_locale_of_the_wrapper(manage: InterpreterRunner) -> None:
    """Python sets another one in place of ``C``."""
    manage.environment["LC_CTYPE"] = "C"
    assert manage.run("job", *sh('echo "$LC_CTYPE"'))[1] == "C\n"


def test_open_files_are_inherited(
    interpreter: InterpreterRunner, tmp_path: Path
) -> None:
    """A shell's redirection works; no connection of the wrapper's own leaks."""
    (tmp_path / "input").write_text("of the shell\n")
    opening = f'exec 7<{tmp_path / "input"}; exec "$@"'
    interpreter.command[:0] = ["sh", "-c", opening, "sh"]
    assert interpreter.run("job", *sh("cat <&7")) == (0, "of the shell\n", "")
    out = interpreter.run("job", "--", sys.executable, "-c", DESCRIPTORS)[1]
    assert sorted(line.split()[0] for line in out.splitlines()) == list("0127")


def test_many_open_files(interpreter: InterpreterRunner) -> None:
    """However many there are, the command runs to its end under its lock."""
    interpreter.command[:0] = [sys.executable, "-c", MANY_FILES]
    assert interpreter.run("job", *sh("echo ran")) == (0, "ran\n", "")


def test_no_connection_is_inherited(runner: Runner) -> None:
    """Neither one of before, nor one that has the number of a file since closed."""
    runner.prepare.append(connect_again_when_acquired)
    status, out, err = runner.run("job", "--", sys.executable, "-c", DESCRIPTORS)
    assert (status, err) == (0, "")
    assert "socket:" not in "".join(
        line for line in out.splitlines() if int(line.split()[0]) > 2
    )


def test_file_that_is_closed_meanwhile(runner: Runner) -> None:
    """The command runs without it."""
    runner.prepare.append(close_a_file_when_acquired)
    assert runner.run("job", *sh("echo ran")) == (0, "ran\n", "")


def test_variable_without_a_name(interpreter: InterpreterRunner) -> None:
    """Python knows no such variable, and the command runs."""
    interpreter.command[:0] = [sys.executable, "-c", NAMELESS]
    status, out, err = interpreter.run("job", *sh("echo ran"))
    assert (status, out, err) == (0, "ran\n", "")


def test_no_files_where_the_system_does_not_tell(tmp_path: Path) -> None:
    """The command still has its standard streams."""
    assert inheritance.inheritable_files(str(tmp_path / "missing")) == set()


def test_no_signal_ends_what_becomes_the_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The interpreter before it could not handle one, so all signals are blocked."""
    monkeypatch.setattr(Child, "interpreter", [sys.executable, "-c", BLOCKED])
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with closing(Child.of_program(["true"], kill_after=KILL_AFTER)):
        pass
    assert capfd.readouterr().out == "all"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_ignored_signals_stay_ignored(interpreter: InterpreterRunner) -> None:
    """``nohup`` and a shell's background jobs ignore them for good reasons."""
    ignoring = "trap '' HUP INT QUIT; exec \"$@\""
    interpreter.command[:0] = ["sh", "-c", ignoring, "sh"]
    out = interpreter.run("job", "--", sys.executable, "-c", IGNORED)[1]
    assert out.split() == ["SIGHUP", "SIGINT", "SIGQUIT"]


def test_child_is_as_if_a_shell_had_started_it(interpreter: InterpreterRunner) -> None:
    """A closed pipe ends a program silently, as everywhere else."""
    assert interpreter.run("job", *sh("yes | head -n 1")) == (0, "y\n", "")


@pytest.mark.parametrize("has_path", [True, False])
def test_script_without_its_interpreter(
    runner: Runner, tmp_path: Path, has_path: bool
) -> None:
    """A script without an interpreter line runs in a shell."""
    script = tmp_path / "script"
    script.write_text('echo "$0: $*"\n')
    script.chmod(stat.S_IRWXU)
    runner.prepare.append(partial(have_path, f"{tmp_path}:/bin:/usr/bin"))
    status, out, _ = runner.run(
        "job", "--", str(script) if has_path else "script", "a b", ""
    )
    assert (status, out) == (0, f"{script}: a b \n")


def test_argument_that_no_program_can_get() -> None:
    """Nothing runs with half of an argument."""
    with pytest.raises(CommandError, match="echo can't be started: .*null") as caught:
        run("run", "job", "--", "echo", "a\0b")
    assert caught.value.returncode == 126


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "0<&- 1>&- 2>&-"])
def test_standard_stream_that_is_closed(
    interpreter: InterpreterRunner, tmp_path: Path, closed: str
) -> None:
    """No other file has its number, so the command has ``/dev/null`` in its place."""
    interpreter.command[:0] = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    file = tmp_path / "files"
    listing = f"from pathlib import Path; Path({str(file)!r}).write_text"
    program = f"{listing}(str([__import__('os').readlink(f'/proc/self/fd/{{n}}')"
    program += " for n in range(3)]))"
    running = interpreter.start("job", "--", sys.executable, "-c", program)
    running.wait(PATIENCE)
    assert file.read_text().count("/dev/null") == closed.count("&-")


def left_behind() -> tuple[object, ...]:
    """Return what a start that fails may leave open, running or blocked."""
    files = {file.name for file in Path("/dev/fd").iterdir()}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return files, mask, psutil.Process().children()


@pytest.mark.parametrize("program", ["watch", "become"])
def test_host_without_room_for_a_process(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """A start that fails leaves no file, no process and no blocked signal behind."""
    monkeypatch.setattr(child.subprocess, "Popen", child.subprocess.Popen)
    have_no_room_for(program)
    before = left_behind()
    with pytest.raises(BlockingIOError):
        Child.of_program(["true"], kill_after=KILL_AFTER)
    assert left_behind() == before
