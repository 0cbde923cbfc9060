"""Run bodies in forked processes, a few at once."""

import signal
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TypeVarTuple

from django_shedlock.processes.child import BODY_SIGNALS, Child, reap_orphans
from django_shedlock.processes.guard import LOOK_INTERVAL_SECONDS
from django_shedlock.processes.process_signals import ProcessSignals
from django_shedlock.signals import logger

Arguments = TypeVarTuple("Arguments")


class Bodies:
    """
    Runs bodies in processes that are forked from this one, at most ``most`` at once.

    The others wait for their turn, in the order in which they were added. Each body has
    a key. It waits for the end of a running body with the same key, and replaces a
    waiting one. After SIGTERM or SIGINT nothing more starts. Each of these signals ends
    a ``wait()``.
    """

    def __init__(self, most: int):
        self._most = most
        self.signals: ProcessSignals = ProcessSignals(BODY_SIGNALS)
        self._waiting: dict[str, Callable[[], object]] = {}
        self._running: dict[str, Child] = {}

    @property
    def is_ending(self) -> bool:
        """Whether a signal has come."""
        return bool(self.signals.received)

    def add(
        self, key: str, body: Callable[[*Arguments], object], *arguments: *Arguments
    ) -> None:
        """Call the body with these arguments as soon as there is room."""
        self._waiting[key] = partial(body, *arguments)

    def wait(self, seconds: float) -> None:
        """
        Start the bodies for which there is room, and wait.

        The wait ends after ``seconds``, and sooner at a signal or the end of a body.
        """
        for key in [key for key in self._waiting if key not in self._running]:
            if len(self._running) < self._most and not self.is_ending:
                self._start(key)
        self.signals.wait(seconds)
        for key, child in list(self._running.items()):
            if not child.is_running():
                if child.killed_by is not None:  # memory may have run out
                    logger.error("%s was killed by signal %d.", key, child.killed_by)
                    child.send(signal.SIGKILL)  # what it started would go on
                del self._running[key]
        reap_orphans(self._running.values())

    def end(self, grace: timedelta) -> None:
        """
        Send SIGTERM to all bodies, and SIGKILL to those that run after the grace.

        Return when all have ended. Another signal to this process ends the grace.
        """
        self._waiting.clear()
        count = len(self.signals.received)
        for child in self._running.values():
            child.end(grace)
        while self._running:
            self.wait(LOOK_INTERVAL_SECONDS)
            if len(self.signals.received) > count:
                for child in self._running.values():
                    child.send(signal.SIGKILL)

    def _start(self, key: str) -> None:
        try:
            self._running[key] = Child.of_body(key, self._waiting[key])
        except OSError as error:
            logger.error("No process can be started for %r: %s", key, error)
        else:
            del self._waiting[key]
