"""Which identities child processes inherit, and who is refused by them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.test import override_settings

from django_shedlock import (
    LockNotAcquired,
    aexecute,
    ahold,
    current_lock,
    execute,
    hold,
    scheduler_lock,
)
from django_shedlock.locks.inherited import HELD_BY_VARIABLE, passed_to_children
from django_shedlock.locks.status import LockHolder
from django_shedlock.registry.jobs import Job, starting
from django_shedlock.schedules.state import BY_SCHEDULER
from django_shedlock.testing import held_elsewhere, locked_in_memory
from tests.support.jobs import only_jobs_of
from tests.support.locks import Broken, take
from tests.support.threads import run_threads
from tests.support.waiting import NEVER_SECONDS

HOUR = timedelta(hours=1)
MEMORY = {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}

passed_on: list[bool] = []
"""Whether children of each body so far would inherit the identity of its lock."""


def note() -> None:
    passed_on.append(current_lock().locked_by in inherited())


def inherited() -> list[str]:
    return os.environ.get(HELD_BY_VARIABLE, "").split()


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    passed_on.clear()
    monkeypatch.delenv(HELD_BY_VARIABLE, raising=False)
    with locked_in_memory(), only_jobs_of():
        yield


def command(body: Callable[[], Any] = note, **options: Any) -> type[BaseCommand]:
    """Return a new command that calls the body under its lock."""

    @scheduler_lock("job", **options)
    class Command(BaseCommand):
        requires_system_checks = ()

        def handle(self, *args: Any, **options: Any) -> None:
            body()

    return Command


def by_command_line(kind: type[BaseCommand]) -> None:
    """Run the command as ``manage.py`` does, but raise its errors."""
    kind().run_from_argv(["manage.py", "job", "--traceback"])


def fail() -> None:
    note()
    raise Broken


def test_own_command() -> None:
    """While it runs, its children inherit its identity, and after it nothing."""
    by_command_line(command())
    assert passed_on == [True]
    assert HELD_BY_VARIABLE not in os.environ


def test_own_command_that_fails() -> None:
    """Nothing is left for the children of later bodies."""
    with pytest.raises(Broken):
        by_command_line(command(fail))
    assert passed_on == [True]
    assert HELD_BY_VARIABLE not in os.environ


def test_own_command_whose_body_is_async() -> None:
    """Some projects' commands await their ``handle()``."""

    @scheduler_lock("job")
    class Command(BaseCommand):
        requires_system_checks = ()

        async def handle(self, *args: Any, **options: Any) -> None:
            note()

        def execute(self, *args: Any, **options: Any) -> None:
            async_to_sync(self.handle)(*args, **options)

    by_command_line(Command)
    assert passed_on == [True]
    assert HELD_BY_VARIABLE not in os.environ
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HELD_BY_VARIABLE, take().locked_by)
        with pytest.raises(CommandError, match="'job' is held by"):
            by_command_line(Command)


def test_inherited_identities_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grandchildren get those of all their ancestors."""
    monkeypatch.setenv(HELD_BY_VARIABLE, "first second")
    seen: list[list[str]] = []
    by_command_line(
        command(lambda: seen.append([*inherited(), current_lock().locked_by]))
    )
    assert seen[0][:2] == ["first", "second"]
    assert seen[0][2] == seen[0][3]
    assert os.environ[HELD_BY_VARIABLE] == "first second"


def test_reentry_leaves_the_outer_identity() -> None:
    """The inner body ends, and the outer one goes on to start children."""
    inner = command()

    def outer() -> None:
        by_command_line(inner)
        note()

    by_command_line(command(outer))
    assert passed_on == [True, True]


def test_bodies_that_overlap() -> None:
    """Each adds and removes its own identity, in whatever order they end."""
    first, second = passed_to_children("first"), passed_to_children("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert inherited() == ["second"]
    second.__exit__(None, None, None)
    assert HELD_BY_VARIABLE not in os.environ


def start(job: Any) -> None:
    with starting(BY_SCHEDULER):  # as a worker of Celery does
        job()


async def anote() -> None:
    note()


async def ahold_job() -> None:
    async with ahold("job"):
        note()


def hold_job() -> None:
    with hold("job"):
        note()


@pytest.mark.parametrize(
    "run",
    [
        lambda: call_command(command()()),
        lambda: start(scheduler_lock("job")(note)),
        lambda: asyncio.run(scheduler_lock("job")(anote)()),
        lambda: execute(note, "job"),
        lambda: asyncio.run(aexecute(anote, "job")),
        hold_job,
        lambda: asyncio.run(ahold_job()),
    ],
    ids=[
        *("call_command", "function", "coroutine", "execute", "aexecute", "hold"),
        "ahold",
    ],
)
def test_other_bodies(run: Callable[[], Any]) -> None:
    """A server has several at once, and one environment: children inherit nothing."""
    run()
    assert passed_on == [False]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Job("job", note),
        lambda: Job("job", anote),
        lambda: Job("job", scheduler_lock("job")(note), decorated=None),
        lambda: Job("job", command()),
    ],
    ids=["function", "coroutine", "decorated", "command"],
)
def test_job_that_is_started_by_name(make: Callable[[], Job]) -> None:
    """A process of ``crontab run``, ``trigger`` or a beat is there for this job."""
    assert make().start()
    assert passed_on == [True]
    assert HELD_BY_VARIABLE not in os.environ


def test_job_that_another_one_calls() -> None:
    """What is started by name is the outer one."""
    inner = scheduler_lock("inner")(note)

    @scheduler_lock("outer")
    def outer() -> None:
        inner()
        note()

    job = Job("outer", outer, decorated=vars(outer)["shedlock_job"])
    assert job.start()
    assert passed_on == [False, True]


def test_child_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error names the lock and the ways out; the log has the skip."""
    caplog.set_level(logging.INFO)
    held = take()
    monkeypatch.setenv(HELD_BY_VARIABLE, f"old {held.locked_by} other")
    with pytest.raises(CommandError) as refused:
        by_command_line(command())
    assert refused.value.returncode == 75
    assert str(refused.value) == (
        f"Lock 'job' is held by {held.locked_by}, a run that this process belongs to, "
        "so nothing was done: a child process never enters a lock of its parent. There "
        "are three ways out: name an option of the child's command in its `unless`, "
        "use another name for one of the two, or no lock for the parent."
    )
    assert caplog.messages[-1] == (
        f"Lock 'job' not acquired: held by {held.locked_by}, a run that this process "
        "belongs to."
    )
    assert passed_on == []


