"""What readers were told of findings, and when."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import F

from django_shedlock.console.models import Notice

INSTANTS = ("told_at", "claimed_at", "gone_at")


def told() -> list[Notice]:
    """Return what was told of the default provider, by lock."""
    return [*Notice.objects.filter(provider="default").order_by("lock", "fact")]


def pass_time(duration: timedelta) -> None:
    """Let all that was noted have happened so much earlier."""
    for column in INSTANTS:
        known = Notice.objects.exclude(**{column: None})
        known.update(**{column: F(column) - duration})
