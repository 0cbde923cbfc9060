"""What the record, the history and the audit log say of runs that ended badly."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import Error
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Q
from django.utils.text import Truncator
from django.utils.translation import gettext_noop as _

from django_shedlock.clocks import local_text
from django_shedlock.console.models import ActionKind, ActionResult, LockAction
from django_shedlock.console.monitoring.sentences import Said, say
from django_shedlock.exceptions import LockProviderError
from django_shedlock.history.retention import retention
from django_shedlock.locks.lock import process_of
from django_shedlock.locks.status import LockStatus, RunOutcome
from django_shedlock.models import LockRun
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database.reading import batches
from django_shedlock.signals import logger
from django_shedlock.sql.compiling import on_connection
from django_shedlock.sql.connections import within_deadline
from django_shedlock.sql.errors import describe, is_missing_table
from django_shedlock.sql.fields import StatementNow

T = TypeVar("T")

LONG_HISTORY_AGE = timedelta(days=365)
"""A history that deletes nothing is reported when its oldest run is older."""


@dataclass(frozen=True)
class Trace:
    """A run that ended badly, or lost its lock, as its lock's record tells it."""

    locked_by: str
    outcome: RunOutcome
    lost_at: datetime | None = None
    may_still_run: bool = False
    """Whether nobody knows that its job has ended."""
    is_last: bool = True
    """Whether no later run has ended."""

    def told(self, which: Said, again: Said | str, exception: str) -> tuple[Said, Said]:
        """Return how it ended, and what an operator should do."""
        lost_at, remedy = self.lost_at, say(_("Find out why."))
        text = _("%(which)s has failed%(again)s.")
        if exception:
            text = _("%(which)s failed with %(exception)s%(again)s.")
        if self.outcome is RunOutcome.TIMED_OUT:
            text = _("%(which)s was ended because its time limit was over%(again)s.")
            remedy = say(_("Find out why it took so long, or raise its time limit."))
        elif self.outcome is RunOutcome.LOST:
            text = _("%(which)s lost its lock before it ended%(again)s.")
            if lost_at:
                text = _("%(which)s lost its lock at %(at)s, before it ended%(again)s.")
            remedy = say(
                _(
                    "It may have run twice at the same time. If its lease was too "
                    "short, give it a longer lock_at_most_for, or keep_alive=True."
                )
            )
        elif self.outcome is RunOutcome.ABANDONED:
            text = _(
                "%(which)s has not reported its end, and does not hold its lock any "
                "more%(again)s."
            )
        if self.may_still_run:
            remedy = say(
                _(
                    "It may still run: make sure that its process %(process)s is gone, "
                    "before its job runs again."
                ),
                process=process_of(self.locked_by),
            )
        values = {"at": lost_at and local_text(lost_at), "which": which, "again": again}
        return say(text, exception=exception, **values), remedy


def traces_of(status: LockStatus) -> list[Trace]:
    """Return the last run if it ended badly, and the last loss if that is recent."""
    job, found = status.job, []
    last_run = job.last_run or ""
    # Another version may have written an outcome that is not known here.
    known = (outcome for outcome in RunOutcome if outcome == job.outcome)
    outcome = next(known, None)
    if outcome is not None and outcome.is_bad:
        lost_at = job.lost_at if job.lost_run == last_run else None
        found.append(Trace(last_run, outcome, lost_at, job.may_still_run))
    if status.has_recent_loss and job.lost_run and job.lost_run != last_run:
        # The record does not say any more whether its body has ended.
        loss = Trace(job.lost_run, RunOutcome.LOST, job.lost_at, is_last=False)
        found.append(loss)
    return found


