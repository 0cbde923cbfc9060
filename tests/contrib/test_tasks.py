"""Tasks of django.tasks, in this process and with the workers of django-tasks-db."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from typing import Any

import django
import pytest
from django.test import override_settings

from django_shedlock import InvalidLockConfiguration, current_lock, scheduler_lock
from django_shedlock.testing import held_elsewhere, locked_in_memory
from tests.contrib.queues.workers import Workers

PACKAGE = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
"""Since version 6 Django brings what the other package brings to older ones."""

tasks = importlib.import_module(PACKAGE)
IMMEDIATE = {"default": {"BACKEND": f"{PACKAGE}.backends.immediate.ImmediateBackend"}}


@tasks.task
@scheduler_lock("digest:{group}")
def digest(group: str) -> str:
    """Return the lock's name."""
    return current_lock().name


@tasks.task(takes_context=True)
@scheduler_lock("adigest:{group}")
async def adigest(context: Any, group: str) -> str:
    """Return the lock's name, and how often this was tried."""
    await asyncio.sleep(0)
    return f"{current_lock().name} {context.attempt}"


@pytest.fixture
def immediate() -> Iterator[None]:
    with override_settings(TASKS=IMMEDIATE), locked_in_memory():
        yield


@pytest.mark.usefixtures("immediate")
def test_task_runs_under_its_lock() -> None:
    """A decorated function is a task like any other, with the lock of its run."""
    assert digest.enqueue("gold").return_value == "digest:gold"
    assert adigest.enqueue(group="gold").return_value == "adigest:gold 1"


@pytest.mark.usefixtures("immediate")
@pytest.mark.parametrize("task", [digest, adigest], ids=["sync", "async"])
def test_skipped_task_is_successful(task: Any) -> None:
    """To skip is no failure, so the task is successful and its result is None."""
    with held_elsewhere(f"{task.name}:gold"):
        result = task.enqueue("gold")
    assert (result.status, result.return_value) == ("SUCCESSFUL", None)
    assert task.enqueue("gold").return_value


@pytest.mark.usefixtures("immediate")
def test_awaited_task_is_skipped() -> None:
    """aenqueue() skips as well."""
    with held_elsewhere("adigest:gold"):
        result = asyncio.run(adigest.aenqueue("gold"))
    assert (result.status, result.return_value) == ("SUCCESSFUL", None)


@pytest.mark.parametrize("task", [digest, adigest], ids=["sync", "async"])
def test_lock_above_the_task_is_refused(task: Any) -> None:
    """The worker would run the function without the lock, so the order is an error."""
    with pytest.raises(
        InvalidLockConfiguration, match="put @scheduler_lock below the decorator"
    ):
        scheduler_lock("digest")(task)


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", ["digest", "adigest"])
def test_one_of_two_workers_runs_the_body(workers: Workers, task: str) -> None:
    """Of two tasks of one job, in two workers at once, one runs and one is skipped."""
    workers.call("tests.contrib.queues.enqueue", "django-tasks", task)
    command = ("django", "db_worker", "--batch", "--no-startup-delay")
    started = [workers.start(*command, "--interval", "0.1") for _ in range(2)]
    workers.notes.wait_for("run")
    workers.notes.wait_for("skip")
    workers.notes.write("may end")
    workers.finish(*started)
    assert (workers.notes.count("run"), workers.notes.count("skip")) == (1, 1)
    results = "SELECT status, return_value FROM django_tasks_database_dbtaskresult"
    assert sorted(workers.queued(results), key=str) == [
        ("SUCCESSFUL", '"sent"'),
        ("SUCCESSFUL", None),
    ]


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("task", ["digest", "adigest"])
def test_entry_enqueues_a_task_once_a_tick(workers: Workers, task: str) -> None:
    """Of three processes that start one tick of an entry, one enqueues its task."""
    command = ("tests.contrib.queues.enqueue", "SHEDLOCK_SCHEDULE", task)
    workers.call(*command)  # and make the tables
    workers.finish(*(workers.start(*command) for _ in range(2)))
    results = "SELECT status FROM django_tasks_database_dbtaskresult"
    assert workers.queued(results) == [("READY",)]
    worker = workers.start("django", "db_worker", "--batch", "--no-startup-delay")
    workers.notes.wait_for("run")
    workers.notes.write("may end")
    workers.finish(worker)
    assert workers.queued(results) == [("SUCCESSFUL",)]
