"""Tasks of Huey, with its consumer's workers."""

from __future__ import annotations

import pytest
from huey import MemoryHuey

from django_shedlock import InvalidLockConfiguration, current_lock, scheduler_lock
from django_shedlock.testing import held_elsewhere, locked_in_memory
from tests.contrib.queues.workers import Workers

huey = MemoryHuey(immediate=True)


@huey.task()
@scheduler_lock("digest:{group}")
def digest(group: str) -> str:
    """Return the lock's name."""
    return current_lock().name


def test_skipped_task_is_no_failure() -> None:
    """A task that was skipped returned None, and is not tried again."""
    with locked_in_memory():
        assert digest("gold").get() == "digest:gold"
        with held_elsewhere("digest:gold"):
            assert digest("gold").get() is None
    assert not len(huey)


def test_lock_above_the_task_is_refused() -> None:
    """The worker would run the function without the lock, so the order is an error."""
    with pytest.raises(InvalidLockConfiguration, match="is a task of a queue"):
        scheduler_lock("digest")(digest)


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_one_of_two_workers_runs_the_body(workers: Workers, kind: str) -> None:
    """Of two tasks of one job, in two workers at once, one runs and one is skipped."""
    workers.call("tests.contrib.queues.enqueue", "huey", "digest")
    workers.start("django", "run_huey", SHEDLOCK_TEST_HUEY=kind)
    workers.notes.wait_for("run")
    workers.notes.wait_for("skip")
    workers.notes.write("may end")
    workers.notes.wait_for("end")
    assert (workers.notes.count("run"), workers.notes.count("skip")) == (1, 1)
