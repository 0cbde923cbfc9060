"""``manage.py shedlock catch-up``: what is overdue runs once."""

from __future__ import annotations

import io
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import BaseCommand, CommandError, call_command
from django.core.management.base import CommandParser, OutputWrapper
from django.test import override_settings

from django_shedlock import execute, hold, scheduler_lock, signals
from django_shedlock.console.operators import AuditedAction
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.registry import discovery
from django_shedlock.registry.discovery import decorated_jobs
from django_shedlock.registry.jobs import Job
from django_shedlock.schedules.cron import Schedule
from tests.support.clocks import daily_far_from_now
from tests.support.commands import call, run
from tests.support.jobs import DAILY, Jobs, make_late, ran, scheduled_jobs
from tests.support.locks import Silent, configure, expire, pause, status_of, try_from
from tests.support.processes import Parent, worker
from tests.support.records import counted_records, make_record_unreadable

pytestmark = pytest.mark.django_db(transaction=True)

NIGHTLY = daily_far_from_now("Asia/Tokyo", hours_ago=2)
"""Far from now in Berlin, too."""
NAMES = ["digest now", "failing", "fetch", "remind", "report"]


@pytest.fixture(autouse=True)
def jobs() -> Iterator[Jobs]:
    with scheduled_jobs() as made:
        run("catch-up")
        yield made


def test_jobs_that_never_ran_are_registered_and_not_run() -> None:
    """After a deploy all jobs are known, and count from now on."""
    assert ran == []
    scheduled = LockRecord.objects.exclude(schedule=None).order_by("name")
    assert list(scheduled.values_list("name", flat=True)) == NAMES
    assert run("catch-up") == ""
    assert ran == []


def test_job_that_never_ran_becomes_overdue() -> None:
    """A scheduler that was forgotten is noticed, since the job is known."""
    make_late("report")
    assert "Lock 'report', overdue since " in run("catch-up")
    assert ran == ["report"]


def test_only_overdue_and_known_locks_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many there are: those of the project's jobs, and what is overdue."""
    for number in range(20):
        with hold(f"import:{number}"):
            pass
    make_late("report")
    with counted_records(monkeypatch) as read:
        assert run("catch-up").count(": ran.") == 1
    assert set(read) == set(NAMES)


