"""A command that runs as a child of this process, and what it inherits."""

import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from django.conf import settings
from django.core.management import CommandError
from django.db import connections

from django_shedlock.processes.launcher import (
    CANNOT_START_STATUS,
    END_ORDER,
    SIGNAL_STATUS_BASE,
)

ENVIRONMENT_FILE = Path("/proc/self/environ")
DESCRIPTORS_FOLDER = "/dev/fd"


class Child:
    """
    A command with this process's own standard input, output and error.

    A small process, the launcher, runs it. It is sent the signals through a socket, and
    ends the command if the other end of the socket, this process, has died. ``grace``
    is the time between SIGTERM and SIGKILL. The command inherits ``files`` that are
    still open.
    """

    interpreter: ClassVar[list[str]] = [sys.executable, "-I", "-S"]
    launcher: ClassVar[str] = str(Path(__file__).with_name("launcher.py"))

    def __init__(
        self,
        command: Sequence[str],
        *,
        grace: timedelta = timedelta(seconds=10),
        files: Iterable[int] = (),
    ):
        # Standard input may be a pipe, or a file.
        has_terminal = False
        with suppress(OSError):
            os.close(os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY))
            has_terminal = True
        arguments = [os.fsencode(argument) for argument in command]
        seconds = grace.total_seconds()
        order = marshal.dumps((arguments, variables(), seconds, has_terminal))
        # A file that has been closed since may be a connection to the store by now.
        inherited = set(files).intersection(inheritable_files())
        self._socket, theirs = socket.socketpair()
        with theirs:
            # The command is no argument: `pkill -f COMMAND` would kill the launcher as
            # well, and nobody would end the rest.
            launcher = [self.launcher, str(theirs.fileno()), str(len(order))]
            try:
                self.process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603
                    [*self.interpreter, *launcher],
                    pass_fds=[*inherited, theirs.fileno()],
                    process_group=None if has_terminal else 0,
                )
            except OSError as error:
                self._socket.close()
                raise CommandError(
                    f"{command[0]}: {self.interpreter[0]}, which would start it, can't "
                    f"be started: {error.strerror}",
                    returncode=CANNOT_START_STATUS,
                ) from error
        self._send(order)

    def wait(self) -> int:
        """
        Return its exit status as a shell does.

        After ``end()``, all that it has started has ended as well. What a signal's
        handler raises is raised only after that.
        """
        status = None
        while status is None:
            # Without a timeout, a signal that comes just before waitpid() would be
            # handled only when the command has ended.
            try:
                status = self.process.wait(60)
            except subprocess.TimeoutExpired:
                continue
            except BaseException:
                self.wait()
                raise
        if status < 0:  # the launcher was killed; it has sent what to kill
            with suppress(OSError, ValueError):
                os.kill(int(self._socket.recv(32)), signal.SIGKILL)
            return SIGNAL_STATUS_BASE - status
        return status

    def pass_on(self, number: int) -> bool:
        """Send it a signal that this process got; return whether it still runs."""
        return self._send(bytes([number]))

    def end(self) -> None:
        """Send SIGTERM, once, and SIGKILL to what still runs after the grace."""
        self._send(bytes([END_ORDER]))

    def close(self) -> None:
        """Wait for it."""
        self.wait()
        self._socket.close()

    def _send(self, orders: bytes) -> bool:
        with suppress(OSError):  # it has ended
            self._socket.sendall(orders)
            return True
        return False


def variables() -> dict[bytes, bytes | None]:
    """
    Return the variables that Django changes as they were at this process's start.

    ``None`` stands for one that was not set. Where the system does not keep them, only
    the ``TZ`` of the settings is removed.
    """
    try:
        entries = ENVIRONMENT_FILE.read_bytes().split(b"\0")
    except OSError:
        is_settings = os.environ.get("TZ") == settings.TIME_ZONE
        return {b"TZ": None} if is_settings else {}
    started_with = dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
    # manage.py, Python (PEP 538) and Django's settings set these.
    changed = (b"DJANGO_SETTINGS_MODULE", b"LC_CTYPE", b"TZ")
    return {name: started_with.get(name) for name in changed}


def inheritable_files() -> set[int]:
    """
    Return the open file descriptors above 2 that a new program inherits.

    Without Django's connections: MySQL's client lets its sockets be inherited. So call
    it before the package makes connections of its own.
    """
    numbers: set[int] = set()
    with suppress(OSError):
        numbers = {int(name) for name in os.listdir(DESCRIPTORS_FOLDER)}  # noqa: PTH208
    numbers -= {0, 1, 2}
    for wrapper in connections.all(initialized_only=True):
        with suppress(Exception):  # no socket, or closed, for which each driver differs
            numbers.discard(wrapper.connection.fileno())
    inheritable = set()
    for number in numbers:
        with suppress(OSError):  # the one with which they were listed
            if os.get_inheritable(number):
                inheritable.add(number)
    return inheritable
