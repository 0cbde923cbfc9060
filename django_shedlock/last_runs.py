"""The last runs of each lock, read with as few statements as can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from django.db import Error, connections
from django.db.models import (
    BigIntegerField,
    Case,
    F,
    Func,
    Max,
    OuterRef,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from django_shedlock.exceptions import LockProviderError
from django_shedlock.models import LockRun, LockRunQuerySet
from django_shedlock.outcomes import RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database_errors import describe
from django_shedlock.providers.statements import run

MOST_FAILURES = 1000
"""A longer row of failures is not counted to its end."""
BATCH = 10_000
"""So many locks at a time: SQLite takes no statement with very many parameters."""


def last_runs(provider: LockProvider) -> Iterator[dict[str, Any]]:
    """
    Return of each lock how its last runs were, with the words of ``LockSummary``.

    It takes one statement, and one more for each ``BATCH`` of locks. Without the table
    there is nothing. Raises ``LockProviderError`` if the store failed.
    """
    using = provider.history_database
    if using is None:
        return
    runs = LockRun.objects.using(using)
    try:
        newest = _read(provider, _newest(runs, provider.alias))
    except LockProviderError:
        if _has_table(using):
            raise
        return
    for start in range(0, len(newest), BATCH):
        batch = runs.filter(pk__in=newest[start : start + BATCH])
        found = _with_last_runs(batch, provider.alias)
        yield from _read(provider, partial(list, found))


def _has_table(using: str) -> bool:
    tables = connections[using].introspection.table_names()
    return LockRun._meta.db_table in tables


def _read(provider: LockProvider, statement: Callable[[], list[Any]]) -> list[Any]:
    try:
        return run(statement, str(provider.history_database))
    except Error as error:
        raise LockProviderError(
            f"Could not read the runs in database {provider.history_database!r} "
            f"(provider {provider.alias!r}): {describe(error)}"
        ) from error


# Note [The newest run of each lock]
# GROUP BY would be all that is needed, and MariaDB and MySQL leap through the index
# from name to name for it. PostgreSQL and SQLite read all of the index instead. The
# recursion makes them leap, too; there again MariaDB would read all of it.
LEAPS = """
    WITH RECURSIVE names (name) AS (
        SELECT MIN(name) FROM shedlock_run
        UNION ALL
        SELECT (SELECT MIN(run.name) FROM shedlock_run run WHERE run.name > names.name)
        FROM names WHERE names.name IS NOT NULL
    ),
    newest (id) AS (
        SELECT (
            SELECT MAX(run.id) FROM shedlock_run run
            WHERE run.name = names.name AND run.provider = %s
        )
        FROM names
    )
    SELECT id FROM newest WHERE id IS NOT NULL
"""
HAS_TO_BE_TOLD_TO_LEAP = {"postgresql", "sqlite"}


def _newest(runs: LockRunQuerySet, alias: str) -> Callable[[], list[int]]:
    # See Note [The newest run of each lock].
    if connections[runs.db].vendor in HAS_TO_BE_TOLD_TO_LEAP:
        return lambda: [row.pk for row in runs.raw(LEAPS, [alias])]
    names = runs.filter(provider=alias).values("name").order_by()
    return lambda: list(
        names.annotate(newest=Max("pk")).values_list("newest", flat=True)
    )


def _with_last_runs(runs: LockRunQuerySet, alias: str) -> Iterable[dict[str, Any]]:
    same = LockRun.objects.using(runs.db).filter(name=OuterRef("name"), provider=alias)
    ended = same.ended().order_by("-pk")
    succeeded = same.filter(outcome=RunOutcome.SUCCEEDED).order_by("-pk")
    found: Any = (
        runs.with_outcome()
        .annotate(
            last_outcome=_first(ended, "current_outcome"),
            last_duration=_first(ended, "duration"),
            last_exception_type=_first(ended, "exception_type"),
            last_success=_first(succeeded, "finished"),
            usual_duration=_first(succeeded, "duration"),
            success=Coalesce(_first(succeeded, "pk"), Value(0)),
        )
        .annotate(failures=_failures(same))
    )
    return found.values(  # type: ignore[no-any-return]
        "name",
        "last_outcome",
        "last_duration",
        "last_exception_type",
        "last_success",
        "usual_duration",
        "failures",
    )


def _first(runs: QuerySet[Any], column: str) -> Subquery:
    return Subquery(runs.values(column)[:1])


def _failures(same: LockRunQuerySet) -> Case:
    # Whatever is newer than the last success is bad, but for a job that is running:
    # only the newest run can be one. So counting needs nothing but the index, and is
    # bounded by a look at the run that would be one too many.
    beyond = same.order_by("-pk").values("pk")[MOST_FAILURES : MOST_FAILURES + 1]
    since = same.filter(pk__gt=OuterRef("success"))
    count = since.annotate(count=Func(F("pk"), function="COUNT")).values("count")
    running = Case(When(current_outcome=RunOutcome.RUNNING, then=1), default=0)
    return Case(
        When(success=F("pk"), then=0),
        When(success__lt=Subquery(beyond), then=MOST_FAILURES),
        default=Subquery(count) - running,
        output_field=BigIntegerField(),
    )
