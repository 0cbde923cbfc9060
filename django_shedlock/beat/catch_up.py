"""Run each overdue job once: ``manage.py shedlock catch-up``."""

from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.core.management.base import CommandError
from django.utils.translation import override

from django_shedlock import conf
from django_shedlock.beat.looks import job_of_ticks
from django_shedlock.beat.requests import carry_out_requests
from django_shedlock.cli import base, terminal
from django_shedlock.clocks import local_text
from django_shedlock.exceptions import LockProviderError, described
from django_shedlock.execution.cancellation import is_ending
from django_shedlock.execution.keep_alive import release_later
from django_shedlock.execution.operators import (
    OperatorAction,
    condition,
    force_release,
)
from django_shedlock.locks.configuration import (
    LockConfiguration,
    default_duration,
    full_name,
)
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.own import CATCH_UP_LOCK
from django_shedlock.locks.patterns import matches_any
from django_shedlock.locks.status import LockState, LockStatus, is_success
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.registry.jobs import Job
from django_shedlock.registry.requests import (
    find_requests,
    has_request,
    has_to_wait,
    jobs_by_name,
)
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.signals import logger

# Note [Other time zones]
# Hosts may read one schedule in several time zones. If each host registered its own, no
# tick would ever be late. If each host ran the job for its own ticks, the job would run
# too often. The scheduler's time zone counts: its next start writes it to the record.

# Note [Expired locks]
# A lease that ended without a release has two possible causes: the worker died, or its
# job still runs. A sync body does not end with its lease, not even with keep_alive. So
# nobody can tell which it is. The next tick acquires the lock, because that is what a
# lease means. A catch-up has time. It leaves the job alone until an operator has looked
# and has released that acquisition. If a scheduler has acquired the lock since, the
# lock stays held.


class Result(StrEnum):
    """The result for an overdue job."""

    SUCCEEDED = "ran"
    DUE = "would run"
    FAILED = "failed"
    SKIPPED = (
        "was skipped: another worker runs it, or has already caught up, or "
        "lock_at_least_for keeps its lock"
    )
    EXPIRED = (
        "is not run: its lease is over, but its lock was never released, so it may "
        "still be running"
    )
    UNKNOWN = (
        "can't be started from here: no such job is known here, or it needs arguments"
    )
    ELSEWHERE = (
        "is left to other hosts: here its ticks are counted in another time zone, see "
        "SHEDLOCK_CRONTAB_TIME_ZONE"
    )


@dataclass(frozen=True)
class CaughtUp:
    """
    What the catch-up did with an overdue job.

    ``name`` is the lock's full name. ``overdue_since`` is the first tick that has not
    succeeded. ``error`` is what a job raised that failed.
    """

    name: str
    overdue_since: datetime
    result: Result
    error: BaseException | None = None


def catch_up(
    provider: LockProvider,
    *,
    names: Collection[str] | None = None,
    release_expired: Callable[[LockStatus], bool] | None = None,
    dry_run: bool = False,
) -> Iterator[CaughtUp]:
    """
    Run each overdue job of the provider once, under its lock, one after the other.

    With ``names``, only the jobs of these locks, given by their full names. Each job
    runs for its newest past tick only, and no tick runs twice. A known job
    that was never run counts from now on. A job whose scheduler counts in another time
    zone is left to other hosts. If a job's lock has expired, ``release_expired`` gets
    the lock's status and may release the lock; the job runs only if it returns true.
    With ``dry_run`` this only reports, and changes nothing. With
    ``SHEDLOCK_ENABLED = False`` it does nothing. Raises ``LockProviderError`` if the
    store fails.
    """
    if not conf.ENABLED.value:
        return
    if not dry_run and names is None:  # with names it carries out no other request
        note_catch_up(provider)
    # Entries of CRONJOBS may share a lock, so a lock may have several jobs.
    jobs: dict[str, dict[Schedule, Job]] = defaultdict(dict)
    for job in named_jobs(provider.alias):
        is_wanted = names is None or job.full_name in names
        if job.schedule is not None and is_wanted:
            jobs[job.full_name][job.schedule] = job
    if not dry_run:
        registered = provider.statuses(LockQuery(names=jobs))
        counted = {status.name: status.schedule for status in registered}
        for name, schedules in jobs.items():
            before = counted.get(name)
            # See Note [Other time zones].
            if before is None or not any(map(before.has_ticks_of, schedules)):
                provider.register(name, list(schedules)[-1])
    grace = default_duration(conf.GRACE)
    overdue = LockQuery(names=names, overdue_by=grace)
    for status in list(provider.statuses(overdue)):
        since = status.overdue_since(grace)
        # This may be out of date: the statement that acquires the lock decides again.
        if since is None or not status.may_catch_up(grace):
            continue
        found, error = _find(status, jobs.get(status.name, {})), None
        if not isinstance(found, Result):
            is_expired = status.state is LockState.EXPIRED
            if is_expired and not (release_expired and release_expired(status)):
                found = Result.EXPIRED
            elif dry_run:
                found = Result.DUE
            else:
                found, error = _run(status.name, found)
        yield CaughtUp(status.name, since, found, error)


