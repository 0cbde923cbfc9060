"""The one verdict on locks: which need attention."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_noop as _

from django_shedlock import conf
from django_shedlock.clocks import CLOCK_TOLERANCE, clock_difference
from django_shedlock.console.monitoring.findings import (
    Finding,
    Kind,
    Severity,
    findings_of,
)
from django_shedlock.console.monitoring.sentences import say
from django_shedlock.console.monitoring.traces import (
    LONG_HISTORY_AGE,
    Evidence,
    Past,
    traces_of,
)
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import LockProviderError
from django_shedlock.execution.skips import PROGRAM
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.locks.status import NOT_FREE, LockState, LockStatus
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.base import LockProvider, LockQuery

SEARCH_LOCK_LIMIT = 10_000


@dataclass(frozen=True)
class Attention:
    """
    The findings of each lock that needs attention, the most urgent first.

    Unless it ``is_complete``, there may be further locks, which are not more urgent.
    """

    findings: dict[str, list[Finding]]
    is_complete: bool = True


def default_grace() -> timedelta:
    """Return the duration of ``SHEDLOCK_GRACE``."""
    return default_duration(conf.GRACE)


def _is_minor(finding: Finding) -> bool:
    return finding.kind.severity is not Severity.CRITICAL


@dataclass(frozen=True)
class Search:
    """
    What to look for: this alone decides what is a finding.

    A job is overdue if it has not succeeded ``grace`` after its tick. A job runs for
    too long if it runs for longer than ``held_for``; without that, or if it usually
    takes longer, if it runs for much longer than usual; and without that, if it still
    runs ``grace`` after its next tick, but usually does not. A pause without an end is
    found after a day. Locks whose names match a pattern in ``ignored``, as in
    ``"import:*"``, are left out. The clocks of a store and of this host may be apart by
    ``clock_tolerance``.

    The store is asked for the locks that may need attention, and only these are read.
    """

    grace: timedelta = field(default_factory=default_grace)
    held_for: timedelta | None = None
    ignored: tuple[str, ...] = ()
    clock_tolerance: timedelta = CLOCK_TOLERANCE
    acknowledged: bool = False
    """Whether to return also the findings that operators have acknowledged."""

    def verdict(self, aliases: Iterable[str]) -> list[Finding]:
        """
        Return the findings of these providers, the critical ones first.

        Whatever is wrong is a finding, the settings included: then no job can run.
        """
        found: list[Finding] = []
        for alias in aliases:
            try:
                found += self.findings(get_provider(alias))
            except Exception as error:  # whatever wrong settings, or a store, raise
                found.append(Finding(Kind.UNREACHABLE, alias, None, str(error)))
        return sorted(found, key=_is_minor)

    def findings(
        self, provider: LockProvider, limit: int = SEARCH_LOCK_LIMIT
    ) -> Iterator[Finding]:
        """Look at the provider's store, its clock, its history, and at its locks."""
        alias = provider.alias
        try:
            difference = clock_difference(provider.now)
            attention = self.attention(provider, limit)
            is_outgrown = Past(provider).is_outgrown()
        except LockProviderError as error:
            yield Finding(Kind.UNREACHABLE, alias, None, str(error))
            return
        if abs(difference) > self.clock_tolerance:
            text = _(
                "The store's clock is %(time)s behind this host's: locks are right, "
                "but schedulers start jobs at other times."
            )
            if difference > ZERO:
                text = _(
                    "The store's clock is %(time)s ahead of this host's: locks are "
                    "right, but schedulers start jobs at other times."
                )
            sentence = say(text, time=format_duration(abs(difference)))
            yield Finding(Kind.CLOCK, alias, None, sentence)
        if is_outgrown:
            time = format_duration(LONG_HISTORY_AGE)
            text = _(
                "With %(setting)s = None the history grows for ever, and has runs that "
                "are older than %(time)s: give the setting a duration, or prune them."
            )
            sentence = say(text, setting=conf.HISTORY_RETENTION.name, time=time)
            words = ("prune", "--older-than", time, "--all-providers")
            prune = f"{PROGRAM} {' '.join(words)}"
            yield Finding(Kind.HISTORY, alias, None, sentence, prune)
        for found in attention.findings.values():
            yield from found
        if not attention.is_complete:
            text = _(
                "More than %(count)s locks may need attention: these are the most "
                "urgent ones. --ignore leaves names out."
            )
            sentence = say(text, count=limit)
            yield Finding(Kind.MORE, alias, None, sentence)

    def of_locks(
        self, provider: LockProvider, names: Collection[str]
    ) -> dict[str, list[Finding]]:
        """
        Return the findings of these locks, the most urgent first of each.

        Locks without findings are left out. Raises ``LockProviderError`` if the store
        failed.
        """
        wanted = LockQuery(names=names, ignored=self.ignored)
        found = self._found(provider, provider.statuses(wanted) if names else ())
        return {name: found[name] for name in sorted(found)}

    def attention(self, provider: LockProvider, limit: int = 1000) -> Attention:
        """
        Return the findings of at most ``limit`` locks that need attention.

        Raises ``LockProviderError`` if the store failed.
        """
        query = LockQuery(
            ignored=self.ignored,
            states=NOT_FREE - {LockState.HELD_AT_LEAST},
            overdue_by=self.grace,
            needs_look=True,
            passed_over=True,
            by_urgency=True,
            limit=limit + 1,
        )
        statuses = list(provider.statuses(query))
        found = self._found(provider, statuses)

        def urgency(name: str) -> tuple[int, str]:
            return found[name][0].kind.rank, name

        urgent = sorted(found, key=urgency)
        chosen = {name: found[name] for name in urgent[:limit]}
        return Attention(chosen, len(statuses) <= limit)

    def _found(
        self, provider: LockProvider, statuses: Iterable[LockStatus]
    ) -> dict[str, list[Finding]]:
        # The history is read for few locks.
        nothing = Evidence()
        suspicious = [each for each in statuses if self._look(provider, each, nothing)]
        past = Past(provider)
        actions = past.actions([status.name for status in suspicious])
        traces = (trace for status in suspicious for trace in traces_of(status))
        rows = past.rows({trace.locked_by for trace in traces})
        found = {}
        for status in suspicious:
            evidence = Evidence(actions.get(status.name, ()), rows)
            findings = self._look(provider, status, evidence)
            if not self.acknowledged:
                findings = [each for each in findings if not each.acknowledged]
            if findings:
                found[status.name] = findings
        return found

    def _look(
        self, provider: LockProvider, status: LockStatus, evidence: Evidence
    ) -> list[Finding]:
        return findings_of(provider, status, evidence, self.grace, self.held_for)


def aliases_to_search() -> list[str]:
    """Return the aliases of all providers; wrong settings are the default one's."""
    try:
        return list(provider_aliases()) or ["default"]
    except ImproperlyConfigured:  # get_provider() raises it again
        return ["default"]