def test_child_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A child process is refused its parent's lock at once, even with wait=.

    The parent may wait for the child, so the lock would not become free.
    """
    monkeypatch.setenv(HELD_BY_VARIABLE, take().locked_by)
    with pytest.raises(CommandError):
        by_command_line(command(wait=NEVER_SECONDS * 10))
    with pytest.raises(CommandError):
        Job("job", anote, options={"wait": NEVER_SECONDS * 10}).start()


def test_other_skips_of_children(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is not the process's own command skips as ever, and the log says why."""
    caplog.set_level(logging.INFO)
    monkeypatch.setenv(HELD_BY_VARIABLE, take().locked_by)
    call_command(command()())
    assert not execute(note, "job").was_executed
    assert caplog.text.count("a run that this process belongs to") == 2
    with pytest.raises(LockNotAcquired, match="no lock for the parent"), hold("job"):
        note()
    assert passed_on == []


def test_thread_of_an_own_command(caplog: pytest.LogCaptureFixture) -> None:
    """
    A command in a thread skips the lock that the same process holds.

    The log says that the process belongs to the run which holds the lock.
    """
    caplog.set_level(logging.INFO)
    inner = command()

    def outer() -> None:
        run_threads(1, lambda: call_command(inner()))

    by_command_line(command(outer))
    [skip] = [each for each in caplog.messages if "not acquired" in each]
    assert "a run that this process belongs to" in skip
    assert passed_on == []


def test_other_lock_of_this_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A child process may acquire a lock of the same name in another provider.

    If that lock is held, the skip is a usual one.
    """
    monkeypatch.setenv(HELD_BY_VARIABLE, take().locked_by)
    with override_settings(SHEDLOCK_PROVIDERS={"default": MEMORY, "other": MEMORY}):
        by_command_line(command(provider="other"))
        assert passed_on == [True]
        with held_elsewhere("job", provider="other"):
            by_command_line(command(provider="other"))
    assert passed_on == [True]


def test_lock_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old identity refuses nobody."""
    lock = take()
    lock.release()
    monkeypatch.setenv(HELD_BY_VARIABLE, lock.locked_by)
    by_command_line(command())
    assert passed_on == [True]


def test_lock_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A child process skips the kept lock of a run that is over.

    Nobody waits for that process, so the skip is a usual one.
    """
    lock = take(lock_at_least_for=timedelta(minutes=1))
    lock.release()
    monkeypatch.setenv(HELD_BY_VARIABLE, lock.locked_by)
    by_command_line(command())
    assert passed_on == []


def test_tick_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A child process skips a tick that its ancestor has run.

    While the ancestor still runs the tick, the child is refused.
    """
    seen: list[str] = []

    def body() -> None:
        seen.append(current_lock().locked_by)
        with pytest.raises(CommandError):
            run_threads(1, lambda: by_command_line(job))

    job = command(body, schedule="@yearly")
    by_command_line(job)
    monkeypatch.setenv(HELD_BY_VARIABLE, seen[0])
    by_command_line(job)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("holder", "is_inherited"),
    [
        (LockHolder("ours", HOUR), True),
        (LockHolder("ours", HOUR, datetime(2026, 1, 1, tzinfo=UTC)), True),
        (LockHolder("ours"), False),
        (LockHolder("ours", HOUR, has_ended=True), False),
        (LockHolder("our", HOUR), False),
        (LockHolder("", HOUR), False),
    ],
)
def test_holder_that_is_inherited(
    monkeypatch: pytest.MonkeyPatch, holder: LockHolder, is_inherited: bool
) -> None:
    """
    A holder is inherited if the environment names it and its run goes on.

    The environment must contain the holder's whole identity.
    """
    monkeypatch.setenv(HELD_BY_VARIABLE, "older  ours ")
    assert holder.is_inherited is is_inherited
    assert ("belongs to" in holder.reason) is is_inherited
    monkeypatch.delenv(HELD_BY_VARIABLE)
    assert not holder.is_inherited
