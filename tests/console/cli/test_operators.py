"""``manage.py shedlock pause``, ``resume`` and ``trigger``."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import CommandError
from django.test import override_settings

from django_shedlock import execute, scheduler_lock, signals
from django_shedlock.cli.base import operator
from django_shedlock.console.models import LockAction
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.operators import AuditedAction, performing
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord
from django_shedlock.models.runs import LockRun
from django_shedlock.providers import get_provider
from django_shedlock.testing import held_elsewhere
from tests.support.commands import run
from tests.support.durations import rounded_up
from tests.support.jobs import DAILY, Jobs, make_late, ran, scheduled_jobs
from tests.support.locks import pause, state, status_of, take
from tests.support.processes import Parent, context, worker, workers

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)
REASON = ("--reason", "the mail server moves")


@pytest.fixture(autouse=True)
def jobs() -> Iterator[Jobs]:
    with scheduled_jobs() as made:
        yield made


def test_paused_job_is_skipped(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    """Each skip tells who paused it, and why; nothing is recorded as a run."""
    jobs.report()
    ran.clear()
    told = run("pause", "report", *REASON)
    assert told == "The job of lock 'report' is paused until it is resumed.\n"
    with caplog.at_level(logging.INFO, "django_shedlock"):
        jobs.report()
        execute(lambda: ran.append("execute"), "report")
    assert ran == []
    skips = [r.getMessage() for r in caplog.records if "not acquired" in r.getMessage()]
    assert len(skips) == 2
    said = f"Lock 'report' not acquired: paused by {operator()}: the mail server moves "
    assert all(skip.startswith(said) for skip in skips)
    assert LockRun.objects.count() == 1


def test_tick_is_not_consumed(jobs: Jobs) -> None:
    """A pause is no run: no signal of one is sent, and the ticks stay as they were."""
    jobs.report()
    heard = []

    def hear(**kwargs: object) -> None:
        heard.append(kwargs)

    ticks = LockRecord.objects.values_list("tick", "due_at", "former_tick")
    before = ticks.get()
    signals.lock_acquired.connect(hear)
    try:
        run("pause", "report", *REASON)
        run("resume", "report")
    finally:
        signals.lock_acquired.disconnect(hear)
    assert (ticks.get(), heard) == (before, [])


def test_paused_job_is_no_finding(jobs: Jobs) -> None:
    """It is not overdue, nor after the resume: ticks of a pause are not run."""
    jobs.report()
    ran.clear()
    run("pause", "report", *REASON)
    make_late("report")
    assert list(Search(MINUTE).findings(get_provider())) == []
    run("catch-up")
    assert "report" not in ran
    told = run("resume", "report")
    assert "pause are not run; the next one is at " in told
    assert "had paused it, because: the mail server moves." in told
    assert list(Search(MINUTE).findings(get_provider())) == []
    run("catch-up")
    assert "report" not in ran


def test_pause_with_an_end() -> None:
    """It ends by itself."""
    take("job").release()
    told = run("pause", "job", *REASON, "--for", "2h")
    assert rounded_up(told) == "The job of lock 'job' is paused for 2h more.\n"
    status = status_of(get_provider(), "job")
    assert timedelta(minutes=119) < status.remaining <= timedelta(hours=2)
    LockRecord.objects.update(lock_until=status.locked_at)
    assert state("job") is LockState.FREE


@pytest.mark.parametrize("lasting", ["0s", "-1h", "soon", "200000d"])
def test_end_must_make_sense(lasting: str) -> None:
    """What is no duration pauses nothing."""
    take("job").release()
    with pytest.raises(CommandError):
        run("pause", "job", *REASON, f"--for={lasting}")
    assert state("job") is LockState.FREE


def test_reason_is_required() -> None:
    """Whoever is woken by it needs to know why."""
    take("job").release()
    with pytest.raises(CommandError, match="--reason"):
        run("pause", "job")


def test_running_job_is_refused() -> None:
    """Exit status 3, and what to do."""
    lock = take("job")
    with pytest.raises(CommandError, match="With --wait 10m") as refusal:
        run("pause", "job", *REASON)
    assert refusal.value.returncode == 3
    assert f"its job is running as {lock.locked_by}" in str(refusal.value)


def pause_after(parent: Parent) -> str:
    def say_once_and_sleep(seconds: float) -> None:
        if not said:
            parent.say("waiting")
            said.append(True)
        sleep(seconds)

    sleep, said = time.sleep, list[bool]()
    with patch.object(performing.time, "sleep", say_once_and_sleep):
        return run("pause", "job", *REASON, "--wait", "1h")


def test_pause_waits_for_a_run() -> None:
    """With --wait the pause begins when the job has ended."""
    lock = take("job")
    with worker(pause_after) as waiting:
        assert waiting.heard() == "waiting"
        assert state("job") is LockState.RUNNING
        lock.release()
        assert "is paused until it is resumed" in waiting.result()
    assert state("job") is LockState.PAUSED


def test_wait_ends() -> None:
    """A job that outlasts it is not paused: exit status 3."""
    take("job")
    with pytest.raises(CommandError, match="its job is running") as refusal:
        run("pause", "job", *REASON, "--wait", "10ms")
    assert refusal.value.returncode == 3


def test_typo_makes_no_record() -> None:
    """Only records and known jobs are names: exit status 4."""
    with pytest.raises(CommandError, match="There is no lock 'reprot'") as refusal:
        run("pause", "reprot", *REASON)
    assert refusal.value.returncode == 4
    assert not LockRecord.objects.exists()
    assert not LockAction.objects.exists()


@override_settings(SHEDLOCK_NAMESPACE="shop")
def test_known_job_without_a_record_is_paused() -> None:
    """By the name in its code, before it ever ran."""
    run("pause", "tidy", *REASON)
    assert state("shop.tidy") is LockState.PAUSED


def test_same_pause_is_told() -> None:
    """Who paused the job already, and why: exit status 7."""
    pause("job", lasting=timedelta(days=36525))
    with pytest.raises(CommandError, match="alice paused it, because") as refusal:
        run("pause", "job", *REASON)
    assert refusal.value.returncode == 7


def test_other_reason_replaces_the_pause() -> None:
    """The new pause takes over that very one."""
    pause("job")
    told = run("pause", "job", "--reason", "the disk is full")
    assert "This replaces the pause by alice" in told
    status = status_of(get_provider(), "job")
    assert status.pause == Pause(operator(), "the disk is full")


HOSTS = 3


def try_until(parent: Parent, is_over: Any) -> int:
    """Start the job again and again; return how often it was run."""
    runs = int(execute(lambda: None, "job").was_executed)
    parent.say("tried")
    while not is_over.is_set():
        runs += execute(lambda: None, "job").was_executed
    return runs


def test_nothing_runs_between_two_pauses() -> None:
    """No host that tries all the time gets in where one replaces the other."""
    pause("job")
    is_over = context.Event()
    with workers(HOSTS, try_until, is_over) as hosts:
        assert [host.heard() for host in hosts] == ["tried"] * HOSTS
        for number in range(20):
            run("pause", "job", "--reason", f"reason {number}")
        is_over.set()
        assert [host.result() for host in hosts] == [0] * HOSTS
    assert state("job") is LockState.PAUSED


def test_release_points_to_resume() -> None:
    """A pause is nothing that is released by mistake: exit status 7."""
    pause("job")
    with pytest.raises(CommandError, match="shedlock resume job`") as refusal:
        run("release", "job")
    assert refusal.value.returncode == 7
    assert "alice paused it, because: the mail server moves" in str(refusal.value)
    assert state("job") is LockState.PAUSED
    run("release", "job", "--force")
    assert state("job") is LockState.FREE


def test_resume_of_what_is_not_paused() -> None:
    """Nothing is released: exit status 5, or 3 if the job runs."""
    lock = take("job")
    with pytest.raises(CommandError, match="'job' is not resumed") as refusal:
        run("resume", "job")
    assert refusal.value.returncode == 3
    assert state("job") is LockState.RUNNING
    lock.release()
    with pytest.raises(CommandError, match="nobody holds it") as refusal:
        run("resume", "job")
    assert refusal.value.returncode == 5
    with pytest.raises(CommandError, match="There is no lock 'jbo'"):
        run("resume", "jbo")


def test_receivers_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Signals and the log tell of both."""
    heard: list[tuple[str, AuditedAction]] = []

    def hear(*, signal: object, action: AuditedAction, **kwargs: object) -> None:
        name = "paused" if signal is signals.lock_paused else "resumed"
        heard.append((name, action))

    take("job").release()
    signals.lock_paused.connect(hear)
    signals.lock_resumed.connect(hear)
    try:
        run("pause", "job", *REASON)
        run("resume", "job", "--reason", "it has moved")
    finally:
        signals.lock_paused.disconnect(hear)
        signals.lock_resumed.disconnect(hear)
    assert [(name, action.reason) for name, action in heard] == [
        ("paused", "the mail server moves"),
        ("resumed", "it has moved"),
    ]
    assert f"Lock 'job': its job is paused by {operator()}" in caplog.text
    assert "Lock 'job': its job was resumed by" in caplog.text


