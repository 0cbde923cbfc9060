"""The one verdict on locks: which need attention, and which have metrics."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import islice

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_noop as _

from django_shedlock import conf
from django_shedlock.clocks import TOLERANCE, clock_difference
from django_shedlock.console.links import command
from django_shedlock.console.monitoring.findings import Finding, Kind, findings_of
from django_shedlock.console.monitoring.repetitions import repetitions
from django_shedlock.console.monitoring.sentences import say
from django_shedlock.console.monitoring.summaries import (
    LockSummary,
    badly_ended,
    summarize,
)
from django_shedlock.console.monitoring.traces import (
    Evidence,
    actions_of,
    history_is_outgrown,
)
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import LockProviderError
from django_shedlock.jobs.named import known_jobs
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.locks.states import NOT_FREE, LockState
from django_shedlock.models import LockAction
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.base import (
    ALL_LOCKS,
    LockProvider,
    LockQuery,
    matches_any,
)
from django_shedlock.providers.database.reading import PAGE

MOST = 10_000
"""Maximum number of locks whose findings are reported."""


@dataclass(frozen=True)
class Attention:
    """
    The findings of each lock that needs attention, the most urgent first.

    Unless it ``is_complete``, there may be further locks, which are not more urgent.
    """

    findings: dict[str, list[Finding]]
    is_complete: bool = True


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

    grace: timedelta = field(default_factory=partial(default_duration, conf.GRACE))
    held_for: timedelta | None = None
    ignored: tuple[str, ...] = ()
    clock_tolerance: timedelta = TOLERANCE
    acknowledged: bool = False
    """Whether to find what operators have acknowledged, too."""

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
        return sorted(found, key=lambda each: each.kind is not Kind.UNREACHABLE)

    def findings(self, provider: LockProvider, limit: int = MOST) -> Iterator[Finding]:
        """Look at the provider's store, its clock, its history, and at its locks."""
        alias = provider.alias
        try:
            difference = clock_difference(provider.now)
            attention = self.attention(provider, limit)
            is_outgrown = history_is_outgrown(provider)
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
            retention = conf.HISTORY_RETENTION
            text = _(
                "Many runs are much older than %(setting)s = %(time)s: let a scheduler "
                "prune them each day."
            )
            time = format_duration(default_duration(retention))
            sentence = say(text, setting=retention.name, time=time)
            prune = command(provider, "prune")
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
        wanted = [name for name in names if not matches_any(name, self.ignored)]
        repeated = repetitions(provider)
        return self._found(provider, summarize(provider, wanted, None, repeated))

    def attention(self, provider: LockProvider, limit: int = 1000) -> Attention:
        """
        Return the findings of at most ``limit`` locks that need attention.

        Raises ``LockProviderError`` if the store failed.
        """
        found_bad = badly_ended(provider, None if self.ignored else limit + 1)
        repeated = repetitions(provider)
        all_bad = dict.fromkeys([*found_bad, *repeated])
        wanted = (name for name in all_bad if not matches_any(name, self.ignored))
        bad = list(islice(wanted, limit + 1))
        few = bad[:PAGE]
        query = LockQuery(
            ignored=self.ignored,
            states=NOT_FREE - {LockState.HELD_AT_LEAST},
            overdue_by=self.grace,
            by_urgency=True,
            limit=limit + 1 + len(few),
            also=few,
        )
        statuses = {status.name: status for status in provider.statuses(query)}
        is_complete = max(len(statuses.keys() - {*few}), len(bad)) <= limit
        # Without a record, unless the limits have left it out.
        unread = bad[PAGE if is_complete else 0 :]
        if unread := [name for name in unread if name not in statuses]:
            others = provider.statuses(LockQuery(names=unread))
            statuses |= {status.name: status for status in others}
        names = {*statuses, *bad}
        summaries = summarize(provider, names, statuses.values(), repeated)
        found = self._found(provider, summaries)
        urgent = sorted(found, key=lambda name: (found[name][0].kind.rank, name))
        chosen = {name: found[name] for name in urgent[:limit]}
        return Attention(chosen, is_complete and len(urgent) <= limit)

    def _found(
        self, provider: LockProvider, summaries: Sequence[LockSummary]
    ) -> dict[str, list[Finding]]:
        def look(lock: LockSummary, *actions: LockAction) -> list[Finding]:
            evidence, times = Evidence(actions), (self.grace, self.held_for)
            found = findings_of(provider, lock, evidence, *times)
            return [e for e in found if self.acknowledged or not e.acknowledged]

        # What operators did is read for few locks.
        suspicious = {lock.name: lock for lock in summaries if look(lock)}
        actions = actions_of(provider, suspicious)
        found = {n: look(each, *actions.get(n, ())) for n, each in suspicious.items()}
        return {name: findings for name, findings in found.items() if findings}


def aliases_to_search() -> list[str]:
    """Return the aliases of all providers; wrong settings are the default one's."""
    try:
        return list(provider_aliases()) or ["default"]
    except ImproperlyConfigured:  # get_provider() raises it again
        return ["default"]


@dataclass(frozen=True)
class Selection:
    """Some locks, how many there are in each state, and how many are left out."""

    locks: Sequence[LockSummary]
    states: dict[LockState, int]

    @property
    def left_out(self) -> int:
        """How many locks have a record, but are not among these."""
        known = sum(lock.status is not None for lock in self.locks)
        return max(0, sum(self.states.values()) - known)


def select(provider: LockProvider, grace: timedelta, most: int) -> Selection:
    """
    Return all locks, or the ``most`` important ones if there are more.

    Those that may need attention come first, and then the project's jobs. Raises
    ``LockProviderError`` if the store failed.
    """
    total = provider.count()
    is_small = total <= most
    urgent = LockQuery(states=NOT_FREE, overdue_by=grace, by_urgency=True, limit=most)
    read = list(provider.statuses(ALL_LOCKS if is_small else urgent))
    if is_small or len(read) < most:
        # All locks that were not read are free, so no count is needed.
        states = Counter(status.state for status in read)
    else:
        states = Counter({e: provider.count(LockQuery(states=[e])) for e in NOT_FREE})
    states[LockState.FREE] += max(0, total - states.total())
    statuses = {status.name: status for status in read}
    # Most held locks need no attention.
    late = LockQuery(states={LockState.EXPIRED}, overdue_by=grace).select(read)
    first = [status.name for status in late]
    repeated = repetitions(provider)
    bad = [*badly_ended(provider, most), *repeated]
    names = dict.fromkeys([*first, *bad, *statuses])
    if not is_small:
        names |= dict.fromkeys(known_jobs(provider.alias))
    chosen = list(islice(names, most))
    unread = [] if is_small else [name for name in chosen if name not in statuses]
    if unread:
        others = provider.statuses(LockQuery(names=unread))
        statuses |= {status.name: status for status in others}
    found = [statuses[name] for name in chosen if name in statuses]
    locks = summarize(provider, chosen, found, repeated)
    return Selection(locks, {state: states[state] for state in LockState})
