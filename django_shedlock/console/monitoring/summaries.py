"""Each lock with its last runs, read with as few statements as possible."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from django.db import connections, models
from django.db.models import Case, F, Func, OuterRef, Subquery, Value, When
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce

from django_shedlock.clocks import aware
from django_shedlock.console.monitoring.repetitions import Repetition
from django_shedlock.console.monitoring.traces import Trace, read_history
from django_shedlock.fields import DatabaseNow, UTCDateTimeField
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.states import LockState, LockStatus, RunOutcome
from django_shedlock.models import LockRun, LockRunQuerySet
from django_shedlock.models.last_runs import with_usual_duration
from django_shedlock.models.runs import BAD, BAD_OR_RUNNING
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.providers.database.reading import batches, named
from django_shedlock.providers.database.statements import Select, text

MOST_FAILURES = 100
"""Failures in a row are counted up to this number."""
SHORT_RUN = timedelta(minutes=1)
"""A job that has run for less than this needs no look."""
UNUSUAL = 3
"""A job that runs this many times longer than usual may be stuck."""


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
    bad: Sequence[Trace] = ()
    """The last run if it ended badly, and the newest one that lost its lock."""
    last_outcome: RunOutcome | None = None
    last_duration: timedelta | None = None
    failures: int = 0
    repetition: Repetition | None = None
    """That of a lock without a schedule, whose ticks are not known."""


def summarize(
    provider: LockProvider,
    names: Collection[str],
    statuses: Iterable[LockStatus] | None = None,
    repeated: Mapping[str, Repetition] = MappingProxyType({}),
) -> Sequence[LockSummary]:
    """
    Return the provider's locks of these names, ordered by name.

    It sends two statements for each batch; ``statuses`` were read before, which saves
    one, and so were ``repetitions()``, if they count. Each lock costs some look-ups in
    an index, so a million are too many. Without the table of runs only the locks are
    known, and so if the history of another store than a database can't be read. Raises
    ``LockProviderError`` if the store failed.
    """
    if statuses is None:
        statuses = provider.statuses(LockQuery(names=names))
    found = {status.name: LockSummary(status.name, status) for status in statuses}

    def read(runs: LockRunQuerySet) -> list[Any]:
        rows: list[Any] = []
        for some in batches(sorted(names)):
            given = named(some)
            select = _last_runs(runs.db, provider.alias, len(given))
            rows += select(connections[runs.db], **given)
        # SQLite would read a whole index for an order.
        return sorted(rows, key=lambda row: (row[1], -row[0]))

    rows = read_history(provider, read) if names else []
    for name, of_lock in groupby(rows, key=itemgetter(1)):
        status = found[name].status if name in found else None
        found[name] = _summary(name, status, of_lock)
    for name in found.keys() & repeated.keys():
        status = found[name].status
        if status is None or status.schedule_state.due_at is None:
            found[name] = replace(found[name], repetition=repeated[name])
    return [found[name] for name in sorted(found)]


def _summary(name: str, status: LockStatus | None, rows: Iterable[Any]) -> LockSummary:
    """Return the lock with these runs, the newest first."""
    runs = []
    for *columns, clock, outcome, usual, success, failures in rows:
        run = LockRun(**dict(zip(COLUMNS, columns, strict=True)))
        vars(run)["clock"] = clock
        runs.append((run, RunOutcome(outcome), usual, success, failures))
    (newest, *_, usual, success, failures), *_ = runs
    last = {"last_success": success, "usual_duration": usual}
    ended = [each for each in runs if each[1] is not RunOutcome.RUNNING]
    bad = [run for run, *_ in ended if run.outcome == RunOutcome.LOST][:1]
    if ended and not _ran_since(status, newest.locked_by):
        run, outcome, *_ = ended[0]
        last |= {
            "last_run": run.pk,
            "last_outcome": outcome,
            "last_duration": run.duration,
            "failures": failures,
        }
        bad[:0] = [run] if outcome in BAD and run not in bad else []
    return LockSummary(name, status, **last, bad=[Trace(run) for run in bad])


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
        found = _last_bad(runs.db, provider.alias, limit)(connections[runs.db])
        return list(dict.fromkeys(name for name, *_ in found))[:limit]

    return read_history(provider, read)


@lru_cache
def _last_bad(using: str, alias: str, limit: int | None) -> Select:
    # A name is there once for each outcome, and for a loss.
    reach = None if limit is None else limit * (len(BAD_OR_RUNNING) + 1)
    runs = LockRun.objects.using(using)
    return Select(lambda: runs.last_bad(alias)[:reach])


# Note [The newest run of each lock]
# GROUP BY is enough for MariaDB and MySQL: they leap through the index from name to
# name. PostgreSQL and SQLite would read all their entries, and leap only if a table of
# names makes them.
LEAPS = """
    WITH names (name) AS (VALUES {names}),
    newest (name, id) AS (
        SELECT name, (SELECT MAX(run.id) FROM shedlock_run run
                      WHERE run.name = names.name AND run.provider = %s)
        FROM names
    )
