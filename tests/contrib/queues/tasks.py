"""Tasks of Huey, whose consumer looks for them in modules of this name."""

from __future__ import annotations

from huey.contrib.djhuey import db_task

from django_shedlock import scheduler_lock
from tests.contrib.queues.notes import run_until_allowed


@db_task()
@scheduler_lock("digest", lock_at_most_for="30m")
def digest() -> str:
    """Run until the test allows it to end."""
    return run_until_allowed()
