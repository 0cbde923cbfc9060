"""Celery's tasks whose jobs have a schedule: each tick runs once, and until it did."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.models import LockRecord, LockRun
from django_shedlock.sql.fields import DatabaseNow
from tests.contrib.celery_workers import (
    MARKS,
    RAN,
    SKIPPED,
    MakeProject,
    Project,
    ended,
    started,
)
from tests.support.waiting import STARTUP_PATIENCE, wait_for

pytestmark = MARKS

APP = "django_shedlock.contrib.celery"
BOTH = [[APP], []]
NAMES = ["with the app", "without the app"]


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project(apps=[APP])


def outcomes(name: str) -> list[str]:
    runs = LockRun.objects.filter(name=name).order_by("pk")
    return [run.outcome for run in runs]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_retry_runs_its_tick_until_it_succeeds(project: Project, pool: str) -> None:
    """
    Retries of a task run its tick until the tick succeeds.

    This holds for self.retry() and for autoretry_for. Then the tick is done.
    """
    project.worker(f"--pool={pool}")
    for task in ("retried_tick", "autoretried_tick"):
        assert ended(project.send(task)) == RAN
        assert outcomes(task) == ["failed", "failed", "succeeded"]
        assert ended(project.send(task)) == SKIPPED
        assert len(project.bodies(task)) == 3


def test_retry_is_lost_without_the_app(make_project: MakeProject) -> None:
    """Where nobody tells that it is a retry, it finds its tick taken."""
    project = make_project()
    project.worker("--pool=threads")
    for task in ("retried_tick", "autoretried_tick"):
        assert ended(project.send(task)) == SKIPPED
        assert outcomes(task) == ["failed"]


@pytest.mark.parametrize("apps", BOTH, ids=NAMES)
def test_tick_of_a_killed_process(make_project: MakeProject, apps: list[str]) -> None:
    """With the app, its message runs the tick again once the lease is over."""
    project = make_project(apps=apps)
    project.hold.touch()
    project.worker("--pool=prefork")
    killed = project.send("tick")
    os.kill(started(project, "tick"), signal.SIGKILL)
    project.hold.unlink()
    wait_for(lambda: project.log().count("received") == 2, STARTUP_PATIENCE)
    if apps:
        assert not killed.ready()
    LockRecord.objects.update(lock_until=DatabaseNow())
    assert ended(killed) == (RAN if apps else SKIPPED)
    assert ended(project.send("tick")) == SKIPPED
    assert len(project.bodies("tick")) == (2 if apps else 1)
    assert outcomes("tick").count("succeeded") == (1 if apps else 0)


def test_message_that_comes_again_after_a_success_is_skipped(
    make_project: MakeProject,
) -> None:
    """What waited while its own first delivery ran does not run after it."""
    project = make_project(apps=[APP], visibility_timeout=1)
    project.hold.touch()
    project.worker("--pool=threads")
    sent = project.send("tick")
    started(project, "tick")
    project.outlast_visibility()
    project.worker("--pool=threads")
    wait_for(lambda: project.log().count(f"[{sent.id}] received") > 1, STARTUP_PATIENCE)
    project.hold.unlink()
    wait_for(
        lambda: project.log().count(f"[{sent.id}] succeeded") > 1, STARTUP_PATIENCE
    )
    assert len(project.bodies("tick")) == 1
    assert outcomes("tick") == ["succeeded"]


def test_message_that_a_worker_gave_back_runs(project: Project) -> None:
    """A message that comes again before anybody began has its tick."""
    LockRecord.objects.create(name="tick", **free_since_last_year())
    worker = project.worker("--pool=threads")
    sent = project.send("tick", countdown=3600)
    wait_for(lambda: f"[{sent.id}] received" in project.log(), STARTUP_PATIENCE)
    worker.terminate()
    assert worker.wait(STARTUP_PATIENCE) == 0
    assert not sent.ready()
    project.hurry()
    project.worker("--pool=threads")
    assert ended(sent) == RAN
    assert project.log().count(f"[{sent.id}] received") == 2


def free_since_last_year() -> dict[str, Any]:
    """Return the columns of a job that has missed its last ticks."""
    long_ago = DatabaseNow() - timedelta(days=9 * 366)
    lease = dict.fromkeys(("lock_until", "locked_at", "released_at"), long_ago)
    return {**lease, "tick": long_ago, "due_at": long_ago}


def test_tick_of_two_beats_runs_once(make_project: MakeProject) -> None:
    """Of short jobs those without a schedule run for each beat, the others once."""
    project = make_project(apps=[APP], beat=["append", "tick"])
    project.worker("--pool=threads", "--concurrency=2")
    for host in ("first", "second"):
        project.beat(host)
        # Bodies of the two beats may meet, so that one of them is skipped.
        wait_for(
            lambda host=host: "ran" in results(project, "append", host),
            STARTUP_PATIENCE,
        )
        wait_for(lambda host=host: results(project, "tick", host), STARTUP_PATIENCE)
    assert set(results(project, "tick", "second")) == {None}
    assert len(project.bodies("tick")) == 1


def results(project: Project, task: str, beat: str) -> list[Any]:
    """Return what the tasks of a beat returned."""
    return [
        result["result"]
        for result in project.results()
        if (result["name"], result["args"]) == (task, [beat])
        and result["status"] == "SUCCESS"
    ]
