"""Worker processes for tests: cheap to start, and always ended."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_pipes
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.synchronize import Barrier
from typing import Any, Generic, TypeVar, TypeVarTuple

from django.db import connections

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
Addresses = dict[str, dict[str, object]]
"""The settings by which to connect to each database, by alias."""

WAIT_LIMIT_SECONDS = 20
"""An event that takes longer counts as missing. No test waits for this to pass."""
HANG_LIMIT_SECONDS = 240
"""A worker that takes longer hangs: a slow machine starts it late, but not so late."""

# Workers are forked from a clean process: a fork of pytest would share its sockets and
# threads.
context: ForkServerContext = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["django_shedlock.testing.preload"])


class Parent:
    """The first argument of a worker's function: the worker's side of a pipe."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe

    def say(self, value: object) -> None:
        """Send something for which the test is waiting."""
        self._pipe.send(("said", value))

    def wait(self) -> Any:
        """Wait until the test sends something; return it."""
        if not self._pipe.poll(HANG_LIMIT_SECONDS):
            raise AssertionError("the test sent nothing")
        return self._pipe.recv()


class Worker(Generic[T]):
    """
    A process that runs one function and reports what it returns or raises.

    ``function`` gets a ``Parent`` and ``args``.
    """

    def __init__(self, function: Callable[[Parent, *Arguments], T], *args: *Arguments):
        self._pipe, theirs = context.Pipe()
        self.process: ForkServerProcess = context.Process(
            target=_run, args=(theirs, addresses(), function, args), daemon=True
        )
        self.process.start()
        theirs.close()

    def send(self, value: object = None) -> None:
        """Let the function's ``parent.wait()`` return this value."""
        self._pipe.send(value)

    def heard(self) -> Any:
        """Return what the function says next."""
        return self._next("said", HANG_LIMIT_SECONDS)

    def result(self, within: float = HANG_LIMIT_SECONDS) -> T:
        """
        Return what the function returned; fail with its traceback if it raised.

        Also fail if it has not ended ``within`` so many seconds.
        """
        returned: T = self._next("returned", within)
        return returned

    def _next(self, expected: str, within: float) -> Any:
        if not self._pipe.poll(within):
            raise AssertionError(f"{self.process.name} did not answer in time")
        outcome, value = self._pipe.recv()
        assert outcome == expected, value
        return value

    def last_words(self) -> str:
        """Return what a process that has ended reported, or its exit status."""
        with suppress(EOFError, OSError):
            if self._pipe.poll():
                return str(self._pipe.recv()[1])
        return f"exit status {self.process.exitcode}"

    def kill(self) -> None:
        """End the process at once, as the kernel or the loss of a host does."""
        self.process.kill()
        self.process.join(HANG_LIMIT_SECONDS)

    def stop(self) -> None:
        """Stop the process, as a long pause of the host does."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a stopped process go on."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """End the process if it still runs, and free its resources."""
        if self.process.is_alive():
            self.kill()
        self._pipe.close()
        self.process.close()

    def _signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)


@contextmanager
def workers(
    count: int, function: Callable[[Parent, *Arguments], T], *args: *Arguments
) -> Iterator[list[Worker[T]]]:
    """Run ``function`` in ``count`` processes at once; end them after the body."""
    started: list[Worker[T]] = []
    try:
        started += (Worker(function, *args) for _ in range(count))
        yield started
    finally:
        for worker in started:
            worker.end()


@contextmanager
def worker(
    function: Callable[[Parent, *Arguments], T], *args: *Arguments
) -> Iterator[Worker[T]]:
    """Run ``function`` in one process; end it after the body."""
    with workers(1, function, *args) as [started]:
        yield started


def race(
    count: int, function: Callable[[Parent, Barrier, *Arguments], T], *args: *Arguments
) -> list[T]:
    """
    Run ``function`` in ``count`` processes that meet; return what each returned.

    ``function`` gets a ``Parent``, the barrier at which they meet, and ``args``. The
    race ends with the first error in any of them: nobody waits for the others.
    """
    barrier = context.Barrier(count, timeout=WAIT_LIMIT_SECONDS)
    with workers(count, _take_part, barrier, function, args) as racers:
        running, returned = list(racers), {}
        while running:
            pipes = [racer._pipe for racer in running]
            ready = wait_for_pipes(pipes, HANG_LIMIT_SECONDS)
            assert ready, "the race did not end in time"
            for racer in racers:
                if racer._pipe in ready:
                    running.remove(racer)
                    returned[racer] = racer.result()
        return [returned[racer] for racer in racers]


def _take_part(
    parent: Parent, barrier: Barrier, function: Callable[..., T], args: tuple[Any, ...]
) -> T:
    barrier.wait(HANG_LIMIT_SECONDS)  # a slow machine starts some of them late
    return function(parent, barrier, *args)


def addresses() -> Addresses:
    """Return the databases of the test, which the settings do not name."""
    keys = ("NAME", "HOST", "PORT", "USER", "PASSWORD")
    databases = {alias: connections[alias].settings_dict for alias in connections}
    return {alias: {key: of[key] for key in keys} for alias, of in databases.items()}


def use(databases: Addresses) -> None:
    """Connect to these databases, in another process than the test's."""
    for alias, address in databases.items():
        connections[alias].settings_dict.update(address)


def _run(
    pipe: Connection,
    databases: Addresses,
    function: Callable[..., object],
    args: tuple[object, ...],
) -> None:
    use(databases)
    report: tuple[str, object]
    try:
        report = ("returned", function(Parent(pipe), *args))
    except BaseException:
        report = ("raised", traceback.format_exc())
    connections.close_all()
    pipe.send(report)
