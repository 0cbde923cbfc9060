"""Where the project's tables are."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

QUEUES = {"django_q", "django_tasks_database"}


class QueueRouter:
    """Keeps the tables of the queues apart from those of the locks."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return "queues" if model._meta.app_label in QUEUES else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (db == "queues") == (app_label in QUEUES)
