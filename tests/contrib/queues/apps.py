"""The project's one app, and where its tables are."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models import Model

QUEUES = {"django_q", "django_tasks_database"}


class QueuesConfig(AppConfig):
    """Tells the test of each skip."""

    name = "tests.contrib.queues"

    def ready(self) -> None:
        from django_shedlock.signals import lock_not_acquired
        from tests.contrib.queues.notes import note_skip

        lock_not_acquired.connect(note_skip)


class QueueRouter:
    """Keeps the tables of the queues apart from those of the locks."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return "queues" if model._meta.app_label in QUEUES else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (db == "queues") == (app_label in QUEUES)
