"""
A program in a process forked from a warm one, which saves a second of imports.

Where a test is about what a process inherits, it needs a new interpreter instead.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from django.core.management import execute_from_command_line

from tests.support.processes import addresses, context, use
from tests.support.waiting import PATIENCE, wait_for


class Command:
    """
    A running ``manage.py``, with the methods of ``subprocess.Popen`` that tests need.

    Another ``program`` is a function that reads its arguments from ``sys.argv``.
    It has standard streams of its own. Before the command begins, the process calls
    each function of ``prepare``, to be configured or to be disturbed.
    """

    def __init__(
        self,
        *args: str,
        prepare: Sequence[Callable[[], Any]] = (),
        program: Callable[[], Any] = execute_from_command_line,
    ):
        stdin, self._input = context.Pipe(duplex=False)
        self._output, stdout = context.Pipe(duplex=False)
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        stderr = Connection(os.dup(errors.fileno()))
        theirs = [stdin, stdout, stderr]
        self.stdin = os.fdopen(self._input.fileno(), "w", closefd=False)
        self.stdout = os.fdopen(self._output.fileno(), closefd=False)
        self.stderr = errors
        self._process = context.Process(
            target=_become,
            args=(theirs, addresses(), prepare, program, args),
            daemon=True,
        )
        self._process.start()
        for stream in theirs:
            stream.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status; of a process that a signal ended, its negative number."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        """Return the exit status."""
        wait_for(lambda: self.returncode is not None, timeout)
        assert self.returncode is not None
        return self.returncode

    def communicate(
        self, stdin: str = "", timeout: float = PATIENCE
    ) -> tuple[str, str]:
        """Write what it gets, a few lines; return its output and errors at its end."""
        with suppress(BrokenPipeError):
            self.stdin.write(stdin)
            self.stdin.flush()
        self._input.close()
        with killed_after(timeout, self):
            output = self.stdout.read()
        self.wait(timeout)
        self.stderr.seek(0)
        return output, self.stderr.read()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Leave no process behind."""
        self.kill()
        self._process.join()
        self._process.close()
        with suppress(OSError):  # what nobody was left to read
            self.stdin.close()
        self._input.close()
        self.stdout.close()
        self._output.close()
        self.stderr.close()


@contextmanager
def killed_after(timeout: float, process: Any) -> Iterator[None]:
    """Kill the process if the body lasts longer: what reads from it then ends."""
    over = threading.Event()

    def kill_in_the_end() -> None:
        try:
            wait_for(over.is_set, timeout, pause=0.05)
        except AssertionError:
            process.kill()

    threading.Thread(target=kill_in_the_end, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _become(
    streams: list[Connection],
    databases: dict[str, dict[str, Any]],
    prepare: Sequence[Callable[[], Any]],
    program: Callable[[], Any],
    args: tuple[str, ...],
) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    sys.argv = ["manage.py", *args]
    use(databases)
    for function in prepare:
        function()
    program()
