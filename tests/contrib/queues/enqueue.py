"""Enqueue a task twice: ``python -m tests.contrib.queues.enqueue <queue> <task>``."""

from __future__ import annotations

import sys

import django
from django.core.management import call_command
from django.test import override_settings


def enqueue(queue: str, task: str) -> None:
    """Give the task to the queue, for SHEDLOCK_SCHEDULE by an entry."""
    if queue == "django-tasks":
        from tests.contrib.queues import django_tasks

        getattr(django_tasks, task).enqueue()
    elif queue == "django-q":
        from django_q.tasks import async_task

        async_task(f"tests.contrib.queues.jobs.{task}")
    elif queue == "huey":
        from tests.contrib.queues import tasks

        getattr(tasks, task)()
    elif queue == "SHEDLOCK_SCHEDULE":
        from django_shedlock.beat.entries import schedule_jobs

        path = f"tests.contrib.queues.django_tasks.{task}"
        entries = {"enqueue": {"task": path, "schedule": "@yearly"}}
        with override_settings(SHEDLOCK_SCHEDULE=entries):
            [job] = schedule_jobs()
            job.start()


if __name__ == "__main__":
    django.setup()
    call_command("migrate", database="queues", verbosity=0)
    for _ in range(2):
        enqueue(*sys.argv[1:])