def test_pause_takes_one_lock_only() -> None:
    """Jobs whose names are built from arguments are paused one by one."""
    made = scheduler_lock("import:{tenant}")(lambda tenant: ran.append(tenant))
    made(tenant="gold")
    run("pause", "import:gold", *REASON)
    made(tenant="gold")
    made(tenant="silver")
    assert ran == ["gold", "silver"]


def test_job_runs_though_its_tick_is_done(jobs: Jobs) -> None:
    """An operator need not wait for the next tick."""
    jobs.report()
    jobs.report()
    assert ran == ["report"]
    assert "The job of lock 'report' has run, for " in run("trigger", "report")
    assert ran == ["report", "report"]


def test_job_runs_though_its_lock_is_kept(jobs: Jobs) -> None:
    """``lock_at_least_for`` is not in the way when a job must run now."""
    jobs.tidy()
    jobs.tidy()
    assert ran == ["tidy"]
    run("trigger", "tidy")
    assert ran == ["tidy", "tidy"]


def test_next_tick_is_still_run() -> None:
    """A run by hand is not that of the tick to come."""
    run("trigger", "report")
    tick = LockRecord.objects.get().tick
    run("trigger", "report")
    assert LockRecord.objects.get().tick == tick


def test_tick_that_follows_is_not_kept_away() -> None:
    """``lock_at_least_for`` does not outlive a run by hand of a job with a schedule."""
    job = scheduler_lock("kept", lock_at_least_for="1m", **DAILY)(lambda: None)
    run("trigger", "kept")
    assert status_of(get_provider(), "kept").state is LockState.FREE
    assert job is not None


