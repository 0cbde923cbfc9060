"""What the history and the trail tell of runs that ended badly."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from django.db import Error
from django.db.models import Q
from django.utils.text import Truncator
from django.utils.translation import gettext_noop as _

from django_shedlock import conf
from django_shedlock.clocks import aware, local_text
from django_shedlock.console.monitoring.sentences import Said, say
from django_shedlock.exceptions import LockProviderError
from django_shedlock.fields import StatementNow
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.lock import process_of
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import ActionKind, ActionResult, LockAction, LockRun
from django_shedlock.models.runs import NEWS, LockRunQuerySet
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.providers.database.connections import run_here
from django_shedlock.providers.database.errors import describe, is_missing_table
from django_shedlock.providers.database.reading import batches
from django_shedlock.signals import logger

T = TypeVar("T")


LONGEST_MESSAGE = 200
"""Characters of an exception's message in a finding."""
TICK = "overdue "
"""With what the fact of an overdue tick begins."""


@dataclass(frozen=True)
class Trace:
    """A run that ended badly, or lost its lock."""

    run: LockRun

    @property
    def outcome(self) -> RunOutcome:
        """How it ended; a run that is traced does not hold its lock any more."""
        written = RunOutcome(self.run.outcome)
        return RunOutcome.ABANDONED if written is RunOutcome.RUNNING else written

    @property
    def may_run(self) -> bool:
        """Whether nobody knows that its job has ended."""
        return self.run.finished is None and self.outcome is not RunOutcome.FAILED

    @property
    def is_news(self) -> bool:
        """Whether it is a loss of which one has to know, however later runs ended."""
        moment = self.run.finished or self.run.lost_at
        if moment is None or self.run.outcome != RunOutcome.LOST:
            return False
        return aware(vars(self.run)["clock"]) - aware(moment) < NEWS

    @property
    def message(self) -> str:
        """A sentence with the first line of its exception's message; may be empty."""
        line = self.run.exception_message.strip().partition("\n")[0].rstrip(" .\r")
        told = Truncator(line).chars(LONGEST_MESSAGE)
        return say(_("It raised: %(text)s."), text=told) if told else ""

    def told(self, which: Said, again: Said | str) -> tuple[Said, Said]:
        """Return how it ended, and what an operator should do."""
        lost_at, remedy = self.run.lost_at, say(_("Find out why."))
        text = _("%(which)s failed with %(exception)s%(again)s.")
        if self.outcome is RunOutcome.LOST:
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
        if self.may_run:
            remedy = say(
                _(
                    "It may still run: make sure that its process %(process)s is gone, "
                    "before its job runs again."
                ),
                process=process_of(self.run.locked_by),
            )
        values = {"at": lost_at and local_text(lost_at), "which": which, "again": again}
        return say(text, exception=self.run.exception_type, **values), remedy


@dataclass(frozen=True)
class Evidence:
    """What operators did to a lock, the newest first."""

    actions: Sequence[LockAction] = ()

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
                are_ticks = fact.startswith(TICK) and known.startswith(TICK)
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
        ran = [(e.outcome.value, e.run.locked_by) for e in bad if e.may_run]
        ran += [("expired", expired)] * bool(expired)
        known = self.acknowledgement
        unknown = (by for kind, by in ran if not known(fact_of(kind, by)))
        return process_of(next(unknown, ""))


def fact_of(kind: str, what: str) -> str:
    """Return what a finding of this kind tells of, as an acknowledgement keeps it."""
    # The run of an expired lock is abandoned as soon as somebody releases the lock.
    kind = RunOutcome.ABANDONED if kind == "expired" else kind
    return " ".join(f"{kind} {what}".split())


def actions_of(
    provider: LockProvider, names: Collection[str]
) -> Mapping[str, Sequence[LockAction]]:
    """
    Return the releases by force and the acknowledgements of locks, the newest first.

    One statement for each batch. Raises ``LockProviderError`` if the store failed.
    """

    def read(runs: LockRunQuerySet) -> list[LockAction]:
        counts = Q(until=None) | Q(until__gt=StatementNow())
        tells = ~Q(facts="") | Q(kind=ActionKind.RELEASE)
        done = LockAction.objects.using(runs.db).filter(result=ActionResult.DONE)
        mine = done.filter(counts, tells, provider=provider.alias).order_by("-pk")
        parts = (mine.filter(name__in=some) for some in batches(sorted(names)))
        return [action for part in parts for action in part]

    found: dict[str, list[LockAction]] = {}
    for action in read_history(provider, read) if names else ():
        found.setdefault(action.name, []).append(action)
    return found


def read_history(
    provider: LockProvider, read: Callable[[LockRunQuerySet], list[T]]
) -> list[T]:
    """
    Return what ``read`` finds in the provider's history; nothing without a history.

    Raises ``LockProviderError`` if the database of the locks themselves failed.
    """
    using = provider.history_database
    if using is None:
        return []
    try:
        return run_here(lambda: read(LockRun.objects.using(using)), using)
    except Error as error:
        if is_missing_table(error):
            return []
        where = f"database {using!r} (provider {provider.alias!r})"
        failure = f"Could not read the runs in {where}: {describe(error)}"
        if isinstance(provider, DatabaseLockProvider):
            raise LockProviderError(failure) from error
        logger.warning("%s", failure)  # its locks are elsewhere, and can be read
        return []


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
