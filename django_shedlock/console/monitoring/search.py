"""The one verdict on locks: which need attention."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain
from operator import attrgetter

from django_shedlock import conf
from django_shedlock.clocks import (
    CLOCK_TOLERANCE,
    aware,
    clock_difference,
)
from django_shedlock.console.monitoring.evidence import (
    Evidence,
    Past,
    Problem,
    bad_runs_of,
)
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.inspection import Inspection
from django_shedlock.console.monitoring.kinds import Kind, Severity, fact_of
from django_shedlock.console.monitoring.starts import NEVER, fact_of_silence, last_start
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.history.retention import retention
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.locks.lock import own_host, split_identity
from django_shedlock.locks.status import NOT_FREE, LockState, LockStatus
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.scrubbing import scrubbed

SEARCH_LOCK_LIMIT = 10_000
LONG_HISTORY_AGE = timedelta(days=365)
"""A history that deletes nothing is reported when its oldest run is older."""
UNREADABLE_HISTORY = "history unreadable"
SILENCE_MIN_LOCKS = 2
"""One job that was not started has a cause of its own; several have one together."""
NOTHING_KNOWN: Evidence = Evidence()

# Note [One cause is one finding]
# When a cron dies, each of its jobs becomes overdue. So if no scheduled job was started
# after some instant, and several became overdue only since then, the finding is that
# instant. The jobs that it lists keep their own findings, which are folded: they come
# last, and ``open_findings()`` leaves them out. The finding counts jobs whose findings
# are acknowledged as well, and is acknowledged itself once all of them are.


@dataclass(frozen=True)
class Attention:
    """
    What needs attention in a provider.

    ``of_store`` are the findings of the store itself. ``findings`` are those of each
    lock, the most urgent first. Unless it ``is_complete``, there may be further locks,
    which are not more urgent. ``acknowledged`` counts the locks whose findings are all
    acknowledged.
    """

    findings: dict[str, list[Finding]]
    of_store: list[Finding] = field(default_factory=list)
    is_complete: bool = True
    acknowledged: int = 0


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
                found.append(unreachable(alias, error))
        return sorted(found, key=_is_minor)

    def findings(
        self, provider: LockProvider, limit: int = SEARCH_LOCK_LIMIT
    ) -> list[Finding]:
        """
        Look at the provider's store, its clock, its history, and at its locks.

        Raises ``LockProviderError`` if the store failed.
        """
        found = self.attention(provider, limit)
        return [*found.of_store, *chain.from_iterable(found.findings.values())]

    def of_locks(
        self, provider: LockProvider, names: Collection[str]
    ) -> dict[str, list[Finding]]:
        """
        Return the findings of these locks, the most urgent first of each.

        Locks without findings are left out. Raises ``LockProviderError`` if the store
        failed.
        """
        wanted = LockQuery(names=names, ignored=self.ignored)
        statuses = provider.statuses(wanted) if names else ()
        found = self._found(provider, statuses, Past(provider))
        if not self.acknowledged:
            found = _not_acknowledged(found)
        return {name: found[name] for name in sorted(found)}

    def attention(
        self, provider: LockProvider, limit: int = SEARCH_LOCK_LIMIT
    ) -> Attention:
        """
        Return the findings of the store, and of at most ``limit`` of its locks.

        Raises ``LockProviderError`` if the store failed.
        """
        difference = clock_difference(provider.now)
        query = LockQuery(
            ignored=self.ignored,
            states=NOT_FREE - {LockState.HELD_AT_LEAST},
            overdue_by=self.grace,
            needs_look=True,
            passed_over=True,
            requested=True,
            by_urgency=True,
            limit=limit + 1,
        )
        statuses = list(provider.statuses(query))
        is_complete, past = len(statuses) <= limit, Past(provider)
        found = self._found(provider, statuses, past)
        silence = self._silence(provider, past, found)
        of_store = [*self._clock(provider, difference), *silence]
        of_store += self._history(provider, past)
        known = 0
        if not self.acknowledged:
            with_known = len(found)
            found = _not_acknowledged(found)
            known = with_known - len(found)
            of_store = [each for each in of_store if not each.acknowledged]
        if not is_complete:
            more = Finding(
                Kind.MORE, provider.alias, None, Kind.MORE.value, {"count": limit}
            )
            of_store.append(more)
        of_store.sort(key=attrgetter("rank"))

        def urgency(name: str) -> tuple[int, str]:
            return found[name][0].rank, name

        urgent = sorted(found, key=urgency)
        chosen = {name: found[name] for name in urgent[:limit]}
        return Attention(chosen, of_store, is_complete, known)

    def _found(
        self, provider: LockProvider, statuses: Iterable[LockStatus], past: Past
    ) -> dict[str, list[Finding]]:
        # The history is read for few locks.
        suspicious = [each for each in statuses if self._inspect(provider, each)]
        if not suspicious:
            return {}
        actions = past.actions([status.name for status in suspicious])
        bad = {status.name: bad_runs_of(status) for status in suspicious}
        rows = past.rows({run.locked_by for runs in bad.values() for run in runs})
        losses = {
            name: rows[run.locked_by]
            for name, runs in bad.items()
            for run in runs
            if run.lost_at and run.locked_by in rows
        }
        known = {name: row for name, row in losses.items() if row.started}
        rivals = past.rivals(known)
        found = {}
        for status in suspicious:
            evidence = Evidence(actions.get(status.name, ()), rows, rivals)
            found[status.name] = self._inspect(provider, status, evidence)
        return found

    def _inspect(
        self,
        provider: LockProvider,
        status: LockStatus,
        evidence: Evidence = NOTHING_KNOWN,
    ) -> list[Finding]:
        inspection = Inspection(provider, status, evidence, self.grace, self.held_for)
        return inspection.findings()

    def _clock(
        self, provider: LockProvider, difference: timedelta
    ) -> Iterator[Finding]:
        if abs(difference) > self.clock_tolerance:
            params = {
                "difference": abs(difference),
                "is_ahead": difference > ZERO,
                "host": own_host(),
            }
            yield Finding(Kind.CLOCK, provider.alias, None, fact_of_own_clock(), params)

    def _history(self, provider: LockProvider, past: Past) -> Iterator[Finding]:
        try:
            is_kept_for_ever = retention() is None
        except InvalidLockConfiguration:  # a system check reports it, and jobs run
            is_kept_for_ever = False
        oldest = None
        if is_kept_for_ever or not past.has_read_runs:
            oldest = past.oldest_end()
        if past.problem is not None:
            yield unreadable_history(provider.alias, past.problem)
            return
        if oldest is None or not is_kept_for_ever:
            return
        if aware(provider.now()) - oldest > LONG_HISTORY_AGE:
            yield outgrown_history(provider.alias)

    def _silence(
        self, provider: LockProvider, past: Past, found: dict[str, list[Finding]]
    ) -> Iterator[Finding]:
        """Find that no job was started, and fold the findings that come from it."""
        # See Note [One cause is one finding].
        waiting = {
            name: each
            for name, findings in found.items()
            for each in findings
            if waits_for_start(each)
        }
        if len(waiting) < SILENCE_MIN_LOCKS:
            return
        last = last_start(provider, past)
        if last is None:
            return
        since = None if last is NEVER else last.at
        names = sorted(
            name
            for name, each in waiting.items()
            if since is None or each.params["since"] + self.grace > since
        )
        if len(names) < SILENCE_MIN_LOCKS:
            return
        known = [known for name in names if (known := waiting[name].acknowledged)]
        for name in names:
            folded = replace(waiting[name], is_folded=True)
            others = [each for each in found[name] if each is not waiting[name]]
            found[name] = sorted([*others, folded], key=attrgetter("rank"))
        fact = fact_of_silence(last)
        params: Mapping[str, object] = {
            "since": since,
            "last": split_identity(last.run)[0],
            "locks": names,
        }
        # Somebody who knows of each of the jobs knows of the silence.
        whole = max(known, key=attrgetter("at")) if len(known) == len(names) else None
        yield Finding(Kind.SILENT, provider.alias, None, fact, params, whole)


def _not_acknowledged(found: Mapping[str, list[Finding]]) -> dict[str, list[Finding]]:
    """Return the findings that nobody has acknowledged, by their locks."""
    remaining = {
        name: [each for each in findings if not each.acknowledged]
        for name, findings in found.items()
    }
    return {name: findings for name, findings in remaining.items() if findings}


def waits_for_start(finding: Finding) -> bool:
    """Return whether its job is overdue because no run of its tick has begun."""
    why = finding.params.get("why")
    return finding.kind is Kind.OVERDUE and why in {"never begun", "not begun"}


def open_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that nobody has acknowledged, without those of one cause."""
    return [each for each in findings if not each.acknowledged and not each.is_folded]


def unreachable(alias: str, error: object) -> Finding:
    """Return the finding that the store of this provider failed."""
    text = str(error)
    if not text or isinstance(error, KeyError):  # its text is only the key
        text = f"{type(error).__name__} {text}".strip()
    params = {"error": scrubbed(text) or type(error).__name__}
    return Finding(Kind.UNREACHABLE, alias, None, Kind.UNREACHABLE.value, params)


def unreadable_history(alias: str, problem: Problem) -> Finding:
    """Return the finding that the history of this provider can't be read."""
    params = {
        "why": "unreadable",
        "error": scrubbed(problem.text),
        "migrate": problem.migrate,
    }
    return Finding(Kind.HISTORY, alias, None, UNREADABLE_HISTORY, params)


def outgrown_history(alias: str) -> Finding:
    """Return the finding that the history of this provider grows for ever."""
    params = {
        "why": "outgrown",
        "setting": conf.HISTORY_RETENTION.name,
        "age": LONG_HISTORY_AGE,
    }
    return Finding(Kind.HISTORY, alias, None, "history outgrown", params)


def fact_of_own_clock() -> str:
    """Return the fact that the clock of this host is wrong; others have their own."""
    return fact_of(Kind.CLOCK, own_host())
