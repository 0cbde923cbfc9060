"""Whether the locks work, for load balancers, uptime checks, and people."""

import hashlib
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from http import HTTPStatus

from django.core.cache import caches
from django.db import connections
from django.http import HttpRequest, JsonResponse

from django_shedlock.background import run_in_background
from django_shedlock.clocks import CLOCK_TOLERANCE
from django_shedlock.console.monitoring.findings import Finding, Kind
from django_shedlock.console.monitoring.search import (
    Search,
    aliases_to_search,
    default_grace,
)
from django_shedlock.durations import Duration, format_duration, parse_duration
from django_shedlock.forking import renewed_in_child
from django_shedlock.mutexes import Mutex
from django_shedlock.signals import logger
from django_shedlock.views import MonitoringView

ANSWER_FINDING_LIMIT = 1000
"""For each provider."""


@dataclass(frozen=True)
class Verdict:
    """What a check found, and when, by this host's clock."""

    findings: Sequence[Finding]
    at: float


class Checks:
    """
    The checks under way, each in a thread of its own.

    However many callers wait for a check, it runs once at a time. While its store
    hangs, one thread waits for it, and each minute another one, up to
    ``thread_limit``.
    """

    retry_seconds: float = 60.0
    """A check that has not ended is begun again: its connection may be dead."""
    thread_limit: int = 10
    """For one check."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._mutex = Mutex()
        self._under_way: dict[Hashable, list[tuple[float, Future[Verdict]]]] = {}

    def begin(
        self, key: Hashable, check: Callable[[], Verdict]
    ) -> tuple[float, Future[Verdict]]:
        """
        Return when the check was begun that is under way now, and its verdict to come.

        Raises ``RuntimeError`` if no thread can be started.
        """
        with self._mutex:
            begun = [
                each for each in self._under_way.get(key, ()) if not each[1].done()
            ]
            has_time = begun and time.monotonic() - begun[-1][0] <= self.retry_seconds
            if not has_time and len(begun) < self.thread_limit:
                begun.append((time.monotonic(), _begin(check)))
            self._under_way[key] = begun
            return begun[-1]


def _begin(check: Callable[[], Verdict]) -> Future[Verdict]:
    def run() -> Verdict:
        try:
            return check()
        except BaseException as error:
            raise RuntimeError(f"The check ended by {error!r}.") from None
        finally:
            caches.close_all()

    return run_in_background(run)


checks: Checks = renewed_in_child(Checks())


@dataclass
class HealthCheck:
    """
    What ``Search`` finds, within a deadline, for callers that ask often.

    Without ``grace`` the setting ``SHEDLOCK_GRACE`` counts. A verdict is kept for
    ``keep_for`` in Django's default cache. A store that has not answered after
    ``deadline`` is unreachable.
    """

    grace: Duration | None = None
    held_for: Duration | None = None
    ignored: Sequence[str] = ()
    clock_tolerance: Duration = CLOCK_TOLERANCE
    keep_for: Duration = timedelta(seconds=5)
    deadline: Duration = timedelta(seconds=5)

    def verdict(self, aliases: Sequence[str]) -> Verdict:
        """
        Return the findings of these providers, and when the oldest was found.

        Raises ``ValueError`` if an option is no duration.
        """
        grace, held_for = self.grace, self.held_for
        search = Search(
            default_grace() if grace is None else parse_duration(grace),
            None if held_for is None else parse_duration(held_for),
            tuple(self.ignored),
            parse_duration(self.clock_tolerance),
        )
        keep_for, deadline = map(parse_duration, (self.keep_for, self.deadline))
        if any(each.in_atomic_block for each in connections.all(initialized_only=True)):
            # Only this thread sees what was written in it, as in a TestCase.
            verdicts = [_look(search, alias, timedelta(0)) for alias in aliases]
        else:
            begun = [(each, *_begin_look(search, each, keep_for)) for each in aliases]
            verdicts = [_wait(*each, deadline) for each in begun]
        return Verdict(
            [found for verdict in verdicts for found in verdict.findings],
            min((verdict.at for verdict in verdicts), default=time.time()),
        )


def _begin_look(
    search: Search, alias: str, keep_for: timedelta
) -> tuple[float, Future[Verdict]]:
    def look() -> Verdict:
        return _look(search, alias, keep_for)

    return checks.begin((search, alias, keep_for), look)


def _look(search: Search, alias: str, keep_for: timedelta) -> Verdict:
    # A cache can hang as well, so the check's thread asks it. Its errors don't count.
    text = repr((search, alias, keep_for)).encode()
    key = f"shedlock:health:{hashlib.sha256(text).hexdigest()}"
    with suppress(Exception):
        if keep_for and (kept := caches["default"].get(key)):
            return Verdict(*kept)
    verdict = Verdict(search.verdict([alias])[:ANSWER_FINDING_LIMIT], time.time())
    for found in verdict.findings:
        if found.kind is Kind.UNREACHABLE:
            logger.warning("Could not check the locks: %s", found)
    with suppress(Exception):
        if keep_for:
            kept = (verdict.findings, verdict.at)
            caches["default"].set(key, kept, keep_for.total_seconds())
    return verdict


def _wait(
    alias: str, began: float, future: Future[Verdict], deadline: timedelta
) -> Verdict:
    # The deadline counts from the check's begin: later callers wait for less.
    left = began + deadline.total_seconds() - time.monotonic()
    try:
        return future.result(max(0.0, left))
    except TimeoutError:
        sentence = (
            f"The store has not answered within {format_duration(deadline)}: it hangs "
            "or, in a database, another transaction has locked its table."
        )
        hanging = Finding(Kind.UNREACHABLE, alias, None, sentence)
        logger.warning("Could not check the locks: %s", hanging)
        return Verdict([hanging], time.time())


class HealthView(MonitoringView, HealthCheck):
    """
    Whether all locks work, as JSON: 200 if nothing is found, else 503.

    Anyone gets the status; authorised callers, see ``MonitoringView``, also get the
    findings, at most a thousand of each provider, and their ``age`` in seconds.
    ``provider`` limits it to one provider. For the other options see ``HealthCheck``.
    """

    provider: str | None = None

    def get(
        self, request: HttpRequest, *args: object, **kwargs: object
    ) -> JsonResponse:
        aliases = aliases_to_search() if self.provider is None else [self.provider]
        verdict = self.verdict(aliases)
        findings = verdict.findings
        answer: dict[str, object] = {"status": "not ok" if findings else "ok"}
        is_down = any(found.kind is Kind.UNREACHABLE for found in findings)
        # The users may be in the store that is down.
        if self.is_known if is_down else self.is_allowed:
            answer["findings"] = [
                replace(found, message="").as_dict() for found in findings
            ]
            answer["age"] = round(max(0.0, time.time() - verdict.at), 3)
        status = HTTPStatus.SERVICE_UNAVAILABLE if findings else HTTPStatus.OK
        return JsonResponse(answer, status=status)