@pytest.mark.each_store
def test_record_that_makes_no_sense_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unreadable record is logged, and the other overdue jobs run."""
    make_late("failing")
    make_late("report")
    make_record_unreadable(monkeypatch, "failing")
    assert run("catch-up").count(": ran.") == 1
    assert ran == ["report"]
    assert "The record of lock 'failing' can't be read: OverflowError" in caplog.text


def test_overdue_job_runs_once_for_all_its_ticks(jobs: Jobs) -> None:
    """Of all ticks that were missed only the newest is run, and only once."""
    jobs.report()
    make_late("report", days=30)
    ran.clear()
    assert run("catch-up").endswith(": ran.\n")
    assert run("catch-up") == ""
    assert ran == ["report"]


def test_nothing_starts_after_a_signal() -> None:
    """
    No further job starts after SystemExit in a job that catch-up runs.

    A signal's handler raises SystemExit in the running job.
    """
    ended = []

    @scheduler_lock("ended", **DAILY)
    def end() -> None:
        ended.append(1)
        sys.exit(128 + signal.SIGTERM)

    run("catch-up")
    for name in ("ended", "fetch", "report"):
        make_late(name)
    with pytest.raises(SystemExit):
        run("catch-up")
    assert (ended, ran) == ([1], [])


def test_dry_run_changes_nothing() -> None:
    """What would run is told, and neither run, registered nor released."""
    make_late("report")
    make_late("fetch")
    expire_unreleased("fetch")

    @scheduler_lock("new", **DAILY)
    def new() -> None: ...

    before = list(LockRecord.objects.order_by("name").values())
    told = run("catch-up", "--dry-run", "--include-expired", "*").splitlines()
    assert [re.sub(", overdue since .*: ", ": ", line) for line in told] == [
        "Lock 'fetch': would run.",
        "Lock 'report': would run.",
    ]
    [expired, _] = run("catch-up", "--dry-run").splitlines()
    assert "'fetch'" in expired
    assert "is not run" in expired
    assert list(LockRecord.objects.order_by("name").values()) == before
    assert ran == []


def test_dry_run_without_overdue_jobs() -> None:
    """A dry run without overdue jobs says that no job is overdue."""
    assert run("catch-up", "--dry-run") == "No job is overdue.\n"


def expire_unreleased(name: str) -> None:
    """Let the worker of the lock have died."""
    died = {"locked_by": "web-1:7:a", "open_run": "web-1:7:a", "released_at": None}
    LockRecord.objects.filter(name=name).update(**died)
    expire(name)


def test_overdue_command_and_coroutine_run() -> None:
    """Management commands and coroutine functions are caught up, too."""
    make_late("digest now")
    make_late("fetch")
    assert run("catch-up").count(": ran.") == 2
    assert ran == ["digest now", "fetch"]


def test_job_that_failed_is_not_run_again() -> None:
    """A tick that a catch-up has begun is done, whatever became of it."""
    make_late("failing")
    with pytest.raises(CommandError, match="Jobs that failed: 1") as failure:
        run("catch-up")
    assert failure.value.returncode == 1
    assert run("catch-up") == ""
    assert ran == ["failing"]


def test_tick_whose_run_was_killed_is_not_run_again() -> None:
    """A half-done body may have had effects, so an operator decides."""
    make_late("report")
    with worker(overrun, DAILY) as pod:
        assert pod.heard() == "it runs"
        pod.kill()
    expire("report")
    assert run("release", "report", "--force", "--reason", "the pod is gone")
    assert run("catch-up") == ""
    assert ran == []


def test_interrupted_job_with_rerun_is_run_once_more() -> None:
    """A job may say that its runs can be repeated; one repetition is enough."""
    began = []

    @scheduler_lock("repeatable", rerun=True, **DAILY)
    def end() -> None:
        began.append(1)
        sys.exit(128 + signal.SIGTERM)

    run("catch-up")
    make_late("repeatable")
    for count in (1, 2):
        with pytest.raises(SystemExit):
            run("catch-up")
        assert len(began) == count
    assert run("catch-up") == ""
    assert len(began) == 2


def test_failure_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """Each overdue job has its turn, and the failure is told."""
    make_late("failing")
    make_late("report")
    with pytest.raises(CommandError):
        run("catch-up")
    assert ran == ["failing", "report"]


def test_message_that_exits_does_not_stop_the_others() -> None:
    """An exception whose ``str()`` ends the process is told without its message."""

    @scheduler_lock("a silent job", **DAILY)
    def silent() -> None:
        raise Silent

    run("catch-up")
    make_late("a silent job")
    make_late("report")
    out = io.StringIO()
    with pytest.raises(CommandError, match="failed: 1"):
        call_command("shedlock", "catch-up", stdout=out)
    assert "failed with Silent: (no message: str() raised SystemExit)" in out.getvalue()
    assert ran == ["report"]


@pytest.mark.parametrize("status", [0, 3])
def test_job_that_exits_does_not_stop_the_others(
    status: int,
) -> None:
    """A job that ends its process, as many commands do, ends only itself."""

    @scheduler_lock("exits", **DAILY)
    def exits() -> None:
        raise SystemExit(status)

    with suppress(CommandError):
        run("catch-up")
    make_late("exits")
    make_late("report")
    with nullcontext() if status == 0 else pytest.raises(CommandError):
        run("catch-up")
    assert ran == ["report"]
    outcomes = LockRun.objects.values_list("name", "outcome")
    expected = RunOutcome.FAILED if status else RunOutcome.SUCCEEDED
    assert dict(outcomes)["exits"] == expected


def test_source_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs that are known are caught up, whatever else goes wrong."""

    def broken() -> Iterator[Job]:
        raise ZeroDivisionError("by nobody")
        yield

    monkeypatch.setattr(discovery, "job_sources", lambda: [broken, decorated_jobs])
    make_late("report")
    run("catch-up")
    assert ran == ["report"]
    assert "Not all jobs of" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("error", [ValueError, TypeError])
def test_job_without_a_signature_does_not_stop_the_others(
    error: type[Exception],
) -> None:
    """A callable of which nobody knows its parameters is not started."""

    class Unknown:
        @property
        def __signature__(self) -> None:
            raise error("no signature found")

        def __call__(self) -> None:
            ran.append("unknown")

    unknown = scheduler_lock("unknown", **DAILY)(Unknown())
    run("catch-up")
    make_late("unknown")
    make_late("report")
    assert "can't be started from here" in run("catch-up")
    assert ran == ["report"]
    assert callable(unknown)


