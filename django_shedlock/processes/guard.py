"""
Two small programs that ``shedlock run`` starts for its command.

``become`` reports what to signal, and becomes the command. ``watch`` reads that report,
and ends the command if ``shedlock run`` dies. They are run by the path of this file,
which imports nothing of the package, and nothing that loads slowly.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum

LOOK_INTERVAL_SECONDS = 0.2
"""The time between two looks at a process that may have ended, or has to be ended."""


class ShellStatus(IntEnum):
    """The exit statuses of a shell for a command that it could not run."""

    CANNOT_START = 126
    NOT_FOUND = 127


def become(report: int, locale: str, *command: str) -> int:
    """
    Replace this process by the command; return an exit status if that fails.

    ``report`` is a pipe. ``locale`` is the command's ``LC_CTYPE``, which Python changes
    (PEP 538). Until now all signals are blocked, since nobody could handle them.
    """
    environment = {**os.environ, "LC_CTYPE": locale}
    if not locale:
        del environment["LC_CTYPE"]
    try:
        # The command starts after the report, so the guard can always end it.
        pid = os.getpid()
        os.write(report, b"%d" % (-pid if os.getpgrp() == pid else pid))
        os.set_inheritable(report, False)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
            signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        _execute(command, environment)
    except (FileNotFoundError, NotADirectoryError):
        status, reason = ShellStatus.NOT_FOUND, "not found"
    except OSError as error:
        status, reason = ShellStatus.CANNOT_START, os.strerror(error.errno or 0)
    os.write(2, os.fsencode(f"{command[0]}: {reason}\n"))
    return status


def _execute(command: tuple[str, ...], environment: Mapping[str, str]) -> None:
    problem: OSError = FileNotFoundError(errno.ENOENT, "not found")
    has_path = "/" in command[0]
    for folder in [""] if has_path else os.get_exec_path(environment):
        path = os.path.join(folder, command[0])  # noqa: PTH118
        try:
            os.execve(path, command, environment)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            if error.errno == errno.ENOEXEC:  # a script without a "#!" line
                script = ["sh", path, *command[1:]]
                os.execve("/bin/sh", script, environment)  # noqa: S606
            problem = error
    raise problem


def watch(report: int, kill_after: float) -> None:
    """
    Wait until nobody can write to the pipe any more; then end what was reported.

    ``kill_after`` is the time between SIGTERM and SIGKILL in seconds.
    """
    reported = b""
    while part := os.read(report, 32):
        reported += part
    with suppress(ProcessLookupError, PermissionError):
        if target := int(reported or 0):
            os.kill(target, signal.SIGTERM)
            os.kill(target, signal.SIGCONT)  # a stopped process can't tidy up
            killing_at = time.monotonic() + kill_after
            while time.monotonic() < killing_at:
                os.kill(target, 0)
                time.sleep(LOOK_INTERVAL_SECONDS)
            os.kill(target, signal.SIGKILL)


if __name__ == "__main__":
    program, descriptor, *arguments = sys.argv[1:]
    if program == "watch":
        watch(int(descriptor), float(arguments[0]))
    else:
        sys.exit(become(int(descriptor), *arguments))
