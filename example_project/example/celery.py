"""Celery: every host has a worker with a beat, and one host runs each tick."""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery
from celery.schedules import crontab

from django_shedlock import scheduler_lock

os.environ["DJANGO_SETTINGS_MODULE"] = "example.settings"

QUEUE = Path(__file__).parent.parent / "queue"
FOLDER = Path(os.environ.get("SHEDLOCK_EXAMPLE_QUEUE", QUEUE))
FOLDERS = ("data_folder_in", "data_folder_out", "control_folder")

app = Celery("example", broker="filesystem://")
app.conf.update(
    # A queue in a folder needs no server. A project would use Redis or the like.
    broker_transport_options=dict.fromkeys(FOLDERS, str(FOLDER)),
    # It keeps its ticks in memory; the default one keeps them in a file, for one beat.
    beat_scheduler="celery.beat:Scheduler",
    beat_schedule={
        "import orders": {
            "task": "example.celery.import_orders",
            # Not a number of seconds: each beat would count from its own start.
            "schedule": crontab(minute="*"),
        }
    },
)


@app.on_configure.connect
def make_folder(**kwargs: object) -> None:
    """Create the folder of the queue when it is needed, not on import."""
    FOLDER.mkdir(exist_ok=True)


@app.task
@scheduler_lock("orders.import", lock_at_most_for="50s", lock_at_least_for="45s")
def import_orders() -> None:
    """Fetch new orders: each beat sends this task, one of the workers runs it."""
    # A worker sets up Django only after it has imported this module.
    from example.jobs import work

    work("orders.import")
