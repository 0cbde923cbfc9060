"""What was told of findings, and when."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.db.models import F

from django_shedlock.console.models import Notice


def told() -> list[dict[str, Any]]:
    """Return what was told of the default provider."""
    row = Notice.objects.filter(provider="default").first()
    listed: list[dict[str, Any]] = json.loads(row.told) if row else []
    return listed


def pass_time(duration: timedelta) -> None:
    """Let all that was noted have happened so much earlier."""
    for row in Notice.objects.all():
        listed = json.loads(row.told)
        for each in listed:
            for key in ("found_at", "gone_at"):
                if each[key] is not None:
                    each[key] -= duration.total_seconds()
        row.told = json.dumps(listed)
        row.save()
    Notice.objects.exclude(claimed_at=None).update(
        claimed_at=F("claimed_at") - duration
    )
