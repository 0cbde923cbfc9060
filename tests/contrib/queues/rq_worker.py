"""A worker of RQ: ``python -m tests.contrib.queues.rq_worker <address> <queue>``."""

from __future__ import annotations

import sys
from typing import Any

import django
from redis import Redis
from rq import Worker

from django_shedlock import shut_down


class OrderlyWorker(Worker):
    """Ends each process of a job in order, as docs/howto/task_queues.rst has it."""

    def perform_job(self, *args: Any) -> bool:
        try:
            return super().perform_job(*args)
        finally:
            shut_down()


def work(address: str, queue: str) -> None:
    """Run what is in the queue, each job in a fork, and end."""
    OrderlyWorker([queue], connection=Redis.from_url(address)).work(burst=True)


if __name__ == "__main__":
    django.setup()
    work(*sys.argv[1:])
