"""Actors of Dramatiq, and their worker: ``python -m tests.contrib.queues.actors``."""

from __future__ import annotations

import sys

import django
import dramatiq
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import AsyncIO, TimeLimit, default_middleware

from tests.contrib.queues import jobs
from tests.contrib.queues.notes import notes
from tests.support.waiting import NEVER_SECONDS


class TimeLimitOfBodies(TimeLimit):
    """Interrupts no actor before its body has begun, however late that is."""

    def __init__(self) -> None:
        super().__init__(interval=100)
        interrupt = self.manager._handle_deadlines
        self.manager._handle_deadlines = lambda: notes().count("run") and interrupt()


broker = StubBroker(
    middleware=[
        *(kind() for kind in default_middleware if kind is not TimeLimit),
        TimeLimitOfBodies(),
        AsyncIO(),
    ]
)
dramatiq.set_broker(broker)

digest = dramatiq.actor(jobs.digest, max_retries=0)
adigest = dramatiq.actor(jobs.adigest, max_retries=0)
endless = dramatiq.actor(jobs.endless, max_retries=0, time_limit=500)
aendless = dramatiq.actor(jobs.aendless, max_retries=0, time_limit=500)
failing = dramatiq.actor(jobs.failing, max_retries=5, min_backoff=10, max_backoff=20)


def work(name: str, messages: str) -> None:
    """Send the actor so many messages, and run them in two threads."""
    for _ in range(int(messages)):
        broker.get_actor(name).send()
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=2)
    broker.emit_after("process_boot")  # as the command line does, for TimeLimit
    worker.start()
    broker.join("default", timeout=1000 * NEVER_SECONDS, fail_fast=False)
    worker.join()
    worker.stop()


if __name__ == "__main__":
    django.setup()
    work(*sys.argv[1:])
