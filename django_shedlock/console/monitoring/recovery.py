"""What is true now of findings that are gone: it is said instead of what was."""

from collections.abc import Mapping, Sequence

from django.utils.translation import override

from django_shedlock.clocks import local_text
from django_shedlock.console.monitoring.evidence import Past
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.notices import News
from django_shedlock.console.monitoring.search import UNREADABLE_HISTORY
from django_shedlock.console.monitoring.starts import NEVER, last_start
from django_shedlock.exceptions import ShedLockError
from django_shedlock.execution.operators import condition
from django_shedlock.locks.lock import own_host, split_identity
from django_shedlock.locks.status import LockStatus, RunOutcome
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider, LockQuery

ENDS: Mapping[str, str] = {
    RunOutcome.SUCCEEDED: "succeeded",
    RunOutcome.FAILED: "failed",
    RunOutcome.TIMED_OUT: "was ended, because its time limit was over,",
}


def sentences_of_recovery(recovered: Sequence[News]) -> list[str]:
    """
    Return for each of these news what is true now, in English, without a command.

    The store is asked once for each provider.
    """
    statuses = {
        alias: _statuses(alias, [each.lock for each in recovered if each.lock])
        for alias in {each.provider for each in recovered}
    }
    with override("en"):
        return [_sentence(news, statuses[news.provider]) for news in recovered]


def _sentence(news: News, known: Mapping[str, LockStatus] | None) -> str:
    if news.lock is None:
        return _of_store(news)
    return _is_over(news) if known is None else _of_lock(news, known.get(news.lock))


def _statuses(alias: str, names: Sequence[str]) -> Mapping[str, LockStatus] | None:
    try:
        found = get_provider(alias).statuses(LockQuery(names=names)) if names else ()
        return {status.name: status for status in found}
    except ShedLockError:  # it was read a moment ago
        return None


def _is_over(news: News) -> str:
    return f"Lock {news.lock!r}: the finding “{news.kind.label}” is over."


def _of_lock(news: News, status: LockStatus | None) -> str:
    told = [_is_over(news)]
    if status is not None and status.job.ended_at:
        ended = ENDS.get(status.job.outcome or "", "ended")
        told.append(f"Its last run {ended} at {local_text(status.job.ended_at)}.")
    return " ".join([*told, f"Now {condition(status)}."])


def _of_store(news: News) -> str:
    match news.kind:
        case Kind.UNREACHABLE:
            now = "its store answers again"
        case Kind.SILENT:
            now = _newest_start(get_provider(news.provider))
        case Kind.CLOCK:
            now = f"its store's clock and that of host {own_host()} agree again"
        case Kind.HISTORY if news.fact == UNREADABLE_HISTORY:
            now = "its history can be read again"
        case Kind.HISTORY:
            now = "its history has no run of more than a year ago, or deletes old ones"
        case _:
            now = "all locks that have findings are reported again"
    return f"Provider {news.provider!r}: {now}."


def _newest_start(provider: LockProvider) -> str:
    try:
        start = last_start(provider, Past(provider))
    except ShedLockError:
        start = None
    if start is None or start is NEVER:
        return "scheduled jobs are started again, or are no longer due"
    host, at = split_identity(start.run)[0], local_text(start.at)
    return f"host {host} started the job of lock {start.lock!r} at {at}"
