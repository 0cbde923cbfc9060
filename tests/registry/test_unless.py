"""Calls of locked commands that only look: ``unless``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from django.core.management import ManagementUtility, call_command
from django.core.management.base import BaseCommand

from django_shedlock import InvalidLockConfiguration, execute, hold, scheduler_lock
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.registry.jobs import Job, decorated_job
from django_shedlock.testing import held_elsewhere
from tests.support.jobs import DAILY, ran
from tests.support.nested import NestedProject

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("no_other_jobs"),
]


def command(**options: Any) -> type[BaseCommand]:
    """Return a locked command that notes each call, with two flags and an option."""

    class Command(BaseCommand):
        requires_system_checks = ()

        def add_arguments(self, parser: Any) -> None:
            parser.add_argument("--dry-run", action="store_true")
            parser.add_argument("--list-tasks", action="store_true")
            parser.add_argument("--shard")

        def handle(self, *args: Any, **options: Any) -> None:
            ran.append("looked" if options["dry_run"] else "done")

    return scheduler_lock("nightly", **options)(Command)


class AsyncCommand(BaseCommand):
    async def handle(self, *args: Any, **options: Any) -> str:
        ran.append("looked")
        return "seen"


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({}, ["--dry-run"]),
        ({"unless": None}, ["--dry-run"]),
        ({"unless": ["dry_run", "list_tasks"]}, ["--dry-run"]),
        ({"unless": ["list_tasks"]}, ["--list-tasks"]),
        ({"unless": ("shard",)}, ["--shard", "7"]),
    ],
)
def test_call_that_only_looks_has_no_lock(options: Any, call: list[str]) -> None:
    """A call that only looks runs while the job runs, and uses up no tick."""
    kind = command(**DAILY, **options)
    with held_elsewhere("nightly"):
        call_command(kind(), *call)
    assert len(ran) == 1
    LockRecord.objects.all().delete()
    call_command(kind(), *call)
    assert not LockRecord.objects.exists()
    call_command(kind())
    assert ran[2:] == ["done"]


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({}, ["--list-tasks"]),
        ({}, ["--shard", "7"]),
        ({"unless": []}, ["--dry-run"]),
        ({"unless": ["list_tasks"]}, ["--dry-run"]),
        ({"unless": ["shard"]}, ["--shard", ""]),
    ],
)
def test_any_other_call_is_locked(options: Any, call: list[str]) -> None:
    """Only an option that is named counts, and only if its value is true."""
    with held_elsewhere("nightly"):
        call_command(command(**options)(), *call)
    assert ran == []


def test_dry_run_with_a_value_is_no_flag() -> None:
    """An option ``dry_run`` that is no flag may mean anything."""

    @scheduler_lock("nightly")
    class Command(BaseCommand):
        def add_arguments(self, parser: Any) -> None:
            parser.add_argument("--dry-run")

        def handle(self, *args: Any, **options: Any) -> None:
            ran.append(options["dry_run"])

    with held_elsewhere("nightly"):
        call_command(Command(), "--dry-run", "no")
    assert ran == []


def test_command_that_works_in_execute_and_only_looks() -> None:
    """A command that does its work in ``execute()`` needs no lock to look."""

    @scheduler_lock("nightly")
    class Command(BaseCommand):
        def add_arguments(self, parser: Any) -> None:
            parser.add_argument("--dry-run", action="store_true")

        def execute(self, *args: Any, **options: Any) -> None:
            ran.append("looked" if options["dry_run"] else "done")

    with held_elsewhere("nightly"):
        call_command(Command(), "--dry-run")
        call_command(Command())
    assert ran == ["looked"]


def test_async_command_that_only_looks() -> None:
    """An async command's ``handle()`` needs no lock to look."""
    kind = scheduler_lock("nightly")(AsyncCommand)
    with held_elsewhere("nightly"):
        assert asyncio.run(kind().handle(dry_run=True)) == "seen"
        assert asyncio.run(kind().handle(dry_run=False)) is None
    assert ran == ["looked"]


