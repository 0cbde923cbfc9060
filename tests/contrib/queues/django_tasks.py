"""Tasks of django.tasks."""

from __future__ import annotations

import django
from asgiref.sync import sync_to_async

from django_shedlock import scheduler_lock
from tests.contrib.queues.notes import run_until_allowed

if django.VERSION >= (6,):
    from django.tasks import task
else:
    from django_tasks import task


@task
@scheduler_lock("digest", lock_at_most_for="30m")
def digest() -> str:
    """Run until the test allows it to end."""
    return run_until_allowed()


@task
@scheduler_lock("adigest", lock_at_most_for="30m")
async def adigest() -> str:
    """Run until the test allows it to end."""
    return await sync_to_async(run_until_allowed)()
