"""The app that connects the receivers, and the check of projects without it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured


class CeleryConfig(AppConfig):
    """What to put into ``INSTALLED_APPS``: ``"django_shedlock.contrib.celery"``."""

    name = "django_shedlock.contrib.celery"
    label = "django_shedlock_celery"

    def ready(self) -> None:
        """
        Connect the receivers that tell jobs which attempts of a task are retries.

        Raises ``ImproperlyConfigured`` if Celery is missing.
        """
        if find_spec("celery") is None:
            raise ImproperlyConfigured(
                f"{self.name!r} is in INSTALLED_APPS, but Celery is missing: install "
                "celery, or remove the app."
            )
        from django_shedlock.contrib.celery.receivers import connect

        connect()


def check_celery(**kwargs: Any) -> list[CheckMessage]:
    """Check that retries of tasks with a schedule are not skipped."""
    if apps.is_installed(CeleryConfig.name) or find_spec("celery") is None:
        return []
    from django_shedlock.jobs.named import import_decorated_modules
    from django_shedlock.jobs.registry import registered_jobs

    import_decorated_modules()
    if "celery" not in sys.modules:
        return []
    from celery import Task
    from celery.local import Proxy

    messages: list[CheckMessage] = []
    for job in sorted(registered_jobs, key=lambda job: job.path):
        module, _, name = job.path.rpartition(".")
        # By its type alone: access to a proxy makes Celery finalize its app, which
        # reads the settings and calls the project's receivers.
        kind = type(getattr(sys.modules.get(module), name, None))
        if job.request.schedule is not None and issubclass(kind, Task | Proxy):
            message = Warning(
                f"A retry of the task {job.path} is skipped, because its job has a "
                "schedule, and the first attempt was already the run of that tick.",
                hint=f"Put {CeleryConfig.name!r} into INSTALLED_APPS.",
                id="shedlock.W015",
            )
            messages.append(message)
    return messages
