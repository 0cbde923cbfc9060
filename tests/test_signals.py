"""The signals, what they tell, and the log lines that hang on them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError
from typing import Any, NoReturn

import pytest
from django.dispatch import Signal
from django.test import override_settings

from django_shedlock import Lock, aexecute, execute, hold, signals
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers import get_provider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.testing import (
    force_release,
    held_elsewhere,
    is_held,
    locked_in_memory,
)
from tests.support.leases import end_lease
from tests.support.locks import Broken, status_of

SIGNALS: dict[str, Signal] = {
    "acquired": signals.lock_acquired,
    "not_acquired": signals.lock_not_acquired,
    "extended": signals.lock_extended,
    "lost": signals.lock_lost,
    "released": signals.lock_released,
}

Story = list[tuple[str, dict[str, Any]]]


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with locked_in_memory():
        yield


@contextmanager
def connected(signal: Signal, receiver: Callable[..., Any]) -> Iterator[None]:
    signal.connect(receiver)
    try:
        yield
    finally:
        signal.disconnect(receiver)


@pytest.fixture
def story() -> Iterator[Story]:
    """Each signal that was sent, with its arguments."""
    told: Story = []

    def recorder(name: str) -> Callable[..., None]:
        return lambda **kwargs: told.append((name, kwargs))

    receivers = {name: recorder(name) for name in SIGNALS}
    for name, receiver in receivers.items():
        SIGNALS[name].connect(receiver)
    yield told
    for name, receiver in receivers.items():
        SIGNALS[name].disconnect(receiver)


def break_off(**kwargs: Any) -> NoReturn:
    raise Broken("on purpose")


def names(story: Story) -> list[str]:
    return [name for name, _ in story]


def told(story: Story, name: str) -> dict[str, Any]:
    """Return the arguments of the only signal of this name, but for ``signal``."""
    [arguments] = [kwargs for told, kwargs in story if told == name]
    return {key: value for key, value in arguments.items() if key != "signal"}


def test_job_that_ends_well(story: Story) -> None:
    """A job tells that it has the lock, and that it gave it back."""
    with hold("job") as lock:
        assert names(story) == ["acquired"]
    assert names(story) == ["acquired", "released"]
    assert told(story, "acquired") == {"sender": type(lock.provider), "lock": lock}
    assert told(story, "released") == {
        "sender": type(lock.provider),
        "lock": lock,
        "released": True,
        "exception": None,
    }


def test_job_that_fails(story: Story) -> None:
    """Receivers of lock_released learn what ended the body."""
    with pytest.raises(Broken) as caught:
        execute(break_off, "job")
    assert told(story, "released")["exception"] is caught.value


def test_skip(story: Story) -> None:
    """A skip tells what was asked for, of which provider, and who holds it."""
    with held_elsewhere("job"):
        execute(break_off, "job", lock_at_most_for="9m")
    arguments = told(story, "not_acquired")
    assert issubclass(arguments.pop("sender"), MemoryLockProvider)
    assert arguments.pop("provider") is get_provider()
    configuration = arguments.pop("configuration")
    assert (configuration.name, configuration.lease) == ("job", "9m")
    assert isinstance(arguments.pop("holder"), LockHolder)
    assert arguments == {"caller": None}


def test_receiver_can_not_change_the_holder(story: Story) -> None:
    """All receivers and the caller are given one holder, so it stays as it is."""
    with held_elsewhere("job"):
        execute(break_off, "job")
    holder = told(story, "not_acquired")["holder"]
    with pytest.raises(FrozenInstanceError):
        holder.locked_by = "a receiver"
    assert names(story) == ["not_acquired"]


def test_wait_is_told_once(story: Story) -> None:
    """However often somebody asks who waits, it is one skip at the end."""
    with held_elsewhere("job"):
        execute(break_off, "job", wait="200ms")
    assert names(story) == ["not_acquired"]


def test_extension(story: Story) -> None:
    """An extension tells which lock it was."""
    with hold("job") as lock:
        lock.extend("2m")
    assert names(story) == ["acquired", "extended", "released"]
    assert told(story, "extended") == {"sender": type(lock.provider), "lock": lock}


def test_loss(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    """A body that overran its lease is a warning, once, and its release False."""
    with hold("job", lock_at_most_for="9m") as lock:
        end_lease(lock)
        assert lock.release() is False
    assert names(story) == ["acquired", "lost", "released"]
    assert told(story, "lost") == {"sender": type(lock.provider), "lock": lock}
    assert told(story, "released")["released"] is False
    [warning] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert f"'job' lost by {lock.locked_by}: its lease of 9m ended" in warning


def test_reentry_is_silent(story: Story) -> None:
    """Inside its own lock nothing is acquired or released."""
    with hold("job"):
        story.clear()
        with hold("job"):
            pass
        assert story == []


@override_settings(SHEDLOCK_ENABLED=False)
def test_disabled_locks_are_silent(story: Story) -> None:
    """What is not locked tells of no locks."""
    with hold("job"):
        pass
    assert story == []


def test_async_jobs_tell_the_same(story: Story) -> None:
    """The signals of an async job have the same arguments."""

    async def body() -> None:
        break_off()

    with pytest.raises(Broken) as caught:
        asyncio.run(aexecute(body, "job"))
    with held_elsewhere("other"):
        asyncio.run(aexecute(body, "other"))
    assert names(story) == ["acquired", "released", "not_acquired"]
    assert told(story, "released")["exception"] is caught.value
    assert told(story, "not_acquired")["provider"] is get_provider()
    assert set(told(story, "not_acquired")) == {
        *("sender", "configuration", "holder", "provider", "caller")
    }


def test_async_receivers_are_awaited() -> None:
    """A receiver may be a coroutine function, for sync and async jobs."""
    heard: list[Lock] = []

    async def receiver(*, lock: Lock, **kwargs: Any) -> None:
        await asyncio.sleep(0)
        heard.append(lock)

    async def body() -> None: ...

    with connected(signals.lock_acquired, receiver):
        execute(lambda: None, "sync")
        asyncio.run(aexecute(body, "async"))
    assert [lock.name for lock in heard] == ["sync", "async"]


def play() -> int:
    """Let every signal be sent; return what the job returned."""
    with held_elsewhere("other"):
        execute(break_off, "other")

    def body() -> int:
        with hold("inner") as lock:
            lock.extend("2m")
            force_release("inner")
        return 7

    value = execute(body, "job").value
    assert value is not None
    return value


@pytest.mark.parametrize("name", SIGNALS)
def test_raising_receiver_does_not_break_a_job(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A receiver's error is logged by Django, and the job and its release go on."""
    with connected(SIGNALS[name], break_off):
        assert play() == 7
    assert not is_held("job")
    assert any(
        record.exc_info and isinstance(record.exc_info[1], Broken)
        for record in caplog.records
    )