@pytest.mark.parametrize("name", ["digest now", "fetch"])
def test_command_and_coroutine(name: str) -> None:
    """Management commands and coroutine functions are started, too."""
    run("trigger", name)
    assert ran == [name]


def test_running_job_is_not_started_again() -> None:
    """A job never runs twice at a time: exit status 3."""
    with held_elsewhere("report"):
        with pytest.raises(CommandError, match="its job is running as") as refusal:
            run("trigger", "report")
    assert refusal.value.returncode == 3
    assert ran == []


def test_force_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log says who ran a job out of turn, and why."""
    run("trigger", "report", "--reason", "the mail of 8:00 was lost")
    assert (
        "wants its job to run now, because: 'the mail of 8:00 was lost'." in caplog.text
    )
    assert "by force, whatever its tick and lock_at_least_for" in caplog.text
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_force_without_a_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log says that none was given."""
    run("trigger", "report")
    assert "wants its job to run now, without a reason." in caplog.text


def test_failure_is_raised() -> None:
    """What the job raises is what the operator sees."""
    with pytest.raises(ZeroDivisionError):
        run("trigger", "failing")


def test_unknown_job() -> None:
    """A name that no job has is refused, and those that there are are told."""
    with pytest.raises(CommandError, match="No job with a lock 'typo'") as refusal:
        run("trigger", "typo")
    with pytest.raises(CommandError, match="Did you mean 'report'?"):
        run("trigger", "reprot")
    assert refusal.value.returncode == 4
    assert "There are 'digest now', 'failing', 'fetch', 'remind', " in str(
        refusal.value
    )


def test_job_that_needs_arguments() -> None:
    """A job can't be started without the arguments that it needs."""
    with pytest.raises(CommandError, match="needs arguments") as refusal:
        run("trigger", "remind")
    assert refusal.value.returncode == 4
    assert ran == []


@override_settings(SHEDLOCK_NAMESPACE="shop")
def test_name_with_and_without_namespace() -> None:
    """A job is found by the name in its code, and by that in the table."""
    run("trigger", "report")
    run("trigger", "shop.report")
    assert ran == ["report", "report"]
    assert LockRecord.objects.get().name == "shop.report"
