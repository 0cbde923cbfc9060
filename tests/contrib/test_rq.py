"""Jobs of RQ, with its workers, which fork for each job."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest
from redis import Redis
from rq import Queue
from rq.decorators import job
from rq.job import Job

from django_shedlock import InvalidLockConfiguration, scheduler_lock
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from tests.contrib.queues.workers import Workers
from tests.support.stores import REDIS_VARIABLE, missing_redis_reason
from tests.support.waiting import NEVER_SECONDS

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]

reason = missing_redis_reason()
needs_redis = pytest.mark.skipif(reason is not None, reason=str(reason))
WORKER = "tests.contrib.queues.rq_worker"


@pytest.fixture
def queue() -> Iterator[Queue]:
    """Make a queue that is this test's alone."""
    with Redis.from_url(os.environ[REDIS_VARIABLE]) as connection:
        made = Queue(f"shedlock_tests_{uuid.uuid4().hex}", connection=connection)
        yield made
        made.delete()


@pytest.fixture
def enqueue(queue: Queue) -> Iterator[Callable[..., Job]]:
    """Enqueue a job, and forget it after the test."""
    jobs = []

    def by_name(name: str, **options: int) -> Job:
        jobs.append(queue.enqueue(f"tests.contrib.queues.jobs.{name}", **options))
        return jobs[-1]

    yield by_name
    for enqueued in jobs:
        enqueued.delete()


def test_lock_above_the_job_is_refused() -> None:
    """There is one right order for all queues, and the other one is an error."""

    @job("digests", connection=Redis())
    def digest() -> None: ...

    with pytest.raises(InvalidLockConfiguration, match="is a task of a queue"):
        scheduler_lock("digest")(digest)


@needs_redis
@pytest.mark.parametrize("name", ["digest", "adigest"])
def test_one_of_two_workers_runs_the_body(
    workers: Workers, queue: Queue, enqueue: Callable[..., Job], name: str
) -> None:
    """Of two jobs of one name, in two workers at once, one runs and one is skipped."""
    jobs = [enqueue(name) for _ in range(2)]
    started = [
        workers.start(WORKER, os.environ[REDIS_VARIABLE], queue.name) for _ in range(2)
    ]
    workers.notes.wait_for("run")
    workers.notes.wait_for("skip")
    workers.notes.write("may end")
    workers.finish(*started)
    assert (workers.notes.count("run"), workers.notes.count("skip")) == (1, 1)
    assert [job.get_status() for job in jobs] == ["finished"] * 2
    assert {job.return_value() for job in jobs} == {"sent", None}


@needs_redis
@pytest.mark.parametrize(
    ("name", "exception"),
    [
        ("endless", "rq.timeouts.JobTimeoutException"),
        ("aendless", "asyncio.exceptions.CancelledError"),
    ],
)
def test_job_that_times_out_gives_its_lock_back(
    workers: Workers,
    queue: Queue,
    enqueue: Callable[..., Job],
    name: str,
    exception: str,
) -> None:
    """The alarm is raised within the body, so the lock is released after it."""
    timed_out = enqueue(name, job_timeout=NEVER_SECONDS)
    workers.call(WORKER, os.environ[REDIS_VARIABLE], queue.name)
    assert timed_out.get_status() == "failed"
    [run] = LockRun.objects.all()
    assert (run.outcome, run.exception_type) == (RunOutcome.FAILED, exception)
    assert LockRecord.objects.filter(released_at__isnull=False).count() == 1


@needs_redis
def test_process_of_a_job_ends_in_order(
    workers: Workers, queue: Queue, enqueue: Callable[..., Job]
) -> None:
    """A lock that its process never released is free once that has ended."""
    enqueue("leave_open")
    workers.call(WORKER, os.environ[REDIS_VARIABLE], queue.name)
    [record] = LockRecord.objects.all()
    assert record.name == "left open"
    assert record.released_at is not None
