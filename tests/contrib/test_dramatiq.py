"""Actors of Dramatiq, with its worker's threads."""

from __future__ import annotations

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker

from django_shedlock import InvalidLockConfiguration, scheduler_lock
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from tests.contrib.queues.workers import Workers

ACTORS = "tests.contrib.queues.actors"

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]


def test_lock_above_the_actor_is_refused() -> None:
    """The worker would run the function without the lock, so the order is an error."""

    @dramatiq.actor(broker=StubBroker(middleware=[]))
    def actor() -> None: ...

    with pytest.raises(InvalidLockConfiguration, match="is a task of a queue"):
        scheduler_lock("digest")(actor)


@pytest.mark.parametrize("actor", ["digest", "adigest"])
def test_one_of_two_messages_runs_the_body(workers: Workers, actor: str) -> None:
    """Of two messages of one job, in two threads at once, one is skipped."""
    worker = workers.start(ACTORS, actor, "2")
    workers.notes.wait_for("run")
    workers.notes.wait_for("skip")
    workers.notes.write("may end")
    workers.finish(worker)
    assert (workers.notes.count("run"), workers.notes.count("skip")) == (1, 1)
    assert workers.notes.count("end") == 1


@pytest.mark.parametrize(
    ("actor", "exception"),
    [
        ("endless", "dramatiq.middleware.time_limit.TimeLimitExceeded"),
        ("aendless", "asyncio.exceptions.CancelledError"),
    ],
)
def test_interrupted_actor_gives_its_lock_back(
    workers: Workers, actor: str, exception: str
) -> None:
    """A time limit is raised within the body, so the lock is released after it."""
    workers.call(ACTORS, actor, "1")
    assert workers.notes.count("run") == 1
    [run] = LockRun.objects.all()
    assert (run.outcome, run.exception_type) == (RunOutcome.FAILED, exception)
    assert LockRecord.objects.filter(released_at__isnull=False).count() == 1


def test_retry_within_lock_at_least_for_is_skipped(workers: Workers) -> None:
    """A lock that is kept after a failure is kept from the retry, too."""
    workers.call(ACTORS, "failing", "1")
    assert (workers.notes.count("run"), workers.notes.count("skip")) == (1, 1)
