"""A program that runs under a lock, as a child of this process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.core.management import CommandError

from django_shedlock.locks.lock import Lock
from django_shedlock.wrapper.inheritance import descriptors, environment
from django_shedlock.wrapper.launcher import (
    CANNOT_START,
    END,
    SIGNALLED,
    order,
)

LONGEST_WAIT = 60
"""Seconds after which the wait for a command starts again."""
LONGEST_ID = 32
INTERPRETER = [sys.executable, "-I", "-S"]
LAUNCHER = str(Path(__file__).with_name("launcher.py"))


@dataclass(frozen=True)
class Program:
    """
    A command, and how it runs.

    ``grace`` is the time between SIGTERM and SIGKILL. ``descriptors`` are the open
    files that it inherits beside the standard streams.
    """

    command: Sequence[str]
    grace: timedelta = timedelta(seconds=10)
    descriptors: Sequence[int] = ()


class Child:
    """
    A program with this process's own standard input, output and error.

    A ``launcher`` runs it: a small process that is sent the signals through a socket,
    and ends the program if the socket's other end, this process, has died.
    """

    def __init__(self, program: Program):
        has_terminal = _has_terminal()
        sent = order(
            [os.fsencode(argument) for argument in program.command],
            environment(),
            grace=program.grace.total_seconds(),
            has_terminal=has_terminal,
        )
        # Those that have been closed since may be connections to the store by now.
        inherited = {*program.descriptors}.intersection(descriptors())
        self._socket, theirs = socket.socketpair()
        with theirs:
            # The command is no argument: whoever kills processes by their command line
            # would kill the launcher as well, and nobody would end the rest.
            arguments = [LAUNCHER, str(theirs.fileno()), str(len(sent))]
            try:
                self._process = subprocess.Popen(  # noqa: S603
                    [*INTERPRETER, *arguments],
                    pass_fds=[*inherited, theirs.fileno()],
                    process_group=None if has_terminal else 0,
                )
            except OSError as error:
                self._socket.close()
                raise CommandError(
                    f"{program.command[0]}: {INTERPRETER[0]}, which would start it, "
                    f"can't be started: {error.strerror}",
                    returncode=CANNOT_START,
                ) from error
        self._send(sent)

    def wait(self) -> int:
        """
        Return its exit status as a shell does.

        After ``end()``, all that it has started has ended as well. An exception, as of
        a signal's handler, is raised only after that.
        """
        try:
            status = self._wait_for_process()
        except BaseException:
            self.wait()
            raise
        if status >= 0:
            return status
        self._kill_unguarded()
        return SIGNALLED - status

    def pass_on(self, number: int) -> bool:
        """Send it a signal that this process got; return whether it still runs."""
        return self._send(bytes([number]))

    def end(self) -> None:
        """Send SIGTERM, once, and SIGKILL to what still runs after the grace."""
        self._send(bytes([END]))

    def close(self) -> None:
        """Wait for it."""
        self.wait()
        self._socket.close()

    def _send(self, orders: bytes) -> bool:
        try:
            self._socket.sendall(orders)
        except OSError:  # it has ended
            return False
        return True

    def _wait_for_process(self) -> int:
        # Without a timeout, a signal that comes just before waitpid() would be handled
        # only when the command has ended.
        while True:
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(LONGEST_WAIT)

    def _kill_unguarded(self) -> None:
        # Somebody killed the launcher, which has told the id of what it started.
        with suppress(OSError, ValueError):
            os.kill(int(self._socket.recv(LONGEST_ID)), signal.SIGKILL)


@contextmanager
def ended_when_lost(lock: Lock, child: Child) -> Iterator[None]:
    """End the child, with all that it has started, as soon as the lock is lost."""
    with lock.watched_by(child.end):
        if lock.is_lost:
            child.end()
        yield


def _has_terminal() -> bool:
    # Standard input may be a pipe, or a file.
    try:
        os.close(os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
