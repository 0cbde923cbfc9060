"""Each lock with its last runs, read with as few statements as possible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connections, models
from django.db.models import Case, F, Func, Max, OuterRef, Subquery, Value, When
from django.db.models.functions import Coalesce

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.console.monitoring.traces import read_history
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.states import LockState, LockStatus, RunOutcome
from django_shedlock.models import LockRunQuerySet
from django_shedlock.models.last_runs import with_usual_duration
from django_shedlock.models.runs import BAD_OR_RUNNING
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.providers.database.reading import batches

MOST_FAILURES = 100
"""Failures in a row are counted up to this number."""
SHORT_RUN = timedelta(minutes=1)
"""A job that has run for less than this needs no look."""
UNUSUAL = 3
"""A job that runs this many times longer than usual may be stuck."""
BATCH = 10_000
"""Locks per statement: SQLite limits the number of parameters."""


@dataclass(frozen=True)
class LockSummary:
    """
    One lock with its last runs, at one instant of the store's clock.

    ``status`` is ``None`` if the lock has runs but no record. The last run is the last
    one that ended; the usual duration is the median of the last successes.
    ``failures`` counts the runs that ended since then, up to ``MOST_FAILURES``. If the
    lock was acquired since without a run in the history, the last run is not known.
    """

    name: str
    status: LockStatus | None = None
    last_success: datetime | None = None
    usual_duration: timedelta | None = None
    last_run: int | None = None
    """Its key."""
    last_loss: int | None = None
    """The key of the newest run that lost its lock."""
    last_outcome: RunOutcome | None = None
    last_duration: timedelta | None = None
    failures: int = 0


def summarize(
    provider: LockProvider,
    names: Collection[str] | None = None,
    statuses: Iterable[LockStatus] | None = None,
) -> Sequence[LockSummary]:
    """
    Return all locks of the provider, or those of these names, ordered by name.

    It sends three statements for all locks, and with ``names`` three for each thousand;
    ``statuses`` were read before, which saves one. Each lock costs some look-ups in an
    index, so a million are too many. Without the table of runs only the locks are
    known, and so if the history of another store than a database can't be read. Raises
    ``LockProviderError`` if the store failed.
    """
    if statuses is None:
        statuses = provider.statuses(LockQuery(names=names))
    alias = provider.alias
    found = {status.name: LockSummary(status.name, status) for status in statuses}

    def read(runs: LockRunQuerySet) -> list[Any]:
        newest = _newest(runs, alias, names)
        parts = (newest[at : at + BATCH] for at in range(0, len(newest), BATCH))
        return [last for some in parts for last in _last_runs(runs, alias, some)]

    for last in read_history(provider, read) if names is None or names else ():
        name, newest_by, outcome = map(last.pop, ("name", "newest_by", "last_outcome"))
        status = found[name].status if name in found else None
        if _ran_since(status, newest_by):
            last = {key: last[key] for key in KNOWN_STILL}
        else:
            last["last_outcome"] = RunOutcome(outcome) if outcome else None
        found[name] = LockSummary(name, status, **last)
    return [found[name] for name in sorted(found)]


KNOWN_STILL = ("last_success", "usual_duration", "last_loss")


def _ran_since(status: LockStatus | None, newest_by: str) -> bool:
    # With the history switched off, or by another provider, or by Java.
    if status is None or status.unreadable or Pause.parse(status.locked_by):
        return False
    # The row of a run is written a moment after its lock is acquired.
    is_settled = aware(status.clock) - aware(status.locked_at) > SHORT_RUN
    return is_settled and status.locked_by != newest_by


def is_unusual(status: LockStatus, usual: timedelta | None) -> bool:
    """Return whether a job has been running for much longer than usual."""
    if usual is None or status.state is not LockState.RUNNING:
        return False
    return status.held_for > max(SHORT_RUN, UNUSUAL * usual)


def badly_ended(provider: LockProvider, limit: int | None = None) -> list[str]:
    """
    Return the names whose last ended run was bad, the newest first.

    One statement, which reads only the index of the bad runs. Raises
    ``LockProviderError`` if the store failed.
    """

    def read(runs: LockRunQuerySet) -> list[str]:
        # A name is there once for each outcome, and for a loss.
        reach = None if limit is None else limit * (len(BAD_OR_RUNNING) + 1)
        found = runs.last_bad(provider.alias)[:reach]
        return list(dict.fromkeys(each["name"] for each in found))[:limit]

    return read_history(provider, read)


def recent_runs(
    provider: LockProvider, names: Collection[str], age: timedelta
) -> list[dict[str, Any]]:
    """
    Return the ``totals()`` of the runs of these locks that began since then.

    A dead worker's run still counts as running. One statement for each thousand names.
    Raises ``LockProviderError`` if the store failed.
    """

    def read(runs: LockRunQuerySet) -> list[dict[str, Any]]:
        since = runs.since(age).filter(provider=provider.alias)
        parts = (since.filter(name__in=some) for some in batches(sorted(names)))
        return [total for part in parts for total in part.totals()]

    return read_history(provider, read)


def history_is_outgrown(provider: LockProvider) -> bool:
    """
    Return whether runs that nobody needs are much older than their retention.

    Raises ``LockProviderError`` if the store failed.
    """
    # Those that a weekly prune would delete are not.
    age = default_duration(conf.HISTORY_RETENTION) + timedelta(days=7)

    def read(runs: LockRunQuerySet) -> list[Any]:
        return list(runs.outgrown(age).filter(provider=provider.alias)[:1])

    return bool(read_history(provider, read))


# Note [The newest run of each lock]
# GROUP BY is enough for MariaDB and MySQL: they leap through the index from name to
# name. PostgreSQL and SQLite would read the whole index, and leap only if a recursion,
# or a list of names, makes them. With the recursion MariaDB would read the whole index.
NAMES = """
    SELECT MIN(name) FROM shedlock_run
    UNION ALL
    SELECT (SELECT MIN(run.name) FROM shedlock_run run WHERE run.name > names.name)
    FROM names WHERE names.name IS NOT NULL
