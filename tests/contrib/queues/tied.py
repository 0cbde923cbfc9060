"""
Run a module in a process that a test starts: ``-m tests.contrib.queues.tied MODULE``.

The process ends itself, and what it started, when the test's end of its standard input
closes, however the test ends. It imports nothing of Django, which gevent has to patch
first.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading

import psutil


def kill_family(pid: int) -> None:
    """End the process, its group, and what it started."""
    for child in psutil.Process(pid).children(recursive=True):
        child.kill()  # RQ's forks have a group of their own
    os.killpg(pid, signal.SIGKILL)


def _end_with_the_test() -> None:
    # By its number: the file object's lock would be in the way of a normal end.
    os.read(0, 1)
    kill_family(os.getpid())


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
