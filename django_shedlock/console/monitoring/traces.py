"""What the history and the trail tell of runs that ended badly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from django.db import Error
from django.utils.text import Truncator

from django_shedlock.clocks import aware, local_text
from django_shedlock.exceptions import LockProviderError
from django_shedlock.fields import DatabaseNow
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


@dataclass(frozen=True)
class Trace:
    """A run that ended badly, and who released its lock by force, if anybody did."""

    run: LockRun
    release: LockAction | None = None

    @property
    def may_run(self) -> bool:
        """Whether nobody knows that its job has ended."""
        is_failure = self.run.outcome == RunOutcome.FAILED
        return self.run.finished is None and not is_failure

    @property
    def is_news(self) -> bool:
        """Whether it is a loss of which one has to know, however later runs ended."""
        moment = self.run.finished or self.run.lost_at
        if moment is None or self.run.outcome != RunOutcome.LOST:
            return False
        return aware(vars(self.run)["clock"]) - aware(moment) < NEWS

    @property
    def raised(self) -> str:
        """What its job raised: the class, and the first line of the message."""
        line = self.run.exception_message.strip().partition("\n")[0].rstrip(" .\r")
        told = Truncator(line).chars(LONGEST_MESSAGE)
        return ": ".join(filter(None, [self.run.exception_type, told]))

    @property
    def released(self) -> str:
        """Who released its lock by force, when and why; empty if nobody did."""
        if self.release is None:
            return ""
        who, why = self.release.operator or "An operator", self.release.reason
        because = f", because: {why!r}" if why else ""
        at = local_text(self.release.began)
        return f" {who} released its lock by force at {at}{because}."


def process_of(locked_by: str) -> str:
    """Return the ``host:pid`` of this acquisition; of Java's, all that it tells."""
    return locked_by.rpartition(":")[0] or locked_by


def traces_of(provider: LockProvider, keys: Iterable[int]) -> Mapping[int, Trace]:
    """
    Return these runs by their keys.

    Two statements for each thousand. Raises ``LockProviderError`` if the store failed.
    """
    parts = list(batches(sorted(keys)))
    if not parts:  # nor is a transaction begun
        return {}

    def read(runs: LockRunQuerySet) -> list[Trace]:
        found: list[Trace] = []
        for some in parts:
            rows = runs.filter(pk__in=some).defer("exception_traceback")
            bad = list(rows.annotate(clock=DatabaseNow()))
            releases = _releases(runs.db, provider, bad)
            found += [Trace(run, releases.get(run.locked_by)) for run in bad]
        return found

    return {each.run.pk: each for each in read_history(provider, read)}


def _releases(
    using: str, provider: LockProvider, runs: Collection[LockRun]
) -> Mapping[str, LockAction]:
    done = LockAction.objects.using(using).filter(
        provider=provider.alias,
        name__in={run.name for run in runs},
        locked_by__in={run.locked_by for run in runs},
        kind=ActionKind.RELEASE,
        result=ActionResult.DONE,
    )
    return {action.locked_by: action for action in done}


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
