"""Each lock with its last runs, read with as few statements as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import Error, connections, models
from django.db.models import Case, F, Func, Max, OuterRef, Subquery, Value, When
from django.db.models.functions import Coalesce

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.states import LockStatus, RunOutcome, is_unusual
from django_shedlock.models import LockRun, LockRunQuerySet
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database.connections import run_here
from django_shedlock.providers.database.errors import describe

MOST_FAILURES = 1000
"""Failures in a row are counted up to this number."""
BATCH = 10_000
"""Locks per statement: SQLite limits the number of parameters."""


@dataclass(frozen=True)
class LockSummary:
    """
    One lock with its last runs, at one instant of the store's clock.

    ``status`` is ``None`` if the lock has runs but no record. The last run is the last
    one that ended; the usual duration is that of the last one that succeeded.
    ``failures`` counts the runs that ended since then, up to ``MOST_FAILURES``.
    """

    name: str
    status: LockStatus | None = None
    last_success: datetime | None = None
    usual_duration: timedelta | None = None
    last_outcome: RunOutcome | None = None
    last_duration: timedelta | None = None
    last_exception_type: str = ""
    failures: int = 0

    @property
    def is_held(self) -> bool:
        """Whether nobody can acquire the lock now."""
        return self.status is not None and self.status.state.is_held

    @property
    def takes_long(self) -> bool:
        """Whether the job runs for much longer than it usually does."""
        return self.status is not None and is_unusual(
            self.status.state, self.status.held_for, self.usual_duration
        )


def summarize(provider: LockProvider) -> Sequence[LockSummary]:
    """
    Return all locks of the provider, in the order of their names.

    It sends three statements, however many locks and runs there are; each lock costs
    some look-ups in an index. Without the table of runs only the locks are known.
    Raises ``LockProviderError`` if the store failed.
    """
    columns: dict[str, dict[str, Any]] = {
        status.name: {"name": status.name, "status": status}
        for status in provider.statuses()
    }
    for last in _last_runs(provider):
        columns.setdefault(last["name"], {}).update(last)
    return [LockSummary(**columns[name]) for name in sorted(columns)]


def _last_runs(provider: LockProvider) -> Iterator[dict[str, Any]]:
    # What the runs of each lock tell, by the names of LockSummary.
    using = provider.history_database
    if using is None:
        return
    runs = LockRun.objects.using(using)
    try:
        newest = _read(provider, partial(_newest, runs, provider.alias))
    except LockProviderError:
        if _has_table(using):
            raise
        return
    for start in range(0, len(newest), BATCH):
        batch = runs.filter(pk__in=newest[start : start + BATCH])
        found = _with_last_runs(batch, provider.alias)
        for last in _read(provider, partial(list, found)):
            outcome = last["last_outcome"]
            yield {**last, "last_outcome": RunOutcome(outcome) if outcome else None}


def _has_table(using: str) -> bool:
    tables = connections[using].introspection.table_names()
    return LockRun._meta.db_table in tables


def _read(provider: LockProvider, statement: Callable[[], list[Any]]) -> list[Any]:
    try:
        return run_here(statement, str(provider.history_database))
    except Error as error:
        raise LockProviderError(
            f"Could not read the runs in database {provider.history_database!r} "
            f"(provider {provider.alias!r}): {describe(error)}"
        ) from error


# Note [The newest run of each lock]
# GROUP BY is enough for MariaDB and MySQL: they leap through the index from name to
# name. PostgreSQL and SQLite would read the whole index, and leap only if a recursion
# makes them. With the recursion MariaDB would read the whole index.
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
NEEDS_RECURSION = {"postgresql", "sqlite"}


def _newest(runs: LockRunQuerySet, alias: str) -> list[int]:
    # See Note [The newest run of each lock].
    if connections[runs.db].vendor in NEEDS_RECURSION:
        return [run.pk for run in runs.raw(LEAPS, [alias])]
    names = runs.filter(provider=alias).values("name").order_by()
    return list(names.annotate(newest=Max("pk")).values_list("newest", flat=True))


def _with_last_runs(runs: LockRunQuerySet, alias: str) -> Iterable[dict[str, Any]]:
    same = LockRun.objects.using(runs.db).filter(name=OuterRef("name"), provider=alias)
    ended = same.ended().order_by("-pk")
    succeeded = same.filter(outcome=RunOutcome.SUCCEEDED).order_by("-pk")
    success = Coalesce(_first(succeeded, "pk"), Value(0))
    found: Any = runs.with_outcome().alias(success=success)
    return found.values(  # type: ignore[no-any-return]
        "name",
        last_outcome=_first(ended, "current_outcome"),
        last_duration=_first(ended, "duration"),
        last_exception_type=Coalesce(_first(ended, "exception_type"), Value("")),
        last_success=_first(succeeded, "finished"),
        usual_duration=_first(succeeded, "duration"),
        failures=_failures(same),
    )


def _first(runs: models.QuerySet[Any], column: str) -> Subquery:
    return Subquery(runs.values(column)[:1])


def _failures(same: LockRunQuerySet) -> Case:
    # Every run since the last success is bad, except one that is still running, which
    # can only be the newest. So counting needs only the index, and one look-up tells
    # whether there are too many runs to count.
    beyond = same.order_by("-pk").values("pk")[MOST_FAILURES : MOST_FAILURES + 1]
    since = same.filter(pk__gt=OuterRef("success"))
    count = since.annotate(count=Func(F("pk"), function="COUNT")).values("count")
    running = Case(When(current_outcome=RunOutcome.RUNNING, then=1), default=0)
    return Case(
        When(success=F("pk"), then=0),
        When(success__lt=Subquery(beyond), then=MOST_FAILURES),
        default=Subquery(count) - running,
        output_field=models.BigIntegerField(),
    )
