"""Read one lock, or all that operators want."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Q, QuerySet

from django_shedlock.locks.patterns import WILDCARD
from django_shedlock.locks.status import NOT_FREE, LockState, LockStatus
from django_shedlock.models import LockRecord, LockRecordQuerySet
from django_shedlock.models.records import (
    STATUS_COLUMNS,
    has_open_run,
    held,
    may_have_passed_over,
    needs_look,
    overdue,
    status_from_row,
)
from django_shedlock.providers.base import LockQuery
from django_shedlock.sql.compiling import Select, on_connection, text
from django_shedlock.sql.connections import read_rows

T = TypeVar("T")

RECORDS_PER_READ = 500


def read(connection: BaseDatabaseWrapper, name: str) -> LockStatus | None:
    """Return the lock of this name."""
    for row in read_one(connection, name=name):
        return status_from_row(name, row)
    return None


@Select
def read_one() -> QuerySet[LockRecord, object]:
    """Read the record of this name."""
    records = LockRecord.objects.filter(name=text("name")).with_status()
    return records.values_list(*STATUS_COLUMNS)


def find(using: str, query: LockQuery) -> Iterator[LockStatus]:
    """Return the wanted locks; read a page of them whenever the caller needs one."""
    found: Iterator[LockStatus]
    records = wanted(using, query)
    if query.names is not None:
        found = chain.from_iterable(
            _read(records.filter(name__in=some).order_by("name"))
            for some in batches(sorted(query.names))
        )
        found = iter(query.select(found)) if query.by_urgency else found
    elif query.by_urgency:
        found = _most_urgent(records.by_urgency(query.overdue_by), query)
    elif query.by_newest_start:
        newest = records.order_by("-locked_at", "name")
        found = iter(_read(newest[: query.limit]))
    else:
        found = _pages(records.order_by("name"))
    # Patterns are Python's; of those the database knows only parts. So are ticks: see
    # Note [Ticks after a pause], and Note [Ticks that were passed over].
    is_exact = query.overdue_by is None and not query.passed_over
    accepted = (
        each
        for each in found
        if (query.accepts_name(each.name) if is_exact else query.accepts(each))
    )
    return islice(accepted, query.limit)


def count(connection: BaseDatabaseWrapper, query: LockQuery) -> int:
    """Return the number of the wanted locks; of ticks and names it can't know all."""
    return on_connection(wanted(connection.alias, query), connection).count()


def wanted(using: str, query: LockQuery) -> LockRecordQuerySet:
    """Return the wanted records, and few others: those that match a pattern's parts."""
    records: LockRecordQuerySet = LockRecord.objects.using(using).with_status()
    is_wanted, states = Q(), frozenset(query.states)
    if states:
        # Most locks are free: to compute the state of each takes four times as long.
        in_state = Q() if LockState.FREE in states else held() | has_open_run()
        is_wanted = in_state if states == NOT_FREE else in_state & Q(state__in=states)
    if query.overdue_by is not None:
        is_wanted |= overdue(query.overdue_by)
    if query.needs_look:
        is_wanted |= needs_look()
    if query.passed_over:
        is_wanted |= may_have_passed_over()
    if query.requested:
        is_wanted |= Q(asked_at__isnull=False)
    if query.by_newest_start:
        records = records.filter(schedule__isnull=False)
    found: LockRecordQuerySet = records.filter(is_wanted, may_match(query.patterns))
    return found


def may_match(patterns: Collection[str]) -> Q:
    """Return a condition on ``name`` that all matching names fulfil, and few others."""
    condition = Q()
    for pattern in patterns:
        condition |= Q(name=pattern)
        beginning, *others = WILDCARD.split(pattern)
        if others:
            parts = Q(name__startswith=beginning)
            for part in filter(None, others):
                parts &= Q(name__contains=part)
            condition |= parts
    return condition


def _most_urgent(records: LockRecordQuerySet, query: LockQuery) -> Iterator[LockStatus]:
    if not query.patterns and not query.ignored:
        yield from _read(records[: query.limit])
        return
    # The limit counts only what the patterns leave.
    names = records.values_list("name", flat=True)
    found = read_rows(names, records.db)
    kept = islice(filter(query.accepts_name, found), query.limit)
    chosen = LockRecord.objects.using(records.db).with_status()
    for some in batches(kept):
        by_name = {each.name: each for each in _read(chosen.filter(name__in=some))}
        yield from (by_name[name] for name in some if name in by_name)


def batches(values: Iterable[T]) -> Iterator[Sequence[T]]:
    """Return the values in parts that fit into a statement."""
    remaining = iter(values)
    while some := list(islice(remaining, RECORDS_PER_READ)):
        yield some


def _pages(records: LockRecordQuerySet) -> Iterator[LockStatus]:
    page = records
    while read := _read(page[:RECORDS_PER_READ]):
        yield from read
        if len(read) < RECORDS_PER_READ:
            return
        page = records.filter(name__gt=read[-1].name)


def _read(records: LockRecordQuerySet) -> list[LockStatus]:
    return [each.status for each in read_rows(records, records.db)]
