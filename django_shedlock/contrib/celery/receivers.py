"""Receivers that tell jobs what starts them, for each attempt of a task."""

from __future__ import annotations

from contextlib import ExitStack, suppress
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
    attempt.enter_context(invoked_by(start_of(task.request)))
    _attempts[task.request] = attempt


def end(*, task: Task, **kwargs: Any) -> None:
    """Forget this attempt, however it ended."""
    attempt = _attempts.pop(task.request, None)
    if attempt is not None:
        attempt.close()


def start_of(request: Context) -> Start:
    """Return what starts the jobs of this attempt, and for when its message asked."""
    is_redelivered = (request.delivery_info or {}).get("redelivered")
    is_retry = request.retries or is_redelivered
    asked_at = None
    with suppress(KeyError, TypeError, ValueError):  # another program wrote the header
        moment = datetime.fromisoformat((request.headers or {})[ASKED_AT])
        asked_at = moment if timezone.is_aware(moment) else None
    return Start(Trigger.RETRY if is_retry else Trigger.SCHEDULER, asked_at)
