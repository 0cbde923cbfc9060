"""Worker processes for tests: cheap to start, and always ended."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from django.db import connections

WAIT_LIMIT_SECONDS = 240
"""What has not happened by then never will. No test waits for them to pass."""

# Forked from a clean process: a fork of pytest would share its sockets and threads.
context: Any = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["django_shedlock.testing.preload"])


class Parent:
    """What a worker's function gets first: how to talk to the test."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe

    def say(self, value: Any) -> None:
        """Send something that the test is waiting for."""
        self._pipe.send(("said", value))

    def wait(self) -> Any:
        """Wait until the test sends something; return it."""
        if not self._pipe.poll(WAIT_LIMIT_SECONDS):
            raise AssertionError("the test sent nothing")
        return self._pipe.recv()


class Worker:
    """A process that runs one function and reports what it returns or raises."""

    def __init__(self, function: Callable[..., Any], *args: Any):
        self._pipe, theirs = context.Pipe()
        self.process: Any = context.Process(
            target=_run, args=(theirs, addresses(), function, args), daemon=True
        )
        self.process.start()
        theirs.close()

    def send(self, value: Any = None) -> None:
        """Let the function's ``parent.wait()`` return."""
        self._pipe.send(value)

    def heard(self) -> Any:
        """Return what the function says next."""
        return self._next("said")

    def result(self) -> Any:
        """Return what the function returned; fail with its traceback if it raised."""
        return self._next("returned")

    def _next(self, expected: str) -> Any:
        if not self._pipe.poll(WAIT_LIMIT_SECONDS):
            raise AssertionError(f"{self.process.name} did not answer in time")
        outcome, value = self._pipe.recv()
        assert outcome == expected, value
        return value

    def last_words(self) -> str:
        """Return what an ended process reported, or its exit status."""
        with suppress(EOFError, OSError):
            if self._pipe.poll():
                return str(self._pipe.recv()[1])
        return f"exit status {self.process.exitcode}"

    def kill(self) -> None:
        """End the process at once, as the kernel or a lost host does."""
        self.process.kill()
        self.process.join(WAIT_LIMIT_SECONDS)

    def stop(self) -> None:
        """Stop the process, as a long pause of its host does."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a stopped process go on."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Leave no process behind."""
        if self.process.is_alive():
            self.kill()
        self._pipe.close()
        self.process.close()

    def _signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)


@contextmanager
def workers(
    count: int, function: Callable[..., Any], *args: Any
) -> Iterator[list[Worker]]:
    """Run ``function`` in that many processes at once."""
    started: list[Worker] = []
    try:
        started += (Worker(function, *args) for _ in range(count))
        yield started
    finally:
        for worker in started:
            worker.end()


@contextmanager
def worker(function: Callable[..., Any], *args: Any) -> Iterator[Worker]:
    """Run ``function`` in one process."""
    with workers(1, function, *args) as [started]:
        yield started


def addresses() -> dict[str, dict[str, Any]]:
    """Return the databases of the test, which the settings do not name."""
    keys = ("NAME", "HOST", "PORT", "USER", "PASSWORD")
    databases = {alias: connections[alias].settings_dict for alias in connections}
    return {alias: {key: of[key] for key in keys} for alias, of in databases.items()}


def use(databases: dict[str, dict[str, Any]]) -> None:
    """Connect to these databases, in another process than that of the test."""
    for alias, address in databases.items():
        connections[alias].settings_dict.update(address)


def _run(
    pipe: Connection,
    databases: dict[str, dict[str, Any]],
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    use(databases)
    try:
        report = ("returned", function(Parent(pipe), *args))
    except BaseException:
        report = ("raised", traceback.format_exc())
    connections.close_all()
    pipe.send(report)
