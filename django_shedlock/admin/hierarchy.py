"""The hierarchy of dates above a list of very many runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max, Min
from django.utils import timezone

from django_shedlock.models import LockRunQuerySet


class SpannedRunQuerySet(LockRunQuerySet):
    """
    Runs whose dates are all between those of the first and the last.

    Django asks each row for its date, which takes seconds with a million of them, and
    on MySQL needs tables of time zones.
    """

    def datetimes(self, field_name: str, kind: str, **options: Any) -> Any:  # type: ignore[override]
        """Return each year, month or day from the first run to the last."""
        span = self.aggregate(first=Min(field_name), last=Max(field_name))
        if span["first"] is None:
            return []
        return list(_steps(_local(span["first"]), _local(span["last"]), kind))


def _local(moment: datetime) -> datetime:
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def _steps(first: datetime, last: datetime, kind: str) -> Iterator[datetime]:
    day = first.replace(hour=0, minute=0, second=0, microsecond=0)
    day = day.replace(day=1) if kind in {"month", "year"} else day
    day = day.replace(month=1) if kind == "year" else day
    while day <= last:
        yield day
        day = _next(day, kind)


def _next(day: datetime, kind: str) -> datetime:
    if kind == "year":
        return day.replace(year=day.year + 1)
    if kind == "month":
        return (day + timedelta(days=31)).replace(day=1)
    return day + timedelta(days=1)
