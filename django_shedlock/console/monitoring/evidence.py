"""What the audit log and the history say of locks, beside their records."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from django.db import Error
from django.db.models import Model, Q, QuerySet
from django.utils.text import Truncator

from django_shedlock.clocks import aware
from django_shedlock.console.models import ActionKind, ActionResult, LockAction
from django_shedlock.console.monitoring.findings import Acknowledgement
from django_shedlock.console.monitoring.kinds import Kind, fact_of
from django_shedlock.locks.status import LockStatus, RunOutcome
from django_shedlock.models import LockRun
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database.reading import batches
from django_shedlock.schedules.state import Trigger
from django_shedlock.signals import logger
from django_shedlock.sql.connections import read_rows
from django_shedlock.sql.errors import describe, is_missing_table, migrate_command
from django_shedlock.sql.fields import StatementNow

R = TypeVar("R")

MESSAGE_MAX_LENGTH = 200
LOSSES_WITH_RIVAL_LIMIT = 20
"""After an outage there may be many losses, and nobody reads all of them."""
RIVAL_ROW_LIMIT = 200
SCHEDULED_RUN_LIMIT = 100
"""The run that began last is among the last so many that ended."""


@dataclass(frozen=True)
class BadRun:
    """A run that ended badly, or lost its lock, as its lock's record tells it."""

    locked_by: str
    outcome: RunOutcome
    lost_at: datetime | None = None
    may_still_run: bool = False
    """Whether nobody knows that its job has ended."""
    is_last: bool = True
    """Whether no later run has ended."""

    @property
    def fact(self) -> str:
        """The fact of the finding about it."""
        return fact_of(self.outcome.value, self.locked_by)


def bad_runs_of(status: LockStatus) -> list[BadRun]:
    """Return the last run if it ended badly, and the last loss if that is recent."""
    job, found = status.job, []
    last_run = job.last_run or ""
    # Another version may have written an outcome that is not known here.
    known = (outcome for outcome in RunOutcome if outcome == job.outcome)
    outcome = next(known, None)
    if outcome is not None and outcome.is_bad:
        lost_at = job.lost_at if job.lost_run == last_run else None
        found.append(BadRun(last_run, outcome, lost_at, job.may_still_run))
    if status.has_recent_loss and job.lost_run and job.lost_run != last_run:
        # The record does not say any more whether its body has ended.
        loss = BadRun(job.lost_run, RunOutcome.LOST, job.lost_at, is_last=False)
        found.append(loss)
    return found


def first_line(message: str) -> str:
    """Return the shortened first line of what a run raised; may be empty."""
    line = message.strip().partition("\n")[0].rstrip(" .\r")
    return Truncator(line).chars(MESSAGE_MAX_LENGTH)


@dataclass(frozen=True)
class Evidence:
    """
    What else is known of a lock.

    ``actions`` are what operators did to it, the newest first; ``rows`` are those of
    the history, by their ``locked_by``. ``rivals`` maps a run that lost its lock to the
    first run that began beside it.
    """

    actions: Sequence[LockAction] = ()
    rows: Mapping[str, LockRun] = field(default_factory=dict)
    rivals: Mapping[str, LockRun] = field(default_factory=dict)

    def row_of(self, run: BadRun) -> LockRun:
        """Return the run's row of the history; an empty one if there is none."""
        return self.rows.get(run.locked_by) or LockRun()

    def release_of(self, locked_by: str) -> LockAction | None:
        """Return the release of this acquisition by force, if there was one."""
        for action in self.actions:
            if action.kind == ActionKind.RELEASE and action.locked_by == locked_by:
                return action
        return None

    def acknowledgement(self, fact: str) -> Acknowledgement | None:
        """Return by whom, when and why the fact was acknowledged, if it was."""
        for action in self.actions:
            if fact in action.facts.splitlines():
                return Acknowledgement(
                    action.operator,
                    action.began,
                    action.until,
                    action.reason,
                    action.process_is_gone,
                )
        return None

    def is_gone(self, fact: str) -> bool:
        """Return whether an operator said that the process of this run is gone."""
        return any(
            action.process_is_gone and fact in action.facts.splitlines()
            for action in self.actions
        )

    def suspect(self, bad: Iterable[BadRun], expired: str) -> str:
        """Return a run that nobody has reported as gone; empty if there is none."""
        ran = [each.locked_by for each in bad if each.may_still_run]
        facts = {each.locked_by: each.fact for each in bad}
        if expired:
            ran.append(expired)
            facts[expired] = fact_of(Kind.EXPIRED, expired)
        return next((run for run in ran if not self.is_gone(facts[run])), "")


@dataclass(frozen=True)
class Problem:
    """Why a database can't be read, and the command that helps, if any does."""

    text: str
    migrate: str = ""

    @classmethod
    def of(cls, error: Error, using: str) -> "Problem":
        """Return what this error of the database ``using`` means."""
        if is_missing_table(error):
            text = f"a table is missing in database {using!r}"
            return cls(text, migrate_command(using))
        return cls(f"database {using!r}: {describe(error)}")


@dataclass(frozen=True)
class PausedTime:
    """A time in which a job was paused; ``ended`` is ``None`` if no end is known."""

    began: datetime
    ended: datetime | None


