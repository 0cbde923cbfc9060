"""Jobs of APScheduler, whose schedulers run in several processes."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator

import pytest
from apscheduler.job import Job
from apscheduler.schedulers.background import BackgroundScheduler

from django_shedlock import current_lock, scheduler_lock
from django_shedlock.testing import held_elsewhere, locked_in_memory
from tests.contrib.queues.workers import Workers

PROCESSES = 3
SOON = 1.5
"""Seconds, in which most of the processes have begun to wait for the moment."""


@scheduler_lock("digest:{group}")
def digest(group: str) -> str:
    """Return the lock's name."""
    return current_lock().name


@pytest.fixture
def job() -> Iterator[Job]:
    """Decorate once more, with a scheduler that runs nothing yet."""
    scheduler = BackgroundScheduler()
    scheduler.scheduled_job("cron", hour=6, args=["gold"])(digest)
    scheduler.start(paused=True)
    yield scheduler.get_jobs()[0]
    scheduler.shutdown()


def test_scheduler_runs_the_locked_function(job: Job) -> None:
    """Below scheduled_job() the decorator is part of what the scheduler calls."""
    assert job.func is digest
    with locked_in_memory():
        assert job.func(*job.args) == "digest:gold"
        with held_elsewhere("digest:gold"):
            assert job.func(*job.args) is None


def test_stored_job_is_locked(job: Job) -> None:
    """A job store keeps a reference by name, which leads back to the decorator."""
    state = job.__getstate__()
    assert state["func"] == "tests.contrib.test_apscheduler:digest"
    stored = Job.__new__(Job)
    stored.__setstate__(pickle.loads(pickle.dumps(state)))
    assert stored.func is digest


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_one_of_three_schedulers_runs_the_body(workers: Workers, kind: str) -> None:
    """Of three processes with the same trigger one runs the body, and two skip it."""
    command = ("tests.contrib.queues.schedules", kind, str(time.time() + SOON))
    started = [workers.start(*command) for _ in range(PROCESSES)]
    workers.notes.wait_for("run")
    workers.notes.wait_for("skip", times=PROCESSES - 1)
    workers.notes.write("may end")
    workers.finish(*started)
    assert workers.notes.count("run") == 1
    assert workers.notes.count("skip") == PROCESSES - 1
