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
    END_ORDER,
    ShellStatus,
    status_of_signal,
)


class Child:
    """
    A command with this process's own standard input, output and error.

    A small process, the launcher, runs the command. It receives signals through a
    socket, and ends the command if this process, the other end of the socket, has died.
    ``grace`` is the time between SIGTERM and SIGKILL. ``files`` are file descriptors
    that the command inherits if they are still open. Raises ``CommandError`` if the
    launcher can't be started.
    """

    interpreter: ClassVar[list[str]] = [sys.executable, "-I", "-S"]
    launcher: ClassVar[str] = str(Path(__file__).with_name("launcher.py"))

    def __init__(
        self,
        command: Sequence[str],
        *,
        grace: timedelta,
        files: Iterable[int] = (),
    ):
        # Standard input says nothing: it may be a pipe or a file.
        has_terminal = False
        with suppress(OSError):
            os.close(os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY))
            has_terminal = True
        arguments = [os.fsencode(argument) for argument in command]
        seconds = grace.total_seconds()
        order = marshal.dumps((arguments, variables(), seconds, has_terminal))
        # If a file was closed since, its number may be a connection to the store now.
        inherited = set(files).intersection(inheritable_files())
        self._socket, theirs = socket.socketpair()
        with theirs:
            # The command is no argument of the launcher: `pkill -f COMMAND` would kill
            # the launcher as well, and nothing would end the rest.
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
                    returncode=ShellStatus.CANNOT_START,
                ) from error
        self._send(order)

    def wait(self) -> int:
        """
        Wait until the command has ended; return its exit status as a shell does.

        After ``end()``, also wait for all that the command has started. If the handler
        of a signal raises, wait first and raise then.
        """
        status = None
        while status is None:
            # Without a timeout, Python would handle a signal that comes just before
            # waitpid() only after the command has ended.
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
            return status_of_signal(-status)
        return status

    def pass_on(self, number: int) -> bool:
        """Send the command a signal of this process; return whether it still runs."""
        return self._send(bytes([number]))

    def end(self) -> None:
        """Send SIGTERM once, and SIGKILL to what still runs after the grace."""
        self._send(bytes([END_ORDER]))

    def close(self) -> None:
        """Wait until the command has ended, and free its resources."""
        self.wait()
        self._socket.close()

    def _send(self, orders: bytes) -> bool:
        with suppress(OSError):  # the launcher has ended
            self._socket.sendall(orders)
            return True
        return False


def variables(
    started_with_file: Path = Path("/proc/self/environ"),
) -> dict[bytes, bytes | None]:
    """
    Return the variables that Django changes as they were when this process started.

    ``None`` stands for a variable that was not set. If the system does not keep the
    environment in ``started_with_file``, only the ``TZ`` of the settings is removed.
    """
    try:
        entries = started_with_file.read_bytes().split(b"\0")
    except OSError:
        is_settings = os.environ.get("TZ") == settings.TIME_ZONE
        return {b"TZ": None} if is_settings else {}
    started_with = dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
    # manage.py, Python (PEP 538) and Django's settings set these.
    changed = (b"DJANGO_SETTINGS_MODULE", b"LC_CTYPE", b"TZ")
    return {name: started_with.get(name) for name in changed}


def inheritable_files(folder: str = "/dev/fd") -> set[int]:
    """
    Return the open file descriptors above 2 that a new program inherits.

    ``folder`` lists the descriptors of this process. Django's connections are left out,
    because MySQL's client lets its sockets be inherited. So call this before the
    package makes connections of its own.
    """
    numbers: set[int] = set()
    with suppress(OSError):
        numbers = {int(name) for name in os.listdir(folder)}  # noqa: PTH208
    numbers -= {0, 1, 2}
    for wrapper in connections.all(initialized_only=True):
        with suppress(Exception):  # each driver raises another error without a socket
            numbers.discard(wrapper.connection.fileno())
    inheritable = set()
    for number in numbers:
        with suppress(OSError):  # listing the folder opened this one
            if os.get_inheritable(number):
                inheritable.add(number)
    return inheritable
