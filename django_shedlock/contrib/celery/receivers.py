"""Receivers that let jobs know what starts them, at each attempt of a task."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from weakref import WeakKeyDictionary

from celery import Task
from celery.app.task import Context
from celery.signals import task_postrun, task_prerun

from django_shedlock.calls import called
from django_shedlock.triggers import Trigger

# By the request and not by the task's id: a message that is delivered again has the
# same id, and may meet its first attempt in this process.
_attempts: WeakKeyDictionary[Context, ExitStack] = WeakKeyDictionary()


def connect() -> None:
    """Connect the receivers to Celery's signals, once however often it is called."""
    task_prerun.connect(begin)
    task_postrun.connect(end)


def begin(*, task: Task, **kwargs: Any) -> None:
    """Let the jobs that this attempt calls know what starts them."""
    # Also of a first attempt, which may run inside of somebody else's retry.
    attempt = ExitStack()
    attempt.enter_context(called(None, trigger_of(task.request)))
    _attempts[task.request] = attempt


def end(*, task: Task, **kwargs: Any) -> None:
    """Let what comes after this attempt know nothing of it, however it ended."""
    attempt = _attempts.pop(task.request, None)
    if attempt is not None:
        attempt.close()


def trigger_of(request: Context) -> Trigger:
    """Return what starts the jobs of this attempt: a retry if its message was seen."""
    is_redelivered = (request.delivery_info or {}).get("redelivered")
    return Trigger.RETRY if request.retries or is_redelivered else Trigger.SCHEDULER
