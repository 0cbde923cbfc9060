"""The line for a person whose command was skipped."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import BaseCommand, OutputWrapper

from django_shedlock import scheduler_lock
from django_shedlock.execution.skips import calling_command, refusal, show_skip
from django_shedlock.locks.status import CONTENDED, LockHolder
from django_shedlock.models import LockRecord
from django_shedlock.testing import held_elsewhere
from tests.support.commands import call
from tests.support.jobs import DAILY, only_jobs_of
from tests.support.locks import take
from tests.support.nested import NestedProject
from tests.support.runs import sh
from tests.support.terminals import in_terminal

pytestmark = pytest.mark.django_db(transaction=True)

SHOW = "See `python manage.py shedlock show {}`.\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Nightly(BaseCommand):
    requires_system_checks = ()

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--room")

    def handle(self, *args: Any, **options: Any) -> None: ...


def shown(*args: str, name: str = "nightly", stream: Any, **options: Any) -> str:
    """Return what ``manage.py nightly`` shows on this stderr."""
    kind = type("Command", (Nightly,), {"__module__": __name__})
    with only_jobs_of():
        command = scheduler_lock(name, **options)(kind)(stderr=stream)
        command.run_from_argv(["manage.py", "nightly", *args])
    return str(stream.getvalue())


@pytest.mark.parametrize(
    ("stream", "args"),
    [
        (Terminal(), []),
        (Terminal(), ["-v", "0"]),
        (io.StringIO(), ["-v", "2"]),
        (io.StringIO(), ["--verbosity=3"]),
    ],
)
def test_held_lock(stream: Any, args: list[str]) -> None:
    """At a terminal or with -v 2, one line says who holds it and where to look."""
    lock = take("nightly")
    assert shown(*args, stream=stream) == (
        f"Skipped. Lock 'nightly': held by {lock.locked_by}. {SHOW.format('nightly')}"
    )


@pytest.mark.parametrize("args", [[], ["-v", "1"]])
def test_nobody_looks(args: list[str]) -> None:
    """Without a terminal, a skip prints nothing, so that cron sends no mail."""
    with held_elsewhere("nightly"):
        assert shown(*args, stream=io.StringIO()) == ""


def test_command_that_runs() -> None:
    """A command that is not skipped prints no line."""
    assert shown("-v", "3", stream=Terminal()) == ""


def test_tick_that_has_run() -> None:
    """The line says how the job runs once more."""
    shown(stream=Terminal(), **DAILY)
    line = shown(stream=Terminal(), **DAILY)
    assert line.startswith("Skipped. Lock 'nightly': its tick of ")
    assert line.endswith(
        "To run it now: `python manage.py shedlock trigger nightly`.\n"
    )
    assert line.count("\n") == 1


def test_tick_of_a_lock_with_fields() -> None:
    """``trigger`` does not know it by its name."""
    options = {**DAILY, "name": "import:{room}"}
    shown("--room", "a b", stream=Terminal(), **options)
    line = shown("--room", "a b", stream=Terminal(), **options)
    assert line.endswith(SHOW.format("'import:a b'"))


def test_name_and_provider(settings: Any) -> None:
    """The command is complete, with the namespace and the provider."""
    settings.SHEDLOCK_NAMESPACE = "eu"
    settings.SHEDLOCK_PROVIDERS = {
        alias: {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}
        for alias in ("default", "other")
    }
    with held_elsewhere("nightly", provider="other"):
        line = shown(stream=Terminal(), provider="other")
    assert line.endswith(" shedlock --provider other show eu.nightly`.\n")


def test_command_that_code_calls() -> None:
    """A skipped command that code calls prints nothing."""
    stream = Terminal()
    with only_jobs_of(), held_elsewhere("nightly"):
        call_command(scheduler_lock("nightly")(Nightly)(), stderr=stream, verbosity=3)
    assert stream.getvalue() == ""


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("verbosity", [1, 2])
@pytest.mark.parametrize("wrap", [OutputWrapper, lambda stream: stream])
@pytest.mark.parametrize("stream", ["closed", None, Gone()])
def test_stream_that_nobody_can_read(stream: Any, wrap: Any, verbosity: int) -> None:
    """A skip is no error, whatever the stream is."""
    if stream == "closed":
        stream = io.StringIO()
        stream.close()
    skipped = LockHolder("host:1:x")
    show_skip(wrap(stream), verbosity, "nightly", skipped, alias="default")


def test_stream_of_the_commands_own() -> None:
    """A command may have put another one in the place of Django's."""
    stream = Terminal()
    show_skip(stream, 1, "nightly", LockHolder("host:1:x"), alias="default")
    assert stream.getvalue() == (
        f"Skipped. Lock 'nightly': held by host:1:x. {SHOW.format('nightly')}"
    )


def test_refusal_of_a_lock_without_a_lease() -> None:
    """A worker that came first in the same instant has no lease that we know."""
    assert refusal("job", CONTENDED, "Wait.") == (
        "Lock 'job' is held by another worker that came first. Wait."
    )


def test_shedlock_run() -> None:
    """
    With -v 2, a skipped ``shedlock run`` prints who holds the lock.

    For a tick that has run, the line suggests ``--force``.
    """
    run = ("run", "job", "-v", "2", "--schedule", DAILY["schedule"], "--", *sh("exit"))
    lock = take("job")
    held = f"Skipped. Lock 'job': held by {lock.locked_by}. {SHOW.format('job')}"
    assert call(*run) == (0, "", held)
    lock.release()
    call(*run)
    status, _, line = call(*run)
    assert status == 0
    assert line.endswith("To run it now: add `--force`.\n")
    assert call(*(each for each in run if each not in {"-v", "2"})) == (0, "", "")


@pytest.mark.once
def test_real_terminal(tmp_path: Path) -> None:
    """A locked command and ``shedlock run`` say it there, without -v."""
    project = NestedProject(tmp_path)
    project.lock("outer", name="job")
    lock = take("job")
    held = f"Skipped. Lock 'job': held by {lock.locked_by}. {SHOW.format('job')}"
    manage = [sys.executable, "-m", "django"]
    for command in (["outer", "exit 1"], ["shedlock", "run", "job", "--", "false"]):
        environment = project.environment()
        assert in_terminal([*manage, *command], environment, columns=200) == held
        ended = project.manage(*command)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    LockRecord.objects.all().delete()


def test_caller_is_the_innermost_command() -> None:
    """A function is called by the command in whose ``handle()`` it is called."""
    found: list[str | None] = []

    class Command(BaseCommand):
        def handle(self, *args: Any, **options: Any) -> None:
            found.append(calling_command())

    Command().handle()
    assert found == ["test_skips"]
    assert calling_command() is None


def test_other_methods_are_no_callers() -> None:
    """A handler of something else may be called ``handle``, too."""

    class Handler:
        def handle(self) -> str | None:
            return calling_command()

    def handle() -> str | None:
        return calling_command()

    assert (Handler().handle(), handle()) == (None, None)
