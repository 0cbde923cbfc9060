"""The app that recognizes retries of tasks, and ends worker processes in order."""

from contextlib import ExitStack, suppress
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from django_shedlock.clocks import host_now
from django_shedlock.execution.shutdown import shut_down
from django_shedlock.registry.jobs import starting
from django_shedlock.schedules.state import Start, Trigger

if TYPE_CHECKING:  # Django imports this module even if Celery is missing
    from celery import Task
    from celery.app.task import Context

ASKED_AT_HEADER = "shedlock_asked_at"

# The key is the request and not the task's id. A redelivered message has the same id,
# and its first attempt may still run in this process.
_attempts: "WeakKeyDictionary[Context, ExitStack]" = WeakKeyDictionary()


class CeleryConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock.contrib.celery"``."""

    name = "django_shedlock.contrib.celery"
    label = "django_shedlock_celery"

    def ready(self) -> None:
        """
        Connect the receivers for retries, and for the end of a worker process.

        Raises ``ImproperlyConfigured`` if Celery is missing.
        """
        if find_spec("celery") is None:
            raise ImproperlyConfigured(
                f"{self.name!r} is in INSTALLED_APPS, but Celery is missing: install "
                "celery, or remove the app."
            )
        from celery.signals import (
            before_task_publish,
            task_postrun,
            task_prerun,
            worker_process_shutdown,
        )

        before_task_publish.connect(stamp)
        task_prerun.connect(begin)
        task_postrun.connect(end)
        worker_process_shutdown.connect(end_process)


def stamp(*, headers: dict[str, object], **kwargs: object) -> None:
    """
    Write into the message for when its task is requested: its ``eta``, or else now.

    So its tick is known even if the message is delivered late or twice. A retry keeps
    the time of the first message.
    """
    headers.setdefault(ASKED_AT_HEADER, headers.get("eta") or host_now().isoformat())


def begin(*, task: "Task", **kwargs: object) -> None:
    """Let this attempt start the jobs that it calls."""
    # A first attempt needs this as well: it may run inside another task's retry.
    attempt = _attempts[task.request] = ExitStack()
    attempt.enter_context(starting(start_of(task.request)))


def end(*, task: "Task", **kwargs: object) -> None:
    """Forget this attempt, however it ended."""
    _attempts.pop(task.request, ExitStack()).close()


def end_process(**kwargs: object) -> None:
    """Release what is held: a process of Celery's pool leaves without atexit."""
    shut_down()


def start_of(request: "Context") -> Start:
    """Return what starts the jobs of this attempt, and when its message asked."""
    is_redelivered = (request.delivery_info or {}).get("redelivered")
    is_retry = request.retries or is_redelivered
    asked_at = None
    with suppress(KeyError, TypeError, ValueError):  # another program wrote the header
        moment = datetime.fromisoformat((request.headers or {})[ASKED_AT_HEADER])
        asked_at = moment if timezone.is_aware(moment) else None
    return Start(Trigger.RETRY if is_retry else Trigger.SCHEDULER, asked_at)
