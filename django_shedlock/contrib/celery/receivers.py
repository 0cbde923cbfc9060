"""Receivers that tell jobs what starts them, for each attempt of a task."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

from celery import Task
from celery.app.task import Context
from celery.signals import before_task_publish, task_postrun, task_prerun
from django.utils import timezone

from django_shedlock.clocks import host_now
from django_shedlock.jobs.registry import invoked_by
from django_shedlock.schedules.state import Start, Trigger

ASKED_AT = "shedlock_asked_at"
"""The header with the time for which the task was requested."""

# By request, not by task id: a redelivered message has the same id, and its first
# attempt may still run in this process.
_attempts: WeakKeyDictionary[Context, ExitStack] = WeakKeyDictionary()


def connect() -> None:
    """Connect the receivers to Celery's signals. A second call does nothing."""
    before_task_publish.connect(stamp)
    task_prerun.connect(begin)
    task_postrun.connect(end)


def stamp(*, headers: dict[str, Any], **kwargs: Any) -> None:
    """
    Write into the message for when its task is requested: now, or its ``eta``.

    So its tick is known even if it is delivered late, or twice. A retry keeps the time
    of the first message.
    """
    headers.setdefault(ASKED_AT, headers.get("eta") or host_now().isoformat())


def begin(*, task: Task, **kwargs: Any) -> None:
    """Tell the jobs that this attempt calls what starts them."""
    # A first attempt does so too, because it may run inside another task's retry.
    attempt = ExitStack()
    attempt.enter_context(
        invoked_by(Start(trigger_of(task.request), asked_at(task.request)))
    )
    _attempts[task.request] = attempt


def end(*, task: Task, **kwargs: Any) -> None:
    """Forget this attempt, however it ended."""
    attempt = _attempts.pop(task.request, None)
    if attempt is not None:
        attempt.close()


def trigger_of(request: Context) -> Trigger:
    """Return what starts the jobs of this attempt: a retry, or the scheduler."""
    is_redelivered = (request.delivery_info or {}).get("redelivered")
    return Trigger.RETRY if request.retries or is_redelivered else Trigger.SCHEDULER


def asked_at(request: Context) -> datetime | None:
    """Return for when the task was requested, if its message says so."""
    try:
        moment = datetime.fromisoformat((request.headers or {})[ASKED_AT])
    except (KeyError, TypeError, ValueError):
        return None
    return moment if timezone.is_aware(moment) else None