def test_running_job_is_left_alone(jobs: Jobs) -> None:
    """A job that is late, but runs, is not started a second time."""
    make_late("report")

    def look() -> None:
        assert run("catch-up") == ""

    execute(look, "report", lock_at_most_for="1m")
    assert ran == []
    jobs.report()
    assert ran == ["report"]


def test_tick_that_follows_is_not_kept_away() -> None:
    """``lock_at_least_for`` does not outlive a run for a tick that was missed."""
    job = scheduler_lock("kept", lock_at_least_for="1m", **DAILY)(lambda: None)
    run("catch-up")
    make_late("kept")
    assert run("catch-up").endswith(": ran.\n")
    assert status_of(get_provider(), "kept").state is LockState.FREE
    assert job is not None


def test_job_whose_lock_is_kept_is_told(jobs: Jobs) -> None:
    """Of a skip all reasons are discovery, also that the lock is not free yet."""
    make_late("report")
    execute(lambda: None, "report", lock_at_least_for="1m", lock_at_most_for="1m")
    assert "lock_at_least_for keeps its lock" in run("catch-up")
    assert ran == []


def overrun(parent: Parent, options: dict[str, Any]) -> None:
    """Run the report, as a scheduler would, until the test says."""
    lease = {**options, "lock_at_most_for": "1h"}
    with hold("report", **lease):
        parent.say("it runs")
        parent.wait()


def test_job_that_overran_its_lease_is_not_run_beside_itself() -> None:
    """
    Catch-up does not run an expired job before an operator releases its lock.

    Only a person can find out whether the process is still alive.
    """
    make_late("report")
    with worker(overrun, DAILY) as pod:
        assert pod.heard() == "it runs"
        expire("report")
        make_late("report")
        for _ in range(2):
            assert "is not run: its lease is over" in run("catch-up")
        pod.kill()
    assert "is not run: its lease is over" in run("catch-up")
    assert ran == []
    run("release", "report", "--force", "--reason", "the pod is gone")
    assert run("catch-up").endswith(": ran.\n")
    assert ran == ["report"]


def test_expired_lock_is_included_by_its_name() -> None:
    """
    Catch-up releases the expired locks that ``--include-expired`` names.

    Each release is reported like any release by an operator.
    """
    released = []

    def hear(*, action: AuditedAction, **kwargs: Any) -> None:
        released.append((action.name, action.locked_by, bool(action.operator)))

    locks = {name: try_from(get_provider(), configure(name)) for name in NAMES[-2:]}
    for name in locks:
        expire(name)
        make_late(name)
    make_late("fetch")
    signals.lock_force_released.connect(hear)
    try:
        printed = run("catch-up", "--include-expired", "rep*")
    finally:
        signals.lock_force_released.disconnect(hear)
    assert ran == ["fetch", "report"]
    assert released == [("report", locks["report"].locked_by, True)]
    assert "'remind'" in printed
    assert status_of(get_provider(), "remind").state is LockState.EXPIRED


def test_expired_lock_whose_name_looks_like_a_pattern() -> None:
    """``--include-expired`` includes an exact name that looks like a pattern."""

    @scheduler_lock("shard[1]", **DAILY)
    def shard() -> None:
        ran.append("shard[1]")

    run("catch-up")
    try_from(get_provider(), configure("shard[1]"))
    expire("shard[1]")
    make_late("shard[1]")
    run("catch-up", "--include-expired", "shard[1]")
    assert ran == ["shard[1]"]


def test_expired_lock_of_a_job_that_is_unknown_stays_expired() -> None:
    """Who can't run it has no reason to release it."""
    try_from(get_provider(), configure("remind"))
    expire("remind")
    make_late("remind")
    assert "can't be started from here" in run("catch-up", "--include-expired", "*")
    assert status_of(get_provider(), "remind").state is LockState.EXPIRED


def test_job_that_needs_arguments_is_told() -> None:
    """What can't be started is discovery, so that somebody does it."""
    make_late("remind")
    assert "can't be started from here" in run("catch-up")
    assert ran == []


