"""A skip that is an error: ``on_skip="fail"``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand

from django_shedlock import (
    InvalidLockConfiguration,
    LockNotAcquired,
    hold,
    scheduler_lock,
)
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.registry.jobs import Job, decorated_job
from django_shedlock.signals import lock_not_acquired
from django_shedlock.testing import held_elsewhere
from tests.support.jobs import DAILY, ran
from tests.support.locks import pause, take

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("no_other_jobs"),
]


@pytest.fixture
def skips() -> Iterator[list[str]]:
    """Return the names of the locks that were not acquired."""
    names: list[str] = []

    def note(configuration: Any, **kwargs: Any) -> None:
        names.append(configuration.name)

    lock_not_acquired.connect(note)
    yield names
    lock_not_acquired.disconnect(note)


def note() -> None:
    ran.append("done")


async def anote() -> None:
    note()


class Command(BaseCommand):
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        note()


def command(**options: Any) -> type[BaseCommand]:
    kind = type("Command", (Command,), {"__module__": __name__})
    return scheduler_lock("job", **options)(kind)


def test_skipped_function_raises(skips: list[str]) -> None:
    """The error names the lock, who holds it, for how long, and what helps."""
    job = scheduler_lock("job", on_skip="fail")(note)
    lock = take("job", lock_at_most_for="10m")
    with pytest.raises(LockNotAcquired) as refused:
        job()
    assert str(refused.value) == (
        f"Lock 'job' is held by {lock.locked_by}, for 10m more at the most. Its job "
        "did not run. Try again later, or give it `wait`."
    )
    assert (skips, ran) == (["job"], [])


def test_skipped_coroutine_function_raises(skips: list[str]) -> None:
    """The error comes when it is awaited."""
    job = scheduler_lock("job", on_skip="fail")(anote)
    with held_elsewhere("job"), pytest.raises(LockNotAcquired, match="Lock 'job' is"):
        asyncio.run(job())
    assert (skips, ran) == (["job"], [])


def test_skipped_command_raises(skips: list[str]) -> None:
    """A skip with on_skip="fail" raises CommandError with exit status 75."""
    kind = command(on_skip="fail")
    with held_elsewhere("job"), pytest.raises(CommandError, match="held") as refused:
        call_command(kind())
    assert refused.value.returncode == 75
    assert (skips, ran) == (["job"], [])


def test_own_command_ends_with_75(capsys: pytest.CaptureFixture[str]) -> None:
    """``manage.py`` prints the error once, and no line of the skip."""
    with held_elsewhere("job"), pytest.raises(SystemExit) as end:
        command(on_skip="fail")().run_from_argv(["manage.py", "job", "-v", "3"])
    assert end.value.code == 75
    error = capsys.readouterr().err
    assert error.startswith("CommandError: Lock 'job' is held by")
    assert error.count("\n") == 1


def test_skip_is_a_result_by_default() -> None:
    """``on_skip="skip"`` says so."""
    with held_elsewhere("job"):
        assert scheduler_lock("job", on_skip="skip")(note)() is None
        assert scheduler_lock("job")(note)() is None
    assert ran == []


def test_tick_that_has_run_is_a_normal_skip(skips: list[str]) -> None:
    """The work that the caller needs is done."""
    job = scheduler_lock("job", on_skip="fail", **DAILY)(note)
    job()
    job()
    call_command(command(on_skip="fail", **DAILY)())
    assert (skips, ran) == (["job", "job"], ["done"])


def test_free_lock_runs_the_job() -> None:
    """A job with on_skip="fail" runs if its lock is free, or held by the caller."""
    job = scheduler_lock("job", on_skip="fail")(note)
    job()
    with hold("job"):
        job()
    assert ran == ["done", "done"]


def test_start_by_name_answers_as_ever() -> None:
    """What starts jobs by name learns of the skip by the result."""
    locked = scheduler_lock("job", on_skip="fail")(note)
    kind = command(on_skip="fail")
    jobs = [Job("job", locked, decorated=decorated_job(locked)), decorated_job(kind)]
    with held_elsewhere("job"):
        assert [job and job.start() for job in jobs] == [False, False]
    assert [job and job.start() for job in jobs] == [True, True]


def test_pause_without_an_end_is_no_duration() -> None:
    """Nobody is told to wait for a hundred years."""
    job = scheduler_lock("job", on_skip="fail")(note)
    paused = pause("job", lasting=FOREVER)
    with pytest.raises(LockNotAcquired) as refused:
        job()
    assert str(refused.value) == (
        f"Lock 'job' is {paused.locked_by}, without an end. Its job does not run until "
        "somebody resumes it."
    )


@pytest.mark.parametrize("on_skip", ["raise", None, True, ["fail"]])
def test_wrong_value_is_refused(on_skip: Any) -> None:
    """The error comes when the job is decorated."""
    with pytest.raises(InvalidLockConfiguration) as refused:
        scheduler_lock("job", on_skip=on_skip)(note)
    assert str(refused.value) == (
        f'Lock \'job\': on_skip ({on_skip!r}) must be "skip" or "fail".'
    )