"""
LEAPS = """
    WITH RECURSIVE names (name) AS ({names}),
    newest (id) AS (
        SELECT (SELECT MAX(run.id) FROM shedlock_run run
                WHERE run.name = names.name AND run.provider = %s)
        FROM names
    )
    SELECT id FROM newest WHERE id IS NOT NULL
"""
NEEDS_RECURSION = {"postgresql", "sqlite"}


def _newest(
    runs: LockRunQuerySet, alias: str, names: Collection[str] | None
) -> list[int]:
    # See Note [The newest run of each lock].
    found: list[int] = []
    for some in [None] if names is None else batches(sorted(names)):
        if connections[runs.db].vendor in NEEDS_RECURSION:
            values = ", ".join(["(%s)"] * len(some or ()))
            leaps = LEAPS.format(names=f"VALUES {values}" if some else NAMES)
            found += [run.pk for run in runs.raw(leaps, [*(some or ()), alias])]
        else:
            wanted = {} if some is None else {"name__in": some}
            by_name = runs.filter(provider=alias, **wanted).values("name").order_by()
            newest = by_name.annotate(newest=Max("pk"))
            found += newest.values_list("newest", flat=True)
    return found


# Note [A count with a limit]
# PostgreSQL expects a third of a lock's runs since its success. With a million runs it
# then compiles the statement by its JIT, which takes longer than all else. A limit
# tells it better; MySQL and MariaDB can't look at the lock from within it.
LIMITED_COUNT = "(SELECT COUNT(*) FROM (%(subquery)s) limited)"


def _last_runs(
    runs: LockRunQuerySet, alias: str, newest: Sequence[int]
) -> Iterable[dict[str, Any]]:
    same = runs.filter(name=OuterRef("name"), provider=alias)
    ended, succeeded = same.ended(), same.filter(outcome=RunOutcome.SUCCEEDED)

    def last(runs: LockRunQuerySet, column: str) -> Subquery:
        return Subquery(runs.order_by("-pk").values(column)[:1])

    since: Any = same.filter(pk__gt=OuterRef("success"))
    number = models.BigIntegerField()
    count = Subquery(since.values(count=Func(F("pk"), function="COUNT")))
    if connections[runs.db].vendor in NEEDS_RECURSION:
        # See Note [A count with a limit].
        limited = since.values("pk")[:MOST_FAILURES]
        count = Subquery(limited, template=LIMITED_COUNT, output_field=number)
    # Every run since the last success is bad, except one that is still running, which
    # can only be the newest. So counting needs only the index, and one look-up tells
    # whether there are too many runs to count.
    beyond = same.order_by("-pk").values("pk")[MOST_FAILURES : MOST_FAILURES + 1]
    running = Case(When(current_outcome=RunOutcome.RUNNING, then=1), default=0)
    failures = Case(
        When(success=F("pk"), then=0),
        When(success__lt=Subquery(beyond), then=MOST_FAILURES),
        default=count - running,
        output_field=number,
    )
    success = Coalesce(last(succeeded, "pk"), Value(0))
    found: Any = runs.filter(pk__in=newest).with_outcome().alias(success=success)
    return with_usual_duration(found, same).values(  # type: ignore[no-any-return]
        "name",
        "usual_duration",
        newest_by=F("locked_by"),
        last_run=last(ended, "pk"),
        last_loss=last(same.filter(outcome=RunOutcome.LOST), "pk"),
        last_outcome=last(ended, "current_outcome"),
        last_duration=last(ended, "duration"),
        last_success=last(succeeded, "finished"),
        failures=failures,
    )
