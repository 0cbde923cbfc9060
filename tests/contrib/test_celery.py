"""Celery as it runs: workers and beats of several hosts on one database."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from django_shedlock import hold
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.sql.fields import DatabaseNow
from tests.contrib.celery_workers import (
    MARKS,
    RAN,
    SKIPPED,
    MakeProject,
    Project,
    ended,
    kill,
    started,
)
from tests.support.waiting import STARTUP_PATIENCE, wait_for

pytestmark = MARKS


def is_held(name: str) -> bool:
    return LockRecord.objects.filter(name=name, lock_until__gt=DatabaseNow()).exists()


def runs(name: str) -> list[Any]:
    return list(LockRun.objects.filter(name=name).order_by("pk"))


@pytest.mark.parametrize(
    "workers",
    [
        [["--pool=prefork"], ["--pool=prefork"]],
        [["--pool=threads", "--concurrency=2"]],
    ],
    ids=["prefork", "threads"],
)
def test_task_that_is_sent_twice_runs_once(
    project: Project, workers: list[list[str]]
) -> None:
    """
    Of two messages for one task, one runs and the other is skipped.

    A skip is a success without a result.
    """
    project.hold.touch()
    for options in workers:
        project.worker(*options)
    sent = [project.send("append") for _ in range(2)]
    wait_for(lambda: any(result.ready() for result in sent), STARTUP_PATIENCE)
    project.hold.unlink()
    assert sorted(map(ended, sent), key=str) == [RAN, SKIPPED]
    assert len(project.bodies("append")) == 1
    assert [run.outcome for run in runs("append")] == ["succeeded"]


@pytest.mark.parametrize(
    ("task", "exception"),
    [
        ("retried", "celery.exceptions.Retry"),
        ("autoretried", "ConnectionError"),
    ],
)
def test_each_retry_takes_the_lock_anew(
    project: Project, task: str, exception: str
) -> None:
    """With the lock below the task, each attempt is a run with a lock of its own."""
    project.hold_retries.touch()
    project.worker("--pool=threads")
    first = project.send(task, "acme")
    name = f"{task}:acme"
    wait_for(
        lambda: any(run.outcome == "failed" for run in runs(name)), STARTUP_PATIENCE
    )
    assert not is_held(name)
    project.hold_retries.unlink()
    assert ended(first) == RAN
    assert len(project.bodies(task)) == 3
    assert [(run.outcome, run.exception_type) for run in runs(name)] == [
        ("failed", exception),
        ("failed", exception),
        ("succeeded", ""),
    ]
    assert len({run.locked_by for run in runs(name)}) == 3


def test_retry_is_skipped_while_somebody_else_runs(project: Project) -> None:
    """Who takes the lock between two attempts has the job: the retry is not needed."""
    project.hold_retries.touch()
    project.worker("--pool=threads")
    first = project.send("retried", "acme")
    wait_for(lambda: project.bodies("retried"), STARTUP_PATIENCE)
    with hold("retried:acme", lock_at_most_for="10m", wait="1m"):
        project.hold_retries.unlink()
        assert ended(first) == SKIPPED
    assert len(project.bodies("retried")) == 1


def test_retry_inside_the_body_keeps_the_lock(project: Project) -> None:
    """A loop in the body is one run under one lock, however often it tries."""
    project.worker("--pool=threads")
    assert ended(project.send("persistent")) == RAN
    assert len(project.bodies("persistent")) == 3
    assert [run.outcome for run in runs("persistent")] == ["succeeded"]


def test_redelivered_task_is_skipped_within_the_lease(project: Project) -> None:
    """The message of a killed process comes again at once, but its lease has to end."""
    project.hold.touch()
    project.worker("--pool=prefork")
    killed = project.send("report")
    os.kill(started(project, "report"), signal.SIGKILL)
    project.hold.unlink()
    assert ended(killed) == SKIPPED
    LockRecord.objects.update(lock_until=DatabaseNow())
    assert ended(project.send("report")) == RAN
    assert len(project.bodies("report")) == 2
    assert [run.outcome for run in runs("report")] == ["abandoned", "succeeded"]


def test_redelivered_task_that_waits_runs_after_the_lease(project: Project) -> None:
    """A killed task is redelivered and runs, if it waits longer than the lease."""
    project.hold.touch()
    project.worker("--pool=prefork")
    killed = project.send("patient")
    os.kill(started(project, "patient"), signal.SIGKILL)
    project.hold.unlink()
    wait_for(lambda: project.log().count("received") == 2, STARTUP_PATIENCE)
    with pytest.raises(AssertionError, match="did not happen"):
        wait_for(killed.ready, timeout=1)
    LockRecord.objects.update(lock_until=DatabaseNow())
    assert ended(killed) == RAN
    assert len(project.bodies("patient")) == 2
    assert [run.outcome for run in runs("patient")] == [
        "abandoned",
        "succeeded",
    ]


def test_message_of_a_lost_host_runs_on_another(make_project: MakeProject) -> None:
    """The broker delivers it again after visibility_timeout, and the lease is over."""
    project = make_project(visibility_timeout=1)
    project.hold.touch()
    lost = project.worker("--pool=prefork")
    sent = project.send("append")
    started(project, "append")
    kill(lost)
    project.hold.unlink()
    project.outlast_visibility()
    LockRecord.objects.update(lock_until=DatabaseNow())
    project.worker("--pool=threads")
    assert ended(sent) == RAN
    assert [run.outcome for run in runs("append")] == ["abandoned", "succeeded"]


def test_message_that_comes_again_during_its_job_is_skipped(
    make_project: MakeProject,
) -> None:
    """A job that outlasts visibility_timeout is delivered again, and runs once."""
    project = make_project(visibility_timeout=1)
    project.hold.touch()
    project.worker("--pool=threads")
    sent = project.send("append")
    started(project, "append")
    [first] = LockRecord.objects.filter(name="append")
    wait_for(lambda: is_extended(first), STARTUP_PATIENCE)
    project.outlast_visibility()
    project.worker("--pool=threads")
    assert ended(sent) == SKIPPED
    assert len(project.bodies("append")) == 1


def test_children_have_no_lock_of_their_parent(project: Project) -> None:
    """What the parent holds is somebody else's to its children, and stays alive."""
    project.parent.write_text("append")
    project.worker("--pool=prefork")
    assert ended(project.send("inherited")) == ("SUCCESS", [])
    assert ended(project.send("append")) == SKIPPED
    [parent] = LockRecord.objects.filter(name="append")
    project.hold.touch()
    project.send("other")
    started(project, "other")
    [child] = LockRecord.objects.filter(name="other")
    for first in (parent, child):
        wait_for(lambda first=first: is_extended(first), STARTUP_PATIENCE)
        assert is_held(first.name)


