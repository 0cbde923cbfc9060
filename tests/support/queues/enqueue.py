"""Enqueue a task twice: ``python -m tests.support.queues.enqueue <queue> <task>``."""

from __future__ import annotations

import sys

import django
from django.core.management import call_command


def enqueue(queue: str, task: str) -> None:
    """Give the task to the queue."""
    if queue == "django-tasks":
        from tests.support.queues import django_tasks

        getattr(django_tasks, task).enqueue()
    elif queue == "django-q":
        from django_q.tasks import async_task

        async_task(f"tests.support.queues.jobs.{task}")
    elif queue == "huey":
        from tests.support.queues import tasks

        getattr(tasks, task)()


if __name__ == "__main__":
    django.setup()
    call_command("migrate", database="queues", verbosity=0)
    for _ in range(2):
        enqueue(*sys.argv[1:])