def test_only_the_look_itself_has_no_lock() -> None:
    """A job that it calls is locked as ever."""

    @scheduler_lock("nightly")
    class Command(BaseCommand):
        def handle(self, *args: Any, **options: Any) -> None:
            executed = execute(lambda: ran.append("inner"), "inner").was_executed
            ran.append(f"inner: {executed}")

    with held_elsewhere("inner"), held_elsewhere("nightly"):
        Command().handle(dry_run=True)
    assert ran == ["inner: False"]


def job_of(kind: type[BaseCommand], *args: object, **kwargs: object) -> Job:
    """Return the job that starts the command with these arguments."""
    decorated = decorated_job(kind)
    return Job("nightly", kind, args, kwargs, DAILY, decorated=decorated)


def test_job_whose_arguments_only_look() -> None:
    """A job whose arguments only look can start while its lock is held."""
    kind = command(**DAILY)
    with held_elsewhere("nightly"):
        assert job_of(kind, "--dry-run").start()
        assert job_of(kind, dry_run=True).start()
        assert not job_of(kind).start()
    assert ran == ["looked", "looked"]


@pytest.mark.parametrize(
    ("args", "kwargs", "only_looks"),
    [
        (["--dry-run"], {}, True),
        ([], {"dry_run": True}, True),
        ([], {}, False),
        (["--shard", 7], {}, False),
        (["--no-such-option"], {}, False),
        (["--shard"], {}, False),
    ],
)
def test_job_knows_whether_it_only_looks(
    args: Any, kwargs: Any, only_looks: bool
) -> None:
    """Arguments that the command would refuse make it an ordinary job."""
    assert job_of(command(), *args, **kwargs).only_looks is only_looks


def test_call_that_only_looks_is_no_job_of_the_lock(settings: Any) -> None:
    """
    A dry-run entry in CRONJOBS is no job of the lock.

    A beat would start such an entry again for each tick: it leaves no record.
    """
    settings.INSTALLED_APPS = [
        *("django_shedlock", "django_shedlock.contrib.crontab", "django_crontab"),
        "tests.apps.twins",
    ]
    call = "django.core.management.call_command"
    settings.CRONJOBS = [
        ("0 2 * * *", call, ["digest"]),
        ("0 3 * * *", call, ["digest"], {"dry_run": True}),
    ]
    entries = [job for job in named_jobs("default") if job.decorated is not None]
    assert [dict(job.kwargs) for job in entries] == [{}]


@pytest.mark.parametrize(
    "unless", ["dry_run", ["--dry-run"], [7], {"dry_run": True}, True]
)
def test_wrong_unless_is_refused(unless: Any) -> None:
    """The error says what the option has to be."""
    with pytest.raises(InvalidLockConfiguration) as refused:
        command(unless=unless)
    assert str(refused.value) == (
        f"Lock 'nightly': unless ({unless!r}) must be a list of the command's options, "
        'each by its `dest`, for example ["dry_run"].'
    )


def test_unless_is_for_commands() -> None:
    """A function has no options, and a lock alone does not see them."""
    with pytest.raises(
        InvalidLockConfiguration, match=r"unless .* is for management commands\. Put"
    ):
        scheduler_lock("nightly", unless=["dry_run"])(ran.clear)
    with pytest.raises(InvalidLockConfiguration, match="unknown option 'unless'"):
        hold("nightly", unless=["dry_run"])  # type: ignore[call-arg]


def test_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look by ``manage.py`` while another host runs the job."""
    kind = command(**DAILY)
    monkeypatch.setattr(
        "django.core.management.load_command_class", lambda app, name: kind()
    )
    monkeypatch.setattr(
        "django.core.management.get_commands", lambda: {"nightly": "app"}
    )
    with held_elsewhere("nightly"):
        ManagementUtility(["manage.py", "nightly", "--dry-run"]).execute()
        ManagementUtility(["manage.py", "nightly"]).execute()
    assert ran == ["looked"]


def test_real_processes(tmp_path: Path) -> None:
    """A look before cron's start does not use up the tick of this start."""
    project = NestedProject(tmp_path)
    project.lock("outer", unless=["shard"], schedule=DAILY["schedule"])
    look = project.manage("outer", "echo looked", "--shard", "7")
    starts = [project.manage("outer", "echo done") for _ in range(2)]
    assert look.stdout == "looked\n"
    assert [start.stdout for start in starts] == ["done\n", ""]
    assert LockRun.objects.get().outcome == "succeeded"
