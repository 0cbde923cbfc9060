"""Processes that stand still for a while, as on a host that hangs."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


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
