"""The hierarchy of dates above a list of very many runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.utils import timezone

from django_shedlock.models import LockRunQuerySet


class SpannedRunQuerySet(LockRunQuerySet):
    """
    Runs whose dates are all those between the first and the last.

    Django asks each row for its date, which takes seconds with a million of them, and
    on MySQL needs tables of time zones. Rows are made as runs begin, so the first and
    the last row tell enough.
    """

    def aggregate(self, *args: Any, **expressions: Any) -> dict[str, Any]:
        """Return when the first and the last run began, if that is the question."""
        if expressions.keys() == {"first", "last"}:
            return self._span
        return super().aggregate(*args, **expressions)

    def datetimes(self, field_name: str, kind: str, **options: Any) -> Any:  # type: ignore[override]
        """Return each year, month or day from the first run to the last."""
        first, last = map(_local, self._span.values())
        return list(_steps(first, last, kind)) if first and last else []

    @cached_property
    def _span(self) -> dict[str, datetime | None]:
        started = self.order_by("pk").values_list("started", flat=True)
        return {"first": started.first(), "last": started.last()}


def _local(moment: datetime | None) -> datetime | None:
    return (
        timezone.localtime(moment) if moment and timezone.is_aware(moment) else moment
    )


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