def is_extended(lock: LockRecord) -> bool:
    """Return whether the lease is longer than it was read."""
    later = LockRecord.objects.filter(name=lock.name, lock_until__gt=lock.lock_until)
    return later.exists()


def test_warm_shutdown_keeps_the_lock_until_the_job_ends(project: Project) -> None:
    """SIGTERM lets a worker end its job, under its lock, which it then gives back."""
    project.hold.touch()
    worker = project.worker("--pool=prefork")
    sent = project.send("append")
    started(project, "append")
    worker.terminate()
    wait_for(lambda: "Warm shutdown" in project.log(), STARTUP_PATIENCE)
    [before] = LockRecord.objects.filter(name="append")
    wait_for(lambda: is_extended(before), STARTUP_PATIENCE)
    assert is_held("append")
    project.hold.unlink()
    assert worker.wait(STARTUP_PATIENCE) == 0
    assert ended(sent) == RAN
    assert not is_held("append")
    assert [run.outcome for run in runs("append")] == ["succeeded"]


def test_one_task_of_two_beats_runs(project: Project) -> None:
    """Two beats send all tasks twice, and one body runs at any moment."""
    project.hold.touch()
    project.worker("--pool=threads", "--concurrency=2")
    for host in ("first", "second"):
        project.beat(host)
    started(project, "append")
    wait_for(lambda: {"first", "second"} <= skipped_hosts(project), STARTUP_PATIENCE)
    assert len(project.bodies("append")) == 1
    project.hold.unlink()
    wait_for(lambda: len(project.bodies("append")) > 1, STARTUP_PATIENCE)


def skipped_hosts(project: Project) -> set[str]:
    """Return of which beats a task was skipped."""
    tasks = [task for task in project.results() if task["status"] == "SUCCESS"]
    return {task["args"][0] for task in tasks if task["result"] is None}


def test_process_of_a_pool_ends_in_order(make_project: MakeProject) -> None:
    """A lock that its process never released is free once the worker has ended."""
    project = make_project(apps=["django_shedlock.contrib.celery"])
    worker = project.worker("--pool=prefork")
    assert ended(project.send("left_open")) == RAN
    assert is_held("left open")
    worker.terminate()
    assert worker.wait(STARTUP_PATIENCE) == 0
    assert not is_held("left open")