@dataclass(frozen=True)
class Evidence:
    """
    What else is known of a lock.

    ``actions`` are what operators did to it, the newest first; ``rows`` are those of
    the history, by their ``locked_by``.
    """

    actions: Sequence[LockAction] = ()
    rows: Mapping[str, LockRun] = field(default_factory=dict)

    def exception(self, locked_by: str) -> str:
        """Return the type of what the run raised; empty if that is not known."""
        row = self.rows.get(locked_by)
        return "" if row is None else str(row.exception_type)

    def message(self, locked_by: str) -> Said | str:
        """Return a sentence with the first line of its message; may be empty."""
        row = self.rows.get(locked_by)
        text = "" if row is None else str(row.exception_message)
        line = text.strip().partition("\n")[0].rstrip(" .\r")
        told = Truncator(line).chars(200)
        return say(_("It raised: %(text)s."), text=told) if told else ""

    def released(self, locked_by: str) -> Said | None:
        """Return who released this acquisition by force, if somebody did."""
        for action in self.actions:
            if action.kind == ActionKind.RELEASE and action.locked_by == locked_by:
                text = _("%(who)s released its lock by force at %(at)s.")
                if action.reason:
                    text = _(
                        "%(who)s released its lock by force at %(at)s, because: "
                        "%(reason)s."
                    )
                who = action.operator or say(_("An unnamed operator"))
                at, reason = local_text(action.began), repr(action.reason)
                return say(text, who=who, at=at, reason=reason)
        return None

    def acknowledgement(self, fact: str) -> str:
        """Return by whom, when and why it was acknowledged; empty if it was not."""
        for action in self.actions:
            for known in action.facts.splitlines():
                # Of ticks that are overdue, the newest stands for those before it.
                are_ticks = is_tick(fact) and is_tick(known)
                if known == fact or (are_ticks and known > fact):
                    text = _("by %(who)s at %(at)s: %(reason)s")
                    if action.until:
                        text = _("by %(who)s at %(at)s, until %(until)s: %(reason)s")
                    who = action.operator or say(_("an unnamed operator"))
                    until = action.until and local_text(action.until)
                    values = {"at": local_text(action.began), "until": until}
                    return say(text, who=who, reason=action.reason, **values)
        return ""

    def suspect(self, bad: Iterable[Trace], expired: str) -> str:
        """Return the process of a run that may still go on for all that people said."""
        ran = [(e.outcome.value, e.locked_by) for e in bad if e.may_still_run]
        ran += [("expired", expired)] * bool(expired)
        known = self.acknowledgement
        unknown = (by for kind, by in ran if not known(fact_of(kind, by)))
        return process_of(next(unknown, ""))


def is_tick(fact: str) -> bool:
    """Return whether it is the fact of an overdue tick."""
    return fact.startswith("overdue ")


def fact_of(kind: str, what: str) -> str:
    """Return what a finding of this kind tells of, as an acknowledgement keeps it."""
    # The run of an expired lock is abandoned as soon as somebody releases the lock.
    kind = RunOutcome.ABANDONED if kind == "expired" else kind
    return " ".join(f"{kind} {what}".split())


class Past:
    """
    What the history of a provider, and the audit log beside it, say of its locks.

    A provider without a history has none. If the locks are in another store, a failure
    of the database is only logged, and it is not asked again: that would take as long.
    Otherwise each method raises ``LockProviderError``.
    """

    def __init__(self, provider: LockProvider):
        self._provider = provider
        self._has_failed = False

    def actions(self, names: Collection[str]) -> Mapping[str, Sequence[LockAction]]:
        """
        Return the releases by force and the acknowledgements of locks, newest first.

        One statement for each batch.
        """

        def read(connection: BaseDatabaseWrapper) -> list[LockAction]:
            counts = Q(until=None) | Q(until__gt=StatementNow())
            tells = ~Q(facts="") | Q(kind=ActionKind.RELEASE)
            actions = LockAction.objects.using(connection.alias)
            done = on_connection(actions, connection).filter(result=ActionResult.DONE)
            mine = done.filter(counts, tells, provider=self._provider.alias)
            newest = mine.order_by("-pk")
            parts = (newest.filter(name__in=some) for some in batches(sorted(names)))
            return [action for part in parts for action in part]

        found: dict[str, list[LockAction]] = {}
        for action in self._read(read) if names else ():
            found.setdefault(action.name, []).append(action)
        return found

    def rows(self, runs: Collection[str]) -> dict[str, LockRun]:
        """
        Return what these runs raised, by their ``locked_by``, as far as it has rows.

        One statement for each batch.
        """

        def read(connection: BaseDatabaseWrapper) -> list[LockRun]:
            rows = on_connection(LockRun.objects.using(connection.alias), connection)
            told = rows.only("locked_by", "exception_type", "exception_message")
            parts = (told.filter(locked_by__in=some) for some in batches(sorted(runs)))
            return [row for part in parts for row in part]

        found = self._read(read) if runs else []
        return {row.locked_by: row for row in found}

    def is_outgrown(self) -> bool:
        """
        Return whether a history that deletes nothing by itself has become long.

        With ``SHEDLOCK_HISTORY_RETENTION`` no statement is sent.
        """
        if retention() is not None:
            return False

        def read(connection: BaseDatabaseWrapper) -> list[int]:
            runs = on_connection(LockRun.objects.using(connection.alias), connection)
            oldest = runs.older_than(LONG_HISTORY_AGE).order_by("ended")
            return list(oldest.values_list("pk", flat=True)[:1])

        return bool(self._read(read))

    def _read(self, read: Callable[[BaseDatabaseWrapper], list[T]]) -> list[T]:
        provider, using = self._provider, self._provider.history_database
        if using is None or self._has_failed:
            return []
        try:
            return within_deadline(read, using)
        except Error as error:
            if is_missing_table(error):
                return []
            where = f"database {using!r} (provider {provider.alias!r})"
            failure = f"Could not read the runs in {where}: {describe(error)}"
            if provider.record_database is not None:
                raise LockProviderError(failure) from error
            logger.warning("%s", failure)  # its locks are elsewhere, and can be read
            self._has_failed = True
            return []