def test_raising_receiver_does_not_break_an_async_job() -> None:
    """A raising receiver doesn't break an async job, which releases its lock."""

    async def body() -> int:
        return 7

    with connected(signals.lock_acquired, break_off):
        with connected(signals.lock_released, break_off):
            assert asyncio.run(aexecute(body, "job")).value == 7
    assert not is_held("job")


def test_skip_is_logged_at_info_and_prints_nothing(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Cron mails what is printed, so a skip is a line in the log only."""
    with caplog.at_level(logging.INFO, "django_shedlock"), held_elsewhere("job"):
        status = status_of(get_provider(), "job")
        execute(break_off, "job")
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
        (
            "django_shedlock",
            "INFO",
            f"Lock 'job' not acquired: held by {status.locked_by}.",
        )
    ]
    assert capfd.readouterr() == ("", "")


def test_job_that_runs_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    """A run by the plan is of interest only to who looks for it."""
    with caplog.at_level(logging.DEBUG, "django_shedlock"), hold("job") as lock:
        lock.extend("2m")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("DEBUG", f"Lock 'job' acquired as {lock.locked_by}."),
        ("DEBUG", f"Lock 'job' extended by {lock.locked_by}."),
        ("DEBUG", f"Lock 'job' released by {lock.locked_by}."),
    ]


def test_release_of_a_lost_lock_is_not_logged_as_a_release(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The warning says what happened; nothing says that the lock was given back."""
    with caplog.at_level(logging.DEBUG, "django_shedlock"), hold("job"):
        force_release("job")
    assert [r.levelname for r in caplog.records] == ["DEBUG", "WARNING"]


class Raising(logging.Handler):
    """Raises, as a handler does whose server is gone."""

    def __init__(self, error: BaseException):
        super().__init__()
        self.error = error

    def emit(self, record: logging.LogRecord) -> NoReturn:
        raise self.error


@contextmanager
def logging_to(handler: logging.Handler) -> Iterator[None]:
    signals.logger.logger.addHandler(handler)
    try:
        yield
    finally:
        signals.logger.logger.removeHandler(handler)


def test_handler_that_raises_breaks_no_job(capsys: pytest.CaptureFixture[str]) -> None:
    """What it raised is printed, as Python's own handlers print their errors."""
    with logging_to(Raising(Broken("no server"))):
        with hold("job") as lock:
            force_release("job")
        assert lock.is_lost
    assert "Broken: no server" in capsys.readouterr().err


def test_interrupt_while_something_is_logged_is_no_error() -> None:
    """Ctrl-C ends what it should end."""
    with logging_to(Raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        signals.logger.warning("slow")


def test_log_names_the_place_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    """A log record names the function that logs, not the guard around the logger."""
    signals.logger.warning("here")
    signals.logger.log(logging.WARNING, "and here")
    try:
        raise Broken
    except Broken:
        signals.logger.exception("and there")
    names = {record.funcName for record in caplog.records}
    assert names == {"test_log_names_the_place_that_logs"}
    assert caplog.records[-1].exc_info
