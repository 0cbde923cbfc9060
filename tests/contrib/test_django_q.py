"""Tasks of django-q2, with its cluster of worker processes."""

from __future__ import annotations

import pytest

from tests.contrib.queues.workers import Workers
from tests.support.waiting import STARTUP_PATIENCE, wait_for

RESULTS = "SELECT success, result IS NULL FROM django_q_task"


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_one_of_two_tasks_runs_the_body(workers: Workers) -> None:
    """Of two tasks of one job, in two workers at once, one runs and one is skipped."""
    workers.call("tests.contrib.queues.enqueue", "django-q", "digest")
    workers.start("django", "qcluster")
    workers.notes.wait_for("run")
    workers.notes.wait_for("skip")
    workers.notes.write("may end")
    wait_for(lambda: len(workers.queued(RESULTS)) == 2, STARTUP_PATIENCE)
    assert (workers.notes.count("run"), workers.notes.count("skip")) == (1, 1)
    assert sorted(workers.queued(RESULTS)) == [(1, 0), (1, 1)]
