"""
Schedulers of APScheduler, which run one job at one moment and end.

``python -m tests.contrib.queues.schedules <kind> <seconds since 1970>``
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import django
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.schedulers.blocking import BlockingScheduler

from tests.contrib.queues import jobs
from tests.support.waiting import NEVER_SECONDS


def run_blocking(moment: datetime) -> None:
    """Run the plain job in the scheduler's thread pool."""
    scheduler = BlockingScheduler()
    schedule(scheduler, jobs.digest, moment, lambda: scheduler.shutdown(wait=False))
    scheduler.start()


async def run_asyncio(moment: datetime) -> None:
    """Run the coroutine function in the loop."""
    scheduler = AsyncIOScheduler()
    ended = asyncio.Event()
    schedule(scheduler, jobs.adigest, moment, ended.set)
    scheduler.start()
    await ended.wait()
    scheduler.shutdown()


def schedule(
    scheduler: BaseScheduler, job: Any, moment: datetime, end: Callable[[], None]
) -> None:
    """Let the job run at the moment, and tell when it has ended."""
    # A process that started late is to run it nevertheless.
    scheduler.add_job(job, "date", run_date=moment, misfire_grace_time=NEVER_SECONDS)
    scheduler.add_listener(lambda event: end(), EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)


if __name__ == "__main__":
    django.setup()
    when = datetime.fromtimestamp(float(sys.argv[2]), UTC)
    if sys.argv[1] == "blocking":
        run_blocking(when)
    else:
        asyncio.run(run_asyncio(when))