def note_catch_up(provider: LockProvider) -> None:
    """Write to a record of its own that a catch-up was seen now."""
    configuration = LockConfiguration(full_name(CATCH_UP_LOCK), timedelta(minutes=1))
    lock = Lock(provider, configuration, opens_run=False)
    try:
        if provider.acquire(lock) is None:  # otherwise another host is writing it
            provider.release(lock)
    except BaseException as error:
        # A statement without an answer, or an interrupted one, may have been executed.
        if not isinstance(error, LockProviderError) or error.is_uncertain:
            release_later(lock, was_acquired=False)
        raise


def _find(status: LockStatus, jobs: Mapping[Schedule, Job]) -> Job | Result:
    counted = status.schedule
    if (job := job_of_ticks(status, jobs)) is not None:
        return Result.UNKNOWN if job.needs_arguments else job
    similar = [
        schedule
        for schedule in jobs
        if counted is not None and schedule.has_ticks_of(counted)
    ]
    if counted is None or not similar:
        return Result.UNKNOWN
    logger.warning(
        "The overdue job of lock %r is not run from here: its ticks are counted in %s, "
        "but here in %s. For entries of CRONJOBS, set SHEDLOCK_CRONTAB_TIME_ZONE alike "
        "on all hosts. If the time zone has changed, the next start by the scheduler "
        "settles it.",
        status.name,
        counted.time_zone,
        similar[0].time_zone,
    )
    return Result.ELSEWHERE


def _run(name: str, job: Job) -> tuple[Result, BaseException | None]:
    try:
        was_executed = job.start(Start(Trigger.CATCH_UP))
    except (Exception, SystemExit) as error:  # the other overdue jobs must still run
        if is_success(error):
            return Result.SUCCEEDED, None
        if is_ending(error):
            raise
        logger.exception("The overdue job of lock %r failed.", name)
        return Result.FAILED, error
    return Result.SUCCEEDED if was_executed else Result.SKIPPED, None


def find_names(provider: LockProvider, names: Collection[str]) -> set[str]:
    """
    Return the full names of these locks; a namespace may be left out.

    Raises ``CommandError`` if neither a job nor a record has that name.
    """
    known = jobs_by_name(provider)
    found = set()
    for name in names:
        if name in known:
            found.add(name)
        elif full_name(name) in known:
            found.add(full_name(name))
        else:
            found.add(base.find_status(provider, name).name)
    return found


