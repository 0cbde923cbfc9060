"""How long calls take, while this process is awake, and who ends those that hang."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

from django.db import OperationalError, connections

from benchmarks.soak.journal import Journal

LONGEST_CALL = 60.0
"""Seconds for which a call of the library may take, whatever the network does: two
connections that open, two statements on each, and waits for a row."""

PATIENCE = 6.0
"""Seconds after which a job gives up its own statement: the library can't know them."""

WORTH_TELLING = 0.2
"""Seconds from which on the journal has a call."""

LOOK = 0.05
PACKAGE = "/django_shedlock/"
HUNG = 3
"""The exit status of a process in which a call hangs."""


class Watch:
    """
    A thread that counts the time in which this process is awake.

    While the process is stopped, or the machine stands still, no time passes: a call
    that took long because of that is not to blame.
    """

    def __init__(self, journal: Journal):
        self.awake = 0.0
        self._journal = journal
        self._calls: dict[int, tuple[str, float]] = {}
        self._own: dict[int, tuple[Any, float]] = {}
        remember_sockets()
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Measure a call of the library."""
        me, began = threading.get_ident(), self.awake
        self._calls[me] = (name, began)
        try:
            yield
        finally:
            # A signal may have interrupted the inner one before it put it back.
            _, began = self._calls.pop(me, (name, began))
            if (took := self.awake - began) > WORTH_TELLING:
                self._journal.write("call", name=name, took=took)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the body of a call not count."""
        me, began = threading.get_ident(), self.awake
        call = self._calls.pop(me, None)
        try:
            yield
        finally:
            if call is not None:
                self._calls[me] = (call[0], call[1] + self.awake - began)

    @contextmanager
    def own_statements(self) -> Iterator[None]:
        """
        Give up the job's own connection if a statement on it has no answer.

        Django does not translate what the driver raises while it closes a cursor.
        """
        me = threading.get_ident()
        self._own[me] = (connections["default"], self.awake + PATIENCE)
        try:
            yield
        except connections["default"].Database.Error as error:
            raise OperationalError(*error.args) from error
        finally:
            self._own.pop(me, None)

    def _run(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(LOOK)
            now = time.monotonic()
            self.awake += min(now - before, 2 * LOOK)
            before = now
            self._look()

    def _look(self) -> None:
        for thread, (connection, until) in list(self._own.items()):
            if until < self.awake and thread in self._own:
                self._own[thread] = (connection, self.awake + PATIENCE)
                hang_up(connection)
        for name, began in list(self._calls.values()):
            if self.awake - began > LONGEST_CALL:
                self._journal.write("hang", name=name, where=[*stacks_of_library()])
                os._exit(HUNG)


def stacks_of_library() -> Iterator[str]:
    """Return where the threads are that the library keeps."""
    for frame in sys._current_frames().values():
        stack = traceback.extract_stack(frame)
        inside = [f for f in stack if PACKAGE in f.filename]
        if inside and frame.f_code.co_filename != __file__:
            yield "".join(traceback.format_list([*inside, stack[-1]]))


def end_with_parent() -> None:
    """Let this process end when the one ends that started it, however that ends."""
    parent = os.getppid()

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def remember_sockets() -> None:
    """Let each connection know its socket: MySQL's driver tells nothing later on."""
    backend = type(connections["default"])
    connect = backend.get_new_connection

    def connect_and_remember(wrapper: Any, parameters: Any) -> Any:
        connection = connect(wrapper, parameters)
        if hasattr(connection, "fileno"):  # no database in a file
            wrapper.soak_socket = connection.fileno()
        return connection

    patch.object(backend, "get_new_connection", connect_and_remember).start()


def hang_up(connection: Any) -> None:
    """End the connection, as a timeout of the driver would."""
    number = getattr(connection, "soak_socket", None)
    if number is None or connection.connection is None:
        return
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as waiting:
        waiting.shutdown(socket.SHUT_RDWR)
