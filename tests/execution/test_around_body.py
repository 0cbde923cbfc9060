"""What integrations put around the bodies of jobs: ``signals.around_body``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from django_shedlock import Lock, aexecute, execute
from django_shedlock.locks.status import LockState
from django_shedlock.providers import get_provider
from django_shedlock.signals import around_body
from django_shedlock.testing import locked_in_memory
from tests.support.locks import Broken

events: list[str] = []
"""What happened around the body, and in it."""


class Integration:
    """Notes when it is entered and left, and raises where the test wants."""

    def __init__(self, name: str, fails_at: str = ""):
        self.name, self.fails_at = name, fails_at

    def __call__(self, lock: Lock) -> Integration:
        self._note("call")
        return self

    def __enter__(self) -> None:
        self._note("enter")

    def __exit__(self, *error: Any) -> None:
        self._note("exit")

    def _note(self, event: str) -> None:
        if event == self.fails_at:
            raise Broken(f"{self.name} fails at {event}")
        if event != "call":
            events.append(f"{self.name} {event}")


@pytest.fixture(autouse=True)
def integrations(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each test put its own integrations around the bodies."""
    events.clear()
    before = around_body[:]
    around_body.clear()
    with locked_in_memory():
        yield
    around_body[:] = before


def body() -> int:
    events.append("body")
    return 7


def execute_in_loop() -> Any:
    async def abody() -> int:
        return body()

    return asyncio.run(aexecute(abody, "job", lock_at_most_for="1m"))


def execute_at_once() -> Any:
    return execute(body, "job", lock_at_most_for="1m")


@pytest.mark.parametrize("run", [execute_at_once, execute_in_loop])
def test_two_integrations_at_once(run: Any) -> None:
    """The body runs inside both: the first of the list is the outermost."""
    around_body.extend([Integration("a"), Integration("b")])
    assert run().value == 7
    assert events == ["a enter", "b enter", "body", "b exit", "a exit"]


@pytest.mark.parametrize("run", [execute_at_once, execute_in_loop])
@pytest.mark.parametrize("broken", [0, 1], ids=["outside", "inside"])
@pytest.mark.parametrize(
    ("fails_at", "told"),
    [
        ("call", "so the job runs without it"),
        ("enter", "so the job runs without it"),
        ("exit", "failed at the end of the job"),
    ],
)
def test_integration_that_raises_breaks_no_job(
    run: Any,
    broken: int,
    fails_at: str,
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The job runs, the other integration is entered and left, and the log says why."""
    around_body.append(Integration("sound"))
    around_body.insert(broken, Integration("broken", fails_at))
    assert run().value == 7
    sound = [event for event in events if event != "broken enter"]
    assert sound == ["sound enter", "body", "sound exit"]
    assert ("broken enter" in events) is (fails_at == "exit")
    [record] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert told in record.getMessage()
    assert f"broken fails at {fails_at}" in caplog.text
    assert get_provider().status("job").state is LockState.FREE


@pytest.mark.parametrize("broken", [0, 1], ids=["outside", "inside"])
def test_exception_of_the_body_passes_an_integration_that_raises(broken: int) -> None:
    """The caller gets what the body raised, not what the integration raised."""
    around_body.append(Integration("sound"))
    around_body.insert(broken, Integration("broken", "exit"))
    with pytest.raises(ZeroDivisionError):
        execute(lambda: 1 / 0, "job", lock_at_most_for="1m")
    assert "sound exit" in events


def test_integration_can_not_suppress_the_exception_of_the_body() -> None:
    """A failed job stays a failed job."""

    class Suppressing(Integration):
        def __exit__(self, *error: Any) -> bool:  # type: ignore[override]
            return True

    around_body.append(Suppressing("suppressing"))
    with pytest.raises(ZeroDivisionError):
        execute(lambda: 1 / 0, "job", lock_at_most_for="1m")


def test_exception_that_an_integration_raises_again_is_no_failure_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is logged about a context manager that lets the exception through."""

    class Passing(Integration):
        def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
            raise error

    around_body.append(Passing("passing"))
    with pytest.raises(ZeroDivisionError):
        execute(lambda: 1 / 0, "job", lock_at_most_for="1m")
    assert "passing" not in caplog.text
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_interruption_of_an_integration_leaves_the_others() -> None:
    """Ctrl-C while an integration is entered ends the job, and leaves nothing open."""

    @contextmanager
    def interrupted(lock: Lock) -> Iterator[None]:
        raise KeyboardInterrupt
        yield

    around_body.extend([Integration("a"), interrupted])
    with pytest.raises(KeyboardInterrupt):
        execute(body, "job", lock_at_most_for="1m")
    assert events == ["a enter", "a exit"]
    assert get_provider().status("job").state is LockState.FREE
