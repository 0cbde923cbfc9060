"""Inspect one lock: what in it should an operator see?"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.console.monitoring.evidence import (
    BadRun,
    Evidence,
    bad_runs_of,
    first_line,
)
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind, fact_of
from django_shedlock.durations import format_duration
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.locks.own import is_own_lock
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockState, LockStatus, RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.registry.requests import (
    age_of_request,
    has_request,
    has_to_wait,
)
from django_shedlock.schedules.state import PASSED_OVER_LIMIT

PAUSE_REPORT_AGE = timedelta(days=1)
"""A pause without an end is reported when it is older: it may be forgotten."""
REQUEST_REPORT_AGE = timedelta(minutes=5)
"""A request is reported when it has waited for longer: a catch-up may be called so."""


def is_unusual(status: LockStatus) -> bool:
    """
    Return whether a job has run three times as long as usual, and as last time.

    Runs of at most a minute are never unusual.
    """
    usual, last = status.job.usual_duration, status.job.last_duration
    if usual is None or status.state is not LockState.RUNNING:
        return False
    longest = usual if last is None else max(usual, last)
    return status.held_for > max(timedelta(minutes=1), 3 * longest)


@dataclass(frozen=True)
class Inspection:
    """
    What is found in one lock of a provider.

    ``evidence`` has what operators did to it, and what its runs raised. A tick is
    overdue ``grace`` after it; a job runs too long after ``held_for``, if that is
    given.
    """

    provider: LockProvider
    status: LockStatus
    evidence: Evidence
    grace: timedelta
    held_for: timedelta | None = None

    def findings(self) -> list[Finding]:
        """
        Return what an operator should look at in this lock, the most urgent first.

        The package's own locks have no findings.
        """
        if is_own_lock(self.status.name):
            return []
        return sorted(self._found(), key=attrgetter("rank"))

    def _found(self) -> Iterator[Finding]:
        status = self.status
        if status.unreadable:
            record = self.provider.record_of(status.name)
            why = status.unreadable
            yield self._finding(Kind.UNREADABLE, why, why=why, record=record)
            return
        bad = bad_runs_of(status)
        for run in bad:
            # A later run that has not reported its end either is found as expired.
            if not (run.outcome is RunOutcome.ABANDONED and status.unreported_run):
                yield self._bad_end(run)
        yield from self._overdue(bad)
        yield from self._expired()
        yield from self._long()
        yield from self._request(bad)
        yield from self._passed_over()
        yield from self._paused()
        yield from self._unrecorded()

    def _finding(
        self, kind: Kind, what: str, message: str = "", **params: object
    ) -> Finding:
        fact = fact_of(kind, what)
        known = self.evidence.acknowledgement(fact)
        alias, name = self.provider.alias, self.status.name
        return Finding(kind, alias, name, fact, params, known, message)

    def _bad_end(self, run: BadRun) -> Finding:
        job, evidence = self.status.job, self.evidence
        release = evidence.release_of(run.locked_by)
        row = evidence.row_of(run)
        return self._finding(
            Kind(run.outcome.value),
            run.locked_by,
            first_line(row.exception_message),
            run=run.locked_by,
            row_key=row.pk,
            is_last=run.is_last,
            may_still_run=run.may_still_run and not evidence.is_gone(run.fact),
            failures=job.failures,
            exception=row.exception_type,
            **self._times(run),
            lost_at=run.lost_at,
            succeeded_at=job.succeeded_at,
            released_at=None if release is None else release.began,
            released_by="" if release is None else release.operator,
            release_reason="" if release is None else release.reason,
            **self._rival(run),
        )

    def _times(self, run: BadRun) -> dict[str, datetime | None]:
        """Return when the run began and ended, as far as that is known."""
        job, row = self.status.job, self.evidence.row_of(run)
        began, ended = row.started, row.ended
        if run.is_last:  # the row is written a moment after the record
            began = job.started_at or began
            if run.outcome is not RunOutcome.LOST:
                ended = job.ended_at or ended
        if run.may_still_run:
            ended = None
        times = {"started_at": began, "ended_at": ended}
        return {name: at and aware(at) for name, at in times.items()}

    def _rival(self, run: BadRun) -> dict[str, object]:
        """Return which run was beside one that lost its lock, and when."""
        status = self.status
        told: dict[str, object] = dict.fromkeys(
            ("other_run", "other_began", "other_ended")
        )
        if run.outcome is not RunOutcome.LOST:
            return told
        rival = self.evidence.rivals.get(run.locked_by)
        if rival is not None:
            told["other_run"] = rival.locked_by
            told["other_began"] = rival.started
            told["other_ended"] = rival.ended
            return told
        is_going_on = run.is_last and self._times(run)["ended_at"] is None
        is_taken = status.state is LockState.RUNNING
        if is_going_on and is_taken and status.locked_by != run.locked_by:
            told["other_run"] = status.locked_by
            told["other_began"] = status.locked_at
        return told

    def _overdue(self, bad: list[BadRun]) -> Iterator[Finding]:
        status, now = self.status, aware(self.status.clock)
        since = status.overdue_since(self.grace)
        if since is None:
            return
        tick = status.ticks.tick
        if not tick or not (status.job.last_run or status.job.open_run):
            why = "never begun"
        elif not status.ticks.was_started(now, self.grace):
            why = "not begun"
        elif tick == since:
            why = "failed"
        else:
            why = "later tick failed"
        yield self._finding(
            Kind.OVERDUE,
            since.astimezone(UTC).isoformat(),
            run=status.unreported_run,
            since=since,
            late=now - since,
            schedule=str(status.schedule or ""),
            last_tick=tick,
            why=why,
            suspect=self.evidence.suspect(bad, status.unreported_run),
            is_expired=status.state is LockState.EXPIRED,
            may_release=status.unreported_run == status.locked_by,
            may_catch_up=status.may_catch_up(default_duration(conf.GRACE)),
            limits=self._grace(),
        )

    def _expired(self) -> Iterator[Finding]:
        status = self.status
        if run := status.unreported_run:
            is_taken = run != status.locked_by
            yield self._finding(
                Kind.EXPIRED,
                run,
                run=run,
                lease_end=status.lock_until,
                is_taken=is_taken,
            )

    def _long(self) -> Iterator[Finding]:
        status = self.status
        if status.state is not LockState.RUNNING:
            return
        usual, tick, is_longer = status.job.usual_duration, None, False
        if self.held_for == ZERO:
            pass  # whatever runs has run for longer
        elif self.held_for is not None and (usual is None or usual <= self.held_for):
            if status.held_for <= self.held_for:
                return
        elif is_unusual(status):
            is_longer = True
        else:
            if self.held_for is None:
                tick = status.skips_since(self.grace)
            if tick is None or (usual is not None and status.held_for <= usual):
                return
        yield self._finding(
            Kind.LONG,
            status.locked_by,
            run=status.locked_by,
            started_at=aware(status.locked_at),
            held_for=status.held_for,
            is_unusual=is_longer,
            usual=usual,
            tick=tick,
            schedule=str(status.schedule or ""),
            limits=self._limits(),
        )

    def _limits(self) -> list[str]:
        """Return the option with which `show` also finds that a job runs too long."""
        if self.held_for is None:
            return self._grace()
        return ["--held-for", format_duration(self.held_for)]

    def _grace(self) -> list[str]:
        """Return the option with which `show` also finds that a job is overdue."""
        is_usual = self.grace == default_duration(conf.GRACE)
        return [] if is_usual else ["--grace", format_duration(self.grace)]

    def _request(self, bad: list[BadRun]) -> Iterator[Finding]:
        status, job = self.status, self.status.job
        if job.asked_at is None or age_of_request(status) < REQUEST_REPORT_AGE:
            return
        is_expired = not has_request(status)
        is_run = bool(status.locked_by) and Pause.parse(status.locked_by) is None
        if is_expired and is_run and aware(status.locked_at) > aware(job.asked_at):
            return
        yield self._finding(
            Kind.REQUEST,
            aware(job.asked_at).isoformat(),
            who=job.asked_by or "",
            why=job.asked_why or "",
            asked_at=job.asked_at,
            is_held=has_to_wait(status) and not is_expired,
            is_expired=is_expired,
            suspect=self.evidence.suspect(bad, status.unreported_run),
        )

    def _passed_over(self) -> Iterator[Finding]:
        passed, newest = self.status.passed_over, self.status.ticks.tick
        if not passed or newest is None:
            return
        is_all = len(passed) < PASSED_OVER_LIMIT
        yield self._finding(
            Kind.PASSED_OVER,
            newest.astimezone(UTC).isoformat(),
            count=str(len(passed)) if is_all else f"{len(passed)}+",
            first=passed[0],
            newest=newest,
            schedule=str(self.status.schedule),
        )

    def _paused(self) -> Iterator[Finding]:
        status = self.status
        if not status.is_endless or not status.pause:
            return
        if status.held_for > PAUSE_REPORT_AGE:
            yield self._finding(
                Kind.PAUSED,
                status.locked_by,
                run=status.locked_by,
                since=aware(status.locked_at),
                held_for=status.held_for,
                who=status.pause.operator,
                reason=status.pause.reason,
            )

    def _unrecorded(self) -> Iterator[Finding]:
        job = self.status.job
        if job.is_unrecorded:
            run, at = job.last_run or "", job.unrecorded_at
            yield self._finding(Kind.HISTORY, run, why="run missing", at=at)
