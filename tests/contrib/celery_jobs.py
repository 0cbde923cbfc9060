"""
The Celery app that the tests' workers run, and its tasks.

Only workers import it. A body writes a line to the file of its name, so that bodies are
counted by what they did.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from celery import Celery, shared_task
from celery.signals import task_prerun, worker_init
from django.conf import settings

from django_shedlock import NoActiveLock, current_lock, hold, locks_held, scheduler_lock
from tests.contrib.celery_workers import (
    HOLD,
    HOLD_RETRIES,
    LEASE,
    LONGEST_BODY,
    PARENT,
)

app = Celery("jobs")
app.config_from_object("django.conf:settings", namespace="CELERY")

YEARLY = "0 0 29 2 *"
"""No test sees two of its ticks."""

locks_of_parent = ExitStack()


@worker_init.connect
def hold_in_parent(**kwargs: Any) -> None:
    """Hold a lock in the process that forks the workers, if the test wants one."""
    wish = Path(settings.FOLDER, PARENT)
    if wish.exists():
        lock = hold(wish.read_text(), lock_at_most_for=LEASE, keep_alive=True)
        locks_of_parent.enter_context(lock)


@task_prerun.connect
def hold_retry(task: Any, **kwargs: Any) -> None:
    """Begin a retry when the test lets it."""
    if task.request.retries:
        wait_while(HOLD_RETRIES)


def wait_while(name: str) -> None:
    """Wait until the file is gone."""
    deadline = time.monotonic() + LONGEST_BODY
    while Path(settings.FOLDER, name).exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def write(name: str) -> None:
    """Tell that the body of this name runs, in which process."""
    with Path(settings.FOLDER, name).open("a") as bodies:
        bodies.write(f"{os.getpid()}\n")


def work(name: str) -> str:
    """Write the line, and end when the test lets it."""
    write(name)
    wait_while(HOLD)
    return "ran"


@shared_task(name="append")
@scheduler_lock("append", lock_at_most_for=LEASE, keep_alive=True)
def append(*host: str) -> str:
    return work("append")


@shared_task(name="report")
@scheduler_lock("report", lock_at_most_for="10m", keep_alive=True)
def report() -> str:
    return work("report")


@shared_task(name="patient")
@scheduler_lock("patient", lock_at_most_for="10m", keep_alive=True, wait="10m")
def patient() -> str:
    return work("patient")


@shared_task(name="other")
@scheduler_lock("other", lock_at_most_for=LEASE, keep_alive=True)
def other() -> str:
    return work("other")


@shared_task(name="retried", bind=True, max_retries=2)
@scheduler_lock("retried:{tenant}", lock_at_most_for="1m")
def retried(self: Any, tenant: str) -> str:
    write("retried")
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return "ran"


@shared_task(
    name="autoretried",
    bind=True,
    autoretry_for=(ConnectionError,),
    retry_kwargs={"max_retries": 2, "countdown": 0},
)
@scheduler_lock("autoretried:{tenant}", lock_at_most_for="1m")
def autoretried(self: Any, tenant: str) -> str:
    write("autoretried")
    if self.request.retries < 2:
        raise ConnectionError("by nobody")
    return "ran"


@shared_task(name="persistent")
@scheduler_lock("persistent", lock_at_most_for="1m")
def persistent() -> str:
    for attempt in range(3):
        write("persistent")
        try:
            return connect(attempt)
        except ConnectionError:
            time.sleep(0.1)
    raise ConnectionError("three times")


def connect(attempt: int) -> str:
    if attempt < 2:
        raise ConnectionError("by nobody")
    return "ran"


@shared_task(name="tick")
@scheduler_lock(
    "tick", lock_at_most_for="10m", keep_alive=True, wait="10m", schedule=YEARLY
)
def tick(*host: str) -> str:
    return work("tick")


@shared_task(name="retried_tick", bind=True)
@scheduler_lock("retried_tick", lock_at_most_for="1m", schedule=YEARLY)
def retried_tick(self: Any) -> str:
    write("retried_tick")
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return "ran"


@shared_task(
    name="autoretried_tick",
    bind=True,
    autoretry_for=(ConnectionError,),
    retry_kwargs={"countdown": 0},
)
@scheduler_lock("autoretried_tick", lock_at_most_for="1m", schedule=YEARLY)
def autoretried_tick(self: Any) -> str:
    write("autoretried_tick")
    return connect(self.request.retries)


@shared_task(name="inherited")
def inherited() -> list[str]:
    """Return the locks that this process believes to have, or to run under."""
    held = [lock.name for lock in locks_held()]
    try:
        return [*held, current_lock().name]
    except NoActiveLock:
        return held


@shared_task(name="left_open")
def leave_open() -> str:
    """Hold a lock that nobody releases before the process ends."""
    locks_of_parent.enter_context(hold("left open", lock_at_most_for=LEASE))
    return "ran"