"""
GROUPS = """
    WITH newest (name, id) AS (
        SELECT name, MAX(id) FROM shedlock_run
        WHERE name IN ({names}) AND provider = %s GROUP BY name
    )
"""
NEEDS_TABLE = {"postgresql", "sqlite"}
# Only the newest run can still go on; then the one before it is the last that ended.
# For a join SQLite would read the whole table.
KEYS = """
    SELECT wanted.id FROM (
        SELECT id FROM newest
        UNION ALL
        SELECT (SELECT ended.id FROM shedlock_run ended
                WHERE ended.name = newest.name AND ended.provider = %s
                AND ended.id < newest.id ORDER BY ended.id DESC LIMIT 1)
        FROM newest WHERE 'running' =
            (SELECT run.outcome FROM shedlock_run run WHERE run.id = newest.id)
        UNION ALL
        SELECT (SELECT MAX(loss.id) FROM shedlock_run loss
                WHERE loss.outcome = 'lost' AND loss.name = newest.name
                AND loss.provider = %s)
        FROM newest
    ) wanted WHERE wanted.id IS NOT NULL
"""


# Note [A count with a limit]
# PostgreSQL expects a third of a lock's runs since its success. With a million runs it
# then compiles the statement by its JIT, which takes longer than all else. A limit
# tells it better; MySQL and MariaDB can't look at the lock from within it.
LIMITED_COUNT = "(SELECT COUNT(*) FROM (%(subquery)s) limited)"
COLUMNS = (
    *("pk", "name", "locked_by", "outcome", "finished", "duration", "lost_at"),
    *("exception_type", "exception_message"),
)
"""What findings tell of a run."""


@lru_cache
def _last_runs(using: str, alias: str, size: int) -> Select:
    """Return the runs that count of so many locks."""
    # See Note [The newest run of each lock].
    leaps = connections[using].vendor in NEEDS_TABLE
    given = [text(f"name{number}") for number in range(size)]
    newest, place = (LEAPS, "(%s)") if leaps else (GROUPS, "%s")
    keys = newest.format(names=", ".join([place] * size)) + KEYS
    runs = LockRun.objects.using(using)
    same = runs.filter(name=OuterRef("name"), provider=alias)
    succeeded = same.filter(outcome=RunOutcome.SUCCEEDED).order_by("-pk")
    since: Any = same.filter(pk__gt=OuterRef("success"))
    number = models.BigIntegerField()
    count = Subquery(since.values(count=Func(F("pk"), function="COUNT")))
    if leaps:
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
    success = Coalesce(Subquery(succeeded.values("pk")[:1]), Value(0))
    found: Any = runs.filter(pk__in=RawSQL(keys, [*given, *[alias] * 3]))  # noqa: S611
    found = found.with_outcome().alias(success=success)
    return Select(
        lambda: with_usual_duration(found, same).values_list(
            *COLUMNS,
            DatabaseNow(output_field=UTCDateTimeField()),
            "current_outcome",
            "usual_duration",
            Subquery(succeeded.values("finished")[:1]),
            failures,
        )
    )
