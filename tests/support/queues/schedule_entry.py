"""Start an entry of ``SHEDLOCK_SCHEDULE`` once, for its newest tick."""

from __future__ import annotations

import sys

import django
from django.core.management import call_command
from django.test import override_settings


def start(key: str, task: str) -> None:
    """Start the entry with this key, which enqueues the task."""
    from django_shedlock.beat.entries import schedule_jobs

    entry = {"task": f"tests.support.queues.django_tasks.{task}", "schedule": "@yearly"}
    with override_settings(SHEDLOCK_SCHEDULE={key: entry}):
        [job] = schedule_jobs()
        print(job.start())


if __name__ == "__main__":
    django.setup()
    call_command("migrate", database="queues", verbosity=0)
    start(*sys.argv[1:])