class Past:
    """
    What the history of a provider, and the audit log beside it, say of its locks.

    If the database can't be read, ``problem`` says why, and it is not asked again: each
    try would take as long. A provider without a history has no past.
    """

    def __init__(self, provider: LockProvider):
        self._provider = provider
        self.problem: Problem | None = None
        """Why the past can't be read; ``None`` if it can."""
        self.has_read_runs: bool = False
        """Whether runs were read; then the history can be read."""

    def actions(self, names: Collection[str]) -> Mapping[str, Sequence[LockAction]]:
        """
        Return the releases by force and the acknowledgements of locks, newest first.

        One statement for each batch.
        """
        counts = Q(until=None) | Q(until__gt=StatementNow())
        tells = ~Q(facts="") | Q(kind=ActionKind.RELEASE)
        done = LockAction.objects.filter(result=ActionResult.DONE)
        mine = done.filter(counts, tells, provider=self._provider.alias)
        newest = mine.order_by("-pk")
        found: dict[str, list[LockAction]] = {}
        for some in batches(sorted(names)):
            for action in self.read(newest.filter(name__in=some)):
                found.setdefault(action.name, []).append(action)
        return found

    def pauses(
        self, names: Collection[str], since: datetime
    ) -> dict[str, list[PausedTime]]:
        """
        Return when these jobs were paused after ``since``, the oldest time first.

        One statement.
        """
        ends = {ActionKind.RESUME, ActionKind.RELEASE}
        changes = LockAction.objects.filter(
            name__in=names,
            provider=self._provider.alias,
            kind__in=[ActionKind.PAUSE, *ends],
            result=ActionResult.DONE,
            ended__gte=since,
        )
        found: dict[str, list[PausedTime]] = {}
        # An operator may wait for the end of a run: the pause begins after that.
        told = changes.order_by("pk").values_list("name", "kind", "ended", "until")
        for name, kind, ended, until in self.read(told):
            pauses, moment = found.setdefault(name, []), aware(ended)
            former = pauses[-1] if pauses else None
            if former and (former.ended is None or former.ended > moment):
                pauses[-1] = PausedTime(former.began, moment)
            elif not former and kind == ActionKind.RESUME:  # it began before
                pauses.append(PausedTime(since, moment))
            if kind == ActionKind.PAUSE:
                pauses.append(PausedTime(moment, until and aware(until)))
        return found

    def rows(self, runs: Collection[str]) -> dict[str, LockRun]:
        """
        Return these runs by their ``locked_by``, as far as the history has them.

        One statement for each batch.
        """
        told = LockRun.objects.defer("exception_traceback")
        return {
            row.locked_by: row
            for some in batches(sorted(runs))
            for row in self.read(told.filter(locked_by__in=some))
        }

    def rivals(self, losses: Mapping[str, LockRun]) -> dict[str, LockRun]:
        """
        Return the first run that began while one of these ran, which lost its lock.

        ``losses`` are rows by the names of their locks; the result is by their
        ``locked_by``. One statement; none if there are many losses.
        """
        if not losses or len(losses) > LOSSES_WITH_RIVAL_LIMIT:
            return {}
        beside = Q()
        for name, loss in losses.items():
            began_later = Q(name=name, started__gt=loss.started)
            ended_later = Q(ended__gt=loss.started)  # which has an index
            beside |= began_later & ended_later & Q(started__lt=loss.ended)
        mine = LockRun.objects.filter(beside, provider=self._provider.alias)
        told = mine.defer("exception_message", "exception_traceback")
        found: dict[str, LockRun] = {}
        for row in self.read(told.order_by("started")[:RIVAL_ROW_LIMIT]):
            found.setdefault(losses[row.name].locked_by, row)
        return found

    def triggers(self, runs: Collection[str]) -> dict[str, str]:
        """
        Return what started these runs, by their ``locked_by``, as far as it is known.

        One statement for each batch.
        """
        known = LockRun.objects.exclude(trigger="").values_list("locked_by", "trigger")
        return dict(
            row
            for some in batches(sorted(runs))
            for row in self.read(known.filter(locked_by__in=some))
        )

    def scheduled_runs(
        self, names: Collection[str], since: datetime | None
    ) -> list[LockRun]:
        """
        Return the last runs of these jobs that a scheduler started, the newest first.

        Only those that ended after ``since``, if that is given. One statement.
        """
        if not names:
            return []
        mine = LockRun.objects.filter(
            name__in=names,
            provider=self._provider.alias,
            trigger__in=(Trigger.SCHEDULER, Trigger.RETRY),
            started__isnull=False,
        )
        if since is not None:
            mine = mine.filter(ended__gt=since)
        told = mine.only("name", "locked_by", "started")
        return self.read(told.order_by("-ended")[:SCHEDULED_RUN_LIMIT])

    def oldest_end(self) -> datetime | None:
        """Return when the oldest run ended; ``None`` if there is none."""
        ends = LockRun.objects.order_by("ended").values_list("ended", flat=True)
        return next((aware(ended) for ended in self.read(ends[:1])), None)

    def read(self, rows: QuerySet[Model, R]) -> list[R]:
        """Return these rows of the provider's history; none if it can't be read."""
        using = self._provider.history_database
        if using is None or self.problem is not None:
            return []
        try:
            found = read_rows(rows.using(using), using)
        except Error as error:
            self.problem = Problem.of(error, using)
            text = "The history of provider %r can't be read: %s"
            logger.warning(text, self._provider.alias, self.problem.text)
            return []
        self.has_read_runs |= rows.model is LockRun
        return found
