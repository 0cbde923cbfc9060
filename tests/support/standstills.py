"""Processes that stand still for a while, or end, as a host that hangs or is lost."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tests.support.waiting import PATIENCE


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stop it for the time of the body, which begins when all its threads stand."""
    process.send_signal(signal.SIGSTOP)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it has ended: {process.args!r}"
        yield
    finally:
        process.send_signal(signal.SIGCONT)


class ServerProcess:
    """A server of the tests, or one of its members."""

    process: subprocess.Popen[bytes]
    port: int

    def end(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(PATIENCE)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let it do nothing, as a host that hangs."""
        with stopped(self.process):
            yield


@contextmanager
def gone(servers: Sequence[ServerProcess], *, killed: bool) -> Iterator[None]:
    """Kill them, or stop them for the time of the body."""
    with ExitStack() as stack:
        for server in servers:
            if killed:
                server.end()
            else:
                stack.enter_context(server.paused())
        yield
