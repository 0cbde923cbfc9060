"""Dates, pages and views for a table with a million rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property

from django_shedlock.console.admin.base import ConsoleAdmin
from django_shedlock.console.admin.failures import tells_failure
from django_shedlock.models import LockRunQuerySet


class SpannedRunQuerySet(LockRunQuerySet):
    """
    Runs that offer all dates from the first run to the last.

    Django reads the date of each row, which takes seconds for a million of them, and
    on MySQL needs tables of time zones. Rows are created as runs start, so the first
    and the last row are enough.
    """

    def aggregate(self, *args: Any, **expressions: Any) -> dict[str, Any]:
        """Return when the first and the last run began, if asked for just these."""
        if expressions.keys() == {"first", "last"}:
            return self._span
        return super().aggregate(*args, **expressions)

    def datetimes(self, field_name: str, kind: str, **options: Any) -> Any:  # type: ignore[override]
        """Return each year, month or day from the first run to the last."""
        first, last = map(_local, self._span.values())
        return list(_starts(first, last, kind)) if first and last else []

    @cached_property
    def _span(self) -> dict[str, datetime | None]:
        started = self.order_by("pk").values_list("started", flat=True)
        return {"first": started.first(), "last": started.last()}


def _local(moment: datetime | None) -> datetime | None:
    is_aware = moment is not None and timezone.is_aware(moment)
    return timezone.localtime(moment) if is_aware else moment


def _starts(first: datetime, last: datetime, kind: str) -> Iterator[datetime]:
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


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts only as many rows as anybody pages through, so counting stays quick."""

    most = 10_000

    @cached_property
    def count(self) -> int:
        """Return the number of rows, or ``most`` if there are more."""
        return min(self._counted, self.most)

    @property
    def is_capped(self) -> bool:
        """Whether there are more rows than ``count`` says."""
        return self._counted > self.most

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: self.most + 1].count())


class LargeTableAdmin(ConsoleAdmin):
    """A read-only view of a table that grows with each run, the newest row first."""

    list_per_page = 50
    ordering = ("-pk",)
    sortable_by = ()
    actions = None
    paginator = CappedPaginator

    @tells_failure
    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show the rows."""
        return super().changelist_view(request, *args, **kwargs)

    @tells_failure
    def change_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show a row's page."""
        return super().change_view(request, *args, **kwargs)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: a row is written when what it tells of begins."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: nobody rewrites what has happened."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: ``shedlock prune`` deletes old rows."""
        return False
