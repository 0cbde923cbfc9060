"""``assert_skips()``: that a job is skipped, as a project's tests assert it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import BaseCommand, call_command

from django_shedlock import execute, hold, scheduler_lock
from django_shedlock.signals import lock_acquired, lock_not_acquired
from django_shedlock.testing import (
    assert_skips,
    held_elsewhere,
    locked_in_memory,
    run_as_if_at,
    unlocked,
)


@scheduler_lock("skips.job")
def job(number: int = 1, *, word: str = "ran") -> str:
    return word * number


@scheduler_lock("skips.ajob")
async def ajob() -> str:
    return "ran"


@scheduler_lock("skips.nightly", schedule="30 2 * * *")
def nightly() -> str:
    return "ran"


@scheduler_lock("skips.command")
class Nightly(BaseCommand):
    def handle(self, **options: Any) -> None:
        """Do nothing."""


def report(*parts: str, end: str) -> tuple[Any, ...]:
    """Call the job, as a view or a service does."""
    return (*parts, job(), end)


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with locked_in_memory():
        yield


def test_what_is_skipped_passes() -> None:
    """The caller's own result is returned, and arguments are passed on."""
    with held_elsewhere("skips.job"):
        assert assert_skips(job, 2, word="x") is None
        assert assert_skips(report, "a", "b", end="c") == ("a", "b", None, "c")
        with assert_skips():
            job()
            report(end="c")


def test_coroutine_is_awaited_in_the_block() -> None:
    """A coroutine is awaited inside the ``assert_skips()`` block."""

    async def body() -> None:
        async with held_elsewhere("skips.ajob"):
            with assert_skips():
                assert await ajob() is None

    asyncio.run(body())
    with pytest.raises(TypeError, match=r"ajob is a coroutine .* `with assert_skips"):
        assert_skips(ajob)


def test_tick_that_was_run_is_skipped() -> None:
    """A second host comes too late for the tick."""
    for tick in ("2026-03-02 02:30", "2026-03-03 02:30"):
        with run_as_if_at(tick):
            assert nightly() == "ran"
            assert_skips(nightly)


def test_command_that_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command's call is a call, too."""
    monkeypatch.setattr(
        "django.core.management.load_command_class", lambda *names: Nightly()
    )
    with held_elsewhere("skips.command"):
        assert_skips(call_command, "shedlock")
    with pytest.raises(AssertionError, match="'skips.command'"):
        assert_skips(call_command, "shedlock")


def test_what_ran_is_named() -> None:
    """The error names what was called, the lock, and what to do."""
    with pytest.raises(AssertionError) as failure:
        assert_skips(report, end="c")
    assert str(failure.value).startswith("report was to skip its job, but a job ran")
    assert "'skips.job'. Let another worker hold the lock" in str(failure.value)
    with held_elsewhere("skips.job"), pytest.raises(AssertionError) as failure:
        with assert_skips():
            job()
            execute(lambda: None, "another")
    assert "the block was to skip its job, but a job ran under lock 'another'" in str(
        failure.value
    )


def test_without_locks_nothing_is_skipped() -> None:
    """The error says which setting it is."""
    with unlocked(), pytest.raises(AssertionError, match="SHEDLOCK_ENABLED is off"):
        assert_skips(job)


def test_without_an_attempt_nothing_is_skipped() -> None:
    """A function without a lock, and a job inside its own lock, try none."""
    with pytest.raises(AssertionError, match="<lambda> tried no lock"):
        assert_skips(lambda: None)
    with hold("skips.job"), pytest.raises(AssertionError, match="holds its lock alr"):
        assert_skips(job)


def test_errors_pass_and_receivers_go() -> None:
    """What the block raises is no failure of the assertion; nothing is left behind."""
    before = len(lock_acquired.receivers), len(lock_not_acquired.receivers)

    def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        assert_skips(broken)
    with pytest.raises(ZeroDivisionError), assert_skips():
        broken()
    assert (len(lock_acquired.receivers), len(lock_not_acquired.receivers)) == before