def test_command_that_needs_arguments_is_told() -> None:
    """Catch-up reports a command that needs arguments, and does not run it."""

    @scheduler_lock("export", **DAILY)
    class Export(BaseCommand):
        def add_arguments(self, parser: CommandParser) -> None:
            parser.add_argument("tenant")

        def handle(self, *args: Any, **options: Any) -> None:
            ran.append("export")

    run("catch-up")
    make_late("export")
    assert "can't be started from here" in run("catch-up")
    assert ran == []


def test_command_that_takes_arguments_runs_without_them() -> None:
    """Catch-up runs a command without its optional arguments."""

    @scheduler_lock("export", **DAILY)
    class Export(BaseCommand):
        def add_arguments(self, parser: CommandParser) -> None:
            parser.add_argument("tenants", nargs="*")
            parser.add_argument("--since")

        def handle(self, *args: Any, **options: Any) -> None:
            ran.append("export")

    run("catch-up")
    make_late("export")
    run("catch-up")
    assert ran == ["export"]


def test_command_that_is_broken_does_not_stop_the_others() -> None:
    """A command that can't tell its arguments fails when it is started."""

    @scheduler_lock("broken", **DAILY)
    class Broken(BaseCommand):
        def add_arguments(self, parser: CommandParser) -> None:
            raise ZeroDivisionError("by nobody")

    run("catch-up")
    make_late("broken")
    make_late("report")
    with pytest.raises(CommandError, match="Jobs that failed: 1"):
        run("catch-up")
    assert ran == ["report"]


def test_lock_that_no_job_has_is_told() -> None:
    """
    Catch-up reports an overdue lock that no job on this host has.

    For example, ``shedlock run`` starts a program with that lock elsewhere.
    """
    execute(lambda: None, "backup", **DAILY)
    make_late("backup")
    assert "Lock 'backup', overdue since" in run("catch-up")


def test_verbosity_0_is_silent() -> None:
    """With ``--verbosity 0`` catch-up runs the jobs but prints nothing to mail."""
    make_late("report")
    assert run("--verbosity", "0", "catch-up") == ""
    assert ran == ["report"]


def test_changed_schedule_makes_nothing_overdue(jobs: Jobs) -> None:
    """
    A job whose schedule has changed is due at the new schedule's next tick.

    This holds even if the old schedule had an earlier tick.
    """
    jobs.report()
    LockRecord.objects.filter(name="report").update(schedule="* * * * * UTC")
    ran.clear()
    assert run("catch-up") == ""
    status = status_of(get_provider(), "report")
    schedule = status.schedule_state.schedule
    assert schedule is not None
    assert str(schedule).startswith(DAILY["schedule"])
    assert status.schedule_state.due_at == next(schedule.ticks_after(datetime.now(UTC)))


def test_overdue_job_whose_schedule_changed_stays_overdue() -> None:
    """A new schedule owes only later ticks; what is overdue is for an operator."""
    make_late("report")
    LockRecord.objects.filter(name="report").update(schedule="@yearly UTC")
    assert run("catch-up") == ""
    assert ran == []
    status = status_of(get_provider(), "report")
    assert str(status.schedule_state.schedule).startswith(DAILY["schedule"])
    assert status.overdue_since(timedelta(0)) is not None
    make_late("report", days=1)
    assert run("catch-up").endswith(": ran.\n")


def test_names_choose_the_jobs() -> None:
    """Catch-up with names leaves other overdue jobs and other requests alone."""
    for name in ("fetch", "report", "failing"):
        make_late(name)
    for name in ("digest now", "failing"):
        get_provider().request_run(name, "ops", "at once")
    assert run("catch-up", "--dry-run", "report").count("would run") == 1
    run("catch-up", "report", "digest now")
    assert ran == ["digest now", "report"]
    assert status_of(get_provider(), "failing").job.asked_at is not None


