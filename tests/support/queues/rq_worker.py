"""A worker of RQ: ``python -m tests.support.queues.rq_worker <address> <queue>``."""

from __future__ import annotations

import sys

import django
from redis import Redis
from rq import Worker


def work(address: str, queue: str) -> None:
    """Run what is in the queue, each job in a fork, and end."""
    Worker([queue], connection=Redis.from_url(address)).work(burst=True)


if __name__ == "__main__":
    django.setup()
    work(*sys.argv[1:])
