"""
Becomes another program: ``python launcher.py PARENT COMMAND [ARGS ...]``.

It is run by its path, and imports nothing of the package. On Linux the program gets
SIGTERM when its parent dies, see prctl(2). If the program can't be started, the exit
status is a shell's.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
CANNOT_START = 126
NOT_FOUND = 127
CHANGED_BY_PYTHON = ("SIGINT", "SIGPIPE", "SIGXFSZ")


def main(parent: int, command: list[str]) -> int:
    """Become the command; return an exit status if that is impossible."""
    for name in CHANGED_BY_PYTHON:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before it could be watched
        return 128 + signal.SIGTERM
    try:
        os.execvp(command[0], command)  # noqa: S606
    except FileNotFoundError:
        problem, status = "not found", NOT_FOUND
    except OSError as error:
        problem, status = str(error.strerror), CANNOT_START
    sys.stderr.write(f"{command[0]}: {problem}\n")
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