def test_included_pattern_without_a_lock_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    An ``--include-expired`` pattern without a lock is noted on a terminal only.

    A misspelt pattern is no error, and cron does not mail the note each time.
    """
    words = ("catch-up", "--include-expired", "rep*", "--include-expired", "repotr*")
    note = "--include-expired 'repotr*' matches no lock that is known.\n"
    assert call(*words) == (0, "", "")
    monkeypatch.setattr(OutputWrapper, "isatty", lambda self: True)
    assert call(*words) == (0, "", note)
    assert call(*words, "--verbosity", "0") == (0, "", "")
    LockRecord.objects.all().delete()
    assert call(*words, "--dry-run") == (0, "No job is overdue.\n", note)


def test_named_job_that_is_not_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody waits for it at a terminal; cron gets no mail."""
    assert call("catch-up", "report") == (0, "", "")
    monkeypatch.setattr(OutputWrapper, "isatty", lambda self: True)
    told = "Lock 'report': nothing was started, since no run of its job is due.\n"
    assert call("catch-up", "report") == (0, "", told)
    paused = pause("report")
    status, _, told = call("catch-up", "report")
    assert status == 0
    assert "Lock 'report': nothing was started, since alice paused it" in told
    assert paused.locked_by
    assert call("catch-up", "report", "--verbosity", "0") == (0, "", "")
    with override_settings(SHEDLOCK_ENABLED=False):
        _, _, told = call("catch-up", "report")
    assert told == "With SHEDLOCK_ENABLED = False nothing is caught up.\n"


def test_unknown_name_is_refused() -> None:
    """A mistyped name must not look as if nothing were overdue."""
    with pytest.raises(CommandError, match="There is no lock 'repotr'.*'report'"):
        run("catch-up", "repotr")


@pytest.mark.each_store
@override_settings(SHEDLOCK_NAMESPACE="staging")
def test_name_without_its_namespace() -> None:
    """The name in the code is enough."""
    run("catch-up")
    make_late("staging.report")
    assert run("catch-up", "report").endswith(": ran.\n")
    assert ran == ["report"]


@pytest.mark.parametrize("zone", ["America/Indiana/Knox", "America/Menominee"])
def test_other_name_of_a_time_zone_is_no_change(zone: str) -> None:
    """A host that calls a zone of the same clocks otherwise keeps late ticks."""
    make_late("report")
    LockRecord.objects.filter(name="report").update(
        schedule=f"{DAILY['schedule']} {zone}"
    )
    assert run("catch-up").endswith(": ran.\n")


def test_job_that_counts_in_another_time_zone_is_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The same hour of another zone is another tick: who has the right one is told."""
    job = nightly("Asia/Tokyo")
    run("catch-up")
    LockRecord.objects.filter(name="nightly").update(
        schedule=f"{NIGHTLY} Europe/Berlin"
    )
    assert run("catch-up") == ""
    make_late("nightly", days=2)
    assert ": is left to other hosts: " in run("catch-up")
    assert caplog.text.count("WARNING") == 1
    for told in ("'nightly'", "Europe/Berlin", "Asia/Tokyo", "CRONTAB_TIME_ZONE"):
        assert told in caplog.text
    assert ran == []
    assert schedule_of("nightly") == f"{NIGHTLY} Europe/Berlin"
    assert job is not None


@pytest.mark.parametrize("is_triggered", [False, True])
def test_next_start_settles_a_changed_time_zone(*, is_triggered: bool) -> None:
    """A deploy that means another zone needs nothing but its scheduler, or trigger."""
    job = nightly("Asia/Tokyo")
    run("catch-up")
    LockRecord.objects.filter(name="nightly").update(
        schedule=f"{NIGHTLY} Europe/Berlin"
    )
    make_late("nightly", days=2)
    run("trigger", "nightly") if is_triggered else job()
    assert schedule_of("nightly") == f"{NIGHTLY} Asia/Tokyo"
    assert run("catch-up") == ""
    make_late("nightly", days=2)
    assert run("catch-up").endswith(": ran.\n")
    assert ran == ["nightly", "nightly"]


def nightly(zone: str) -> Callable[[], None]:
    """Return a job that runs each night."""
    schedule = Schedule(NIGHTLY, zone)

    @scheduler_lock("nightly", lock_at_most_for="1m", schedule=schedule)
    def job() -> None:
        ran.append("nightly")

    return job


def schedule_of(name: str) -> str:
    return str(status_of(get_provider(), name).schedule)


@override_settings(SHEDLOCK_ENABLED=False)
def test_nothing_is_caught_up_without_locks() -> None:
    """
    Catch-up runs nothing with the locks off.

    Without locks nobody could tell that a tick was run.
    """
    make_late("report")
    assert run("catch-up") == ""
    assert ran == []


def test_run_is_in_the_history() -> None:
    """What is caught up is a run like any other."""
    from django_shedlock.models import LockRun

    make_late("report")
    run("catch-up")
    assert LockRun.objects.get().outcome == RunOutcome.SUCCEEDED
