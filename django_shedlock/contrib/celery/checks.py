"""The system check of Celery tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, Warning

from django_shedlock.contrib.celery.apps import CeleryConfig
from django_shedlock.jobs.discovery import import_decorated_modules
from django_shedlock.jobs.registry import Job, registered_jobs


def register_checks() -> None:
    """Register the check with Django."""
    checks.register(check_celery)


def check_celery(**kwargs: Any) -> list[CheckMessage]:
    """Check that retries of tasks with a schedule are not skipped."""
    if apps.is_installed(CeleryConfig.name) or find_spec("celery") is None:
        return []
    import_decorated_modules()
    return list(_check_tasks()) if "celery" in sys.modules else []


def _check_tasks() -> Iterator[CheckMessage]:
    for job in sorted(registered_jobs, key=lambda job: job.path):
        if job.request.schedule is not None and _is_task(job):
            yield Warning(
                f"A retry of the task {job.path} is skipped, because its job has a "
                "schedule, and the first attempt was already the run of that tick.",
                hint=f"Put {CeleryConfig.name!r} into INSTALLED_APPS.",
                id="shedlock.W015",
            )


def _is_task(job: Job) -> bool:
    from celery import Task
    from celery.local import Proxy

    module, _, name = job.path.rpartition(".")
    value = getattr(sys.modules.get(module), name, None)
    # By its type alone: access to a proxy makes Celery finalize its app, which reads
    # the settings and calls the project's receivers.
    return issubclass(type(value), Task | Proxy)
