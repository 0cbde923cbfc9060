"""The decorator and ``SHEDLOCK_SCHEDULE`` beside the tasks of Celery."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from celery import Celery, shared_task

from django_shedlock import InvalidLockConfiguration, scheduler_lock
from django_shedlock.registry.jobs import decorated_job
from tests.beat.test_entry_checks import DAY, messages
from tests.support.jobs import only_jobs_of

app = Celery("jobs", set_as_current=False)


@scheduler_lock("report")
def report(tenant: str, *, day: str = "today") -> str:
    """Return what the report is about."""
    return f"{tenant} {day}"


@shared_task
def send() -> None:
    """Send nothing."""


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("register", [app.task, shared_task])
def test_lock_above_a_task_is_refused(register: Any, *, bare: bool) -> None:
    """Workers and beats would call the task without the lock."""

    def job() -> None: ...

    task = register(job, name=f"{register.__name__}_{bare}")
    with pytest.raises(InvalidLockConfiguration, match="@scheduler_lock below"):
        (scheduler_lock if bare else scheduler_lock("job"))(task)


def test_task_checks_the_arguments_of_the_job() -> None:
    """Celery reads the signature without ``__wrapped__`` when it sends a task."""
    assert inspect.getfullargspec(report) == inspect.getfullargspec(report.__wrapped__)
    task = app.task(report)
    assert task.name == "tests.contrib.test_celery_decorators.report"
    with pytest.raises(TypeError, match="unexpected keyword argument 'month'"):
        task.delay("acme", month="May")


def test_job_is_found_below_a_task() -> None:
    """The task is around the decorated function."""
    found = decorated_job(app.task(report, name="locked"))
    assert found is decorated_job(report) is not None
    assert decorated_job(app.task(report.__wrapped__, name="bare")) is None


def test_w025_says_how_a_task_is_sent() -> None:
    """An entry that names a task of Celery calls its ``delay``."""
    name = f"{__name__}.send"
    with only_jobs_of():
        [told] = messages({"entry": {**DAY, "task": name}})
        assert told.id == "shedlock.W025"
        assert f'write "call": "{name}.delay"' in told.msg
        assert messages({"entry": {**DAY, "call": f"{name}.delay"}}) == []