class CatchUp(base.Subcommand):
    """Runs overdue jobs, and those that an operator asked for."""

    name = "catch-up"
    group = base.Group.RUN
    example = "catch-up --dry-run"
    help = (
        "run the jobs that operators asked for in the admin, and each overdue job "
        "once, under its lock, for its newest tick only"
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        parser.add_argument(
            "name",
            nargs="*",
            help="only the jobs of these locks; all of them by default",
        )
        parser.add_argument(
            "--include-expired",
            metavar="PATTERN",
            action="append",
            default=[],
            help="also run jobs whose lock has expired without a release, if its name "
            'matches, as in "import:*"; their last run may still go on, so make sure '
            "that its worker is dead; may be repeated",
        )
        base.add_switch(parser, "--dry-run", "run nothing, and say what would run")

    def run(
        self,
        provider: LockProvider,
        *,
        name: list[str],
        include_expired: list[str],
        dry_run: bool,
        verbosity: int,
        **options: object,
    ) -> None:
        overdue = failed = 0
        answered: set[str] = set()
        names = find_names(provider, name) if name else None
        if verbosity and self.stderr.isatty():  # cron would mail it each time
            self.report_needless(provider, include_expired)
        if dry_run:
            for status in requests_to_carry_out(provider, names):
                self.write(terminal.printable(_answer_to(status)))
        else:
            for status, triggered in carry_out_requests(provider, names):
                answered.add(status.name)
                if verbosity:
                    text = f"{triggered} {_asked(status, 'it')}"
                    self.write(terminal.printable(text))
                failed += triggered.has_failed
            if verbosity:
                asked = requests_to_carry_out(provider, names)
                for status in filter(has_to_wait, asked):
                    answered.add(status.name)
                    self.write(terminal.printable(_answer_to(status)))

        def release_expired(status: LockStatus) -> bool:
            is_included = matches_any(status.name, include_expired)
            if is_included and not dry_run:
                why = "its job is overdue, and --include-expired matches this lock"
                action = OperatorAction(
                    provider, status.name, status.locked_by, base.operator(), why
                )
                force_release(action, status)
            return is_included

        for caught_up in catch_up(
            provider, names=names, release_expired=release_expired, dry_run=dry_run
        ):
            overdue += 1
            answered.add(caught_up.name)
            failed += caught_up.result is Result.FAILED
            if verbosity:
                since = local_text(caught_up.overdue_since)
                told = f"Lock {caught_up.name!r}, overdue since {since}: "
                told += caught_up.result.value
                if caught_up.error is not None:
                    told += f" with {terminal.printable(described(caught_up.error))}"
                if caught_up.result is Result.EXPIRED:
                    told += f": see `{base.command(provider, 'show', caught_up.name)}`"
                self.stdout.write(told if caught_up.error else f"{told}.")
        if dry_run and not overdue:
            self.write(_why_none(provider))
        elif names and verbosity and self.stderr.isatty():  # a person waits for it
            for untouched in sorted(names - answered):
                self.stderr.write(terminal.printable(_why_not(provider, untouched)))
        if failed:
            message = f"Jobs that failed: {failed}."
            raise CommandError(message, returncode=base.ExitStatus.FAILED)

    def report_needless(self, provider: LockProvider, patterns: Sequence[str]) -> None:
        """Name the patterns that match no lock and no job: they may be misspelt."""
        jobs = jobs_by_name(provider) if patterns else {}
        for pattern in patterns:
            has_job = any(matches_any(name, [pattern]) for name in jobs)
            if not has_job and not base.has_match(provider, pattern):
                text = base.needless_pattern("--include-expired", pattern)
                self.stderr.write(text)


def _why_not(provider: LockProvider, name: str) -> str:
    """Say why the job of a lock that was named is not run."""
    if not conf.ENABLED.value:
        return _why_none(provider)
    status = provider.status(name)
    why = "no run of its job is due"
    if status is not None and status.state is not LockState.FREE:
        with override("en"):
            why = condition(status)
    return f"Lock {name!r}: nothing was started, since {why}."


def _why_none(provider: LockProvider) -> str:
    """Say why no overdue job was found."""
    if not conf.ENABLED.value:
        return "With SHEDLOCK_ENABLED = False nothing is caught up."
    if provider.keeps_ticks:
        return "No job is overdue."
    return (
        f"The provider {provider.alias!r} keeps no ticks, so it can't tell which jobs "
        "are overdue."
    )


def requests_to_carry_out(
    provider: LockProvider, names: Collection[str] | None
) -> Iterator[LockStatus]:
    """
    Return the locks with an open request whose job can be started here.

    With ``SHEDLOCK_ENABLED = False`` there are none. Raises ``LockProviderError`` if
    the store can't be read.
    """
    if not conf.ENABLED.value:
        return
    asked = list(filter(has_request, find_requests(provider, names)))
    known = jobs_by_name(provider) if asked else {}
    for status in asked:
        job = known.get(status.name)
        if job is not None and not job.needs_arguments:
            yield status


def _answer_to(status: LockStatus) -> str:
    """Say what becomes of the request for the lock's job."""
    if not has_to_wait(status):
        return f"Lock {status.name!r}: {_asked(status, 'a run')}"
    with override("en"):
        why = condition(status)
    return f"Lock {status.name!r}: its requested run waits, since {why}."


def _asked(status: LockStatus, what: str) -> str:
    """Say who asked for a run of the lock's job, and why."""
    why = f": {status.job.asked_why}" if status.job.asked_why else "."
    return f"{status.job.asked_by or 'An operator'} asked for {what}{why}"
