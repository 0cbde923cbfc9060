"""One of the demo's workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any

from django.core.management.base import BaseCommand

from django_shedlock.signals import lock_not_acquired
from example.shop import CardDeclined
from example.triggers import TRIGGERS
from example.workers import FAILED, RAN, READY, SKIPPED


class Command(BaseCommand):
    """Start the jobs that standard input names, until the input ends."""

    help = "Starts jobs for the demo, which runs three of these."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Answer each line, which has a trigger and a tick, with the outcome."""
        self.say(READY)
        for line in lines():
            trigger, os.environ["EXAMPLE_TICK"] = line.split()
            self.say(outcome(TRIGGERS[trigger].fire))

    def say(self, word: str) -> None:
        """Write a line at once; end the process if the demo has ended."""
        try:
            self.stdout.write(word)
            self.stdout.flush()
        except BrokenPipeError:
            os._exit(0)


def outcome(fire: Callable[[], None]) -> str:
    """Start a job, and return what came of it; a skip prints nothing."""
    skips: list[str] = []

    def skip(**kwargs: Any) -> None:
        skips.append(SKIPPED)

    lock_not_acquired.connect(skip)
    try:
        fire()
    except CardDeclined:
        return FAILED
    finally:
        lock_not_acquired.disconnect(skip)
    return SKIPPED if skips else RAN


def lines() -> Iterator[str]:
    """Yield the lines of standard input, and end the process when it ends."""
    queue: SimpleQueue[str] = SimpleQueue()
    Thread(target=read_into, args=[queue], daemon=True).start()
    while True:
        yield queue.get()


def read_into(queue: SimpleQueue[str]) -> None:
    """Read until the demo has ended; then end this process and its job."""
    for line in sys.stdin:
        queue.put(line)
    os._exit(0)
