"""What is to be known of each lock at a glance, for metrics and health checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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

from django_shedlock.configuration import ZERO
from django_shedlock.exceptions import LockProviderError
from django_shedlock.models import LockRun, LockRunQuerySet
from django_shedlock.outcomes import RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database_errors import describe
from django_shedlock.providers.statements import run
from django_shedlock.states import LockState, LockStatus, is_unusual

MOST_FAILURES = 1000
"""A longer row of failures is not counted to its end."""
BATCH = 10_000
"""So many locks at a time: SQLite takes no statement with very many parameters."""


@dataclass(frozen=True)
class LockSummary:
    """
    One lock with its last runs, at one instant of the store's clock.

    ``status`` is ``None`` if only runs are left of the lock. The last run is the last
    one that ended; the usual duration is that of the last one that succeeded.
    ``failures`` counts those that did not since then, at most ``MOST_FAILURES``.
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
    def state(self) -> LockState | None:
        """The state of the lock's record, if it has one."""
        return self.status.state if self.status else None

    @property
    def locked_by(self) -> str:
        """Who took the lock last, if that is known."""
        return self.status.locked_by if self.status else ""

    @property
    def held_for(self) -> timedelta:
        """How long ago a held lock was taken; zero if it is not held."""
        return self.status.held_for if self.status else ZERO

    @property
    def is_held(self) -> bool:
        """Whether nobody can acquire the lock now."""
        return self.state is not None and self.state.is_held

    @property
    def takes_long(self) -> bool:
        """Whether the job runs for much longer than it usually does."""
        return self.status is not None and is_unusual(
            self.status.state, self.held_for, self.usual_duration
        )


def summarize(provider: LockProvider) -> Sequence[LockSummary]:
    """
    Return all locks of the provider, in the order of their names.

    Three statements, however many locks and runs there are; each lock costs some
    look-ups in an index. Without the table of runs their columns are empty. Raises
    ``LockProviderError`` if the store failed.
    """
    columns: dict[str, dict[str, Any]] = {
        status.name: {"status": status} for status in provider.statuses()
    }
    for last in _last_runs(provider):
        columns.setdefault(last["name"], {}).update(_of_runs(last))
    return [LockSummary(name=name, **columns[name]) for name in sorted(columns)]


def _of_runs(last: dict[str, Any]) -> dict[str, Any]:
    outcome = last["last_outcome"]
    return {
        "last_success": last["last_success"],
        "usual_duration": last["usual_duration"],
        "last_outcome": None if outcome is None else RunOutcome(outcome),
        "last_duration": last["last_duration"],
        "last_exception_type": last["last_exception_type"] or "",
        "failures": last["failures"],
    }


def _last_runs(provider: LockProvider) -> Iterator[dict[str, Any]]:
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
