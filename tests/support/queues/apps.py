"""The project's one app."""

from __future__ import annotations

from django.apps import AppConfig


class QueuesConfig(AppConfig):
    """Tells the test of each skip."""

    name = "tests.support.queues"

    def ready(self) -> None:
        from django_shedlock.signals import lock_not_acquired
        from tests.support.queues.notes import note_skip

        lock_not_acquired.connect(note_skip)
