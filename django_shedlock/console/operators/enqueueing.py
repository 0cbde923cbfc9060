"""Give a request to the workers of ``django.tasks``, if the project has some."""

from __future__ import annotations

import logging
from contextlib import suppress
from importlib import import_module
from typing import Any

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

logger = logging.getLogger("django_shedlock")

TASKS = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
"""Since version 6 Django brings what the other package brings to older ones."""
WITHOUT_WORKERS = {"immediate": "ImmediateBackend", "dummy": "DummyBackend"}
"""The backends that run a task where it is enqueued, or never: module and class."""


def enqueue(provider: str, row: int) -> bool:
    """Enqueue the request in this row; return whether a worker will get it."""
    if worker_backend() is None:
        return False
    try:
        module = import_module("django_shedlock.console.operators.tasks")
        module.carry_out_request.enqueue(provider, row)
    except Exception:  # the next catch-up carries it out
        logger.exception("The request %d could not be enqueued.", row)
        return False
    return True


def worker_backend() -> Any:
    """
    Return the default backend of ``django.tasks`` if workers run its tasks.

    ``None`` for a backend that runs a task where it is enqueued, or never, and for one
    without the default queue.
    """
    if django.VERSION < (6,) and not apps.is_installed(TASKS):
        return None
    tasks = import_module(TASKS)
    with suppress(ImproperlyConfigured):
        backend = tasks.task_backends[tasks.DEFAULT_TASK_BACKEND_ALIAS]
        has_queue = (
            not backend.queues or tasks.DEFAULT_TASK_QUEUE_NAME in backend.queues
        )
        return backend if has_queue and _has_workers(backend) else None
    return None


def _has_workers(backend: Any) -> bool:
    without = [
        getattr(import_module(f"{TASKS}.backends.{module}"), kind)
        for module, kind in WITHOUT_WORKERS.items()
    ]
    return not isinstance(backend, tuple(without))
