"""``shedlock beat``: hosts that start jobs at their ticks, and none leads."""

from __future__ import annotations

import math
import os
import signal
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import CommandError
from django.core.management.base import OutputWrapper
from django.core.management.color import no_style
from django.test import override_settings

from django_shedlock import scheduler_lock
from django_shedlock.beat import children
from django_shedlock.beat import loop as beat
from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.beat.children import StartedJobs
from django_shedlock.beat.cli import Beat
from django_shedlock.beat.looks import DueStart
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.own import CATCH_UP_LOCK
from django_shedlock.locks.status import LockHolder, LockState, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.processes.process_signals import ProcessSignals
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.registry.jobs import registered_jobs
from django_shedlock.registry.requests import (
    EXPIRED_REQUEST_AGE,
    REQUEST_LIFETIME,
    last_catch_up,
)
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Trigger
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import is_held, locked_in_memory
from tests.support.beats import (
    KEPT,
    Beats,
    beats_in,
    process_ids,
    when_it_waits,
    write_and_die,
    write_and_go_on,
    write_and_leave_a_thread,
    write_and_wait,
    write_and_wait_for_leave,
)
from tests.support.commands import run
from tests.support.jobs import only_jobs_of, scheduled_jobs
from tests.support.locks import expire, pause, take
from tests.support.operators import statements
from tests.support.private_connections import counted_statements
from tests.support.runs import is_alive
from tests.support.waiting import wait_for
from tests.support.warm import Command

pytestmark = pytest.mark.django_db(transaction=True)

TICKS = 60


@pytest.fixture
def beats(tmp_path: Path) -> Iterator[Beats]:
    with beats_in(tmp_path) as made:
        yield made


def test_each_tick_has_one_run(beats: Beats) -> None:
    """With three beats, of which some are killed at any time."""
    random, expected = Random(27), []
    hosts = [beats.start() for _ in range(3)]
    for host in hosts:
        when_it_waits(host)
    for _ in range(TICKS):
        tick = beats.step()
        expected.append(tick)
        for place in range(3):
            if random.random() < 0.1:
                hosts[place].kill()
                hosts[place] = beats.start()
        wait_for(lambda tick=tick: tick in beats.ticks())
        # A beat that finds the lock held looks again later, by a clock that stands.
        wait_for(lambda: get_provider().status("each minute").state is LockState.FREE)
    assert sorted(beats.ticks()) == expected


def test_it_says_what_it_will_run(beats: Beats) -> None:
    """Each job, its schedule, and its next tick."""
    told = when_it_waits(beats.start())
    assert told.startswith("Starting these jobs of provider 'default':")
    assert "each minute: * * * * * " in told
    assert f":{beats.step().minute:02}:00" in told


def test_job_is_started_by_its_scheduler(beats: Beats) -> None:
    """The history shows that the beat started a run: its trigger is the scheduler."""
    # A catch-up might run the tick first, with this grace.
    when_it_waits(beats.start("--no-catch-up"))
    beats.step()
    wait_for(beats.ticks)
    row = wait_for(LockRun.objects.filter(outcome=RunOutcome.SUCCEEDED).first)
    assert row.trigger == Trigger.SCHEDULER


def test_what_is_overdue_is_caught_up(beats: Beats) -> None:
    """Nobody was there at the tick; a beat that starts later runs it."""
    hourly = beats.hourly()
    register(beats, options=hourly)
    tick = beats.step()
    beats.step(timedelta(minutes=3))
    beats.start(options=hourly)
    assert wait_for(beats.ticks) == [tick]
    assert wait_for(LockRun.objects.first).trigger == Trigger.CATCH_UP


def test_host_that_stood_still_runs_the_newest_tick(beats: Beats) -> None:
    """Not the one that it waited for, of an hour ago perhaps."""
    when_it_waits(beats.start("--no-catch-up"))
    tick = beats.step(timedelta(minutes=3))
    assert wait_for(beats.ticks) == [tick]


def test_without_catch_up_nothing_is(beats: Beats) -> None:
    """A beat that starts later waits for its next tick."""
    hourly = beats.hourly()
    register(beats, options=hourly)
    beats.step(timedelta(minutes=4))
    ask_for_a_run()
    when_it_waits(beats.start("--no-catch-up", options=hourly))
    tick = beats.step(timedelta(minutes=57))
    assert wait_for(beats.ticks) == [tick]
    assert get_provider().status("each minute").job.asked_by == "ops"


def test_run_that_an_operator_asks_for(beats: Beats) -> None:
    """A requested run begins within seconds, well before the next tick."""
    when_it_waits(beats.start())
    wait_for(is_registered)  # its first catch-up would carry it out as well
    ask_for_a_run()
    beats.step(timedelta(seconds=5))
    wait_for(beats.ticks)
    row = wait_for(LockRun.objects.filter(outcome=RunOutcome.SUCCEEDED).first)
    assert (row.trigger, row.operator) == (Trigger.OPERATOR, "ops")


def register(beats: Beats, *others: str, **how: Any) -> None:
    """Let a beat make its jobs known, and be gone."""
    host = beats.start(**how)
    for name in ("each minute", *others):
        wait_for(partial(is_registered, name))
    host.kill()


def is_registered(name: str = "each minute") -> bool:
    """Tell whether the record knows its ticks: it is made a moment earlier."""
    status = get_provider().status(name)
    return status is not None and status.schedule is not None


def ask_for_a_run() -> None:
    get_provider().request_run("each minute", "ops", "at once, please")


def test_sigterm_lets_jobs_finish(beats: Beats) -> None:
    """A job that ends within the stop timeout is not interrupted."""
    host = beats.start(body=write_and_wait_for_leave)
    when_it_waits(host)
    tick = beats.step()
    wait_for(beats.ticks)
    host.send_signal(signal.SIGTERM)
    assert host.stdout.readline() == ("Waiting up to 20s for the end of each minute.\n")
    assert host.poll() is None
    beats.step()
    (beats.folder / "leave").touch()
    assert host.wait() == 0
    assert (beats.folder / "finished").exists()
    assert LockRun.objects.get().outcome == RunOutcome.SUCCEEDED
    assert beats.ticks() == [tick]


def test_jobs_get_sigterm_after_the_stop_timeout(beats: Beats) -> None:
    """
    After the stop timeout jobs get SIGTERM, tidy up, and release their locks.

    Their runs count as failed.
    """
    times = ["--stop-timeout", "0s", "--kill-after", "1h"]
    host = beats.start(*times, body=write_and_wait)
    when_it_waits(host)
    beats.step()
    wait_for(beats.ticks)
    host.send_signal(signal.SIGTERM)
    assert host.wait() == 0
    assert (beats.folder / "tidied up").exists()
    assert get_provider().status("each minute").state is LockState.FREE
    assert LockRun.objects.get().outcome == RunOutcome.FAILED


def test_second_signal_ends_the_jobs_at_once(beats: Beats) -> None:
    """A person who asks twice does not wait for the stop timeout."""
    times = ["--stop-timeout", "1h", "--kill-after", "1h"]
    host = beats.start(*times, body=write_and_wait)
    when_it_waits(host)
    beats.step()
    wait_for(beats.ticks)
    host.send_signal(signal.SIGINT)
    assert "Waiting up to 1h" in host.stdout.readline()
    host.send_signal(signal.SIGINT)
    assert host.stdout.readline() == "Ending each minute.\n"
    assert host.wait() == 0
    assert (beats.folder / "tidied up").exists()


def test_third_signal_kills_the_jobs_at_once(beats: Beats) -> None:
    """
    A third signal kills the jobs and every process that they have started.

    The beat releases their locks.
    """
    times = ["--stop-timeout", "1h", "--kill-after", "1h"]
    host = beats.start(*times, body=write_and_go_on)
    when_it_waits(host)
    beats.step()
    pids = process_ids(beats.folder)
    host.send_signal(signal.SIGTERM)
    host.stdout.readline()
    host.send_signal(signal.SIGTERM)
    assert host.stdout.readline() == "Ending each minute.\n"
    assert all(map(is_alive, pids))
    host.send_signal(signal.SIGTERM)
    assert host.wait() == 0
    wait_for(lambda: not any(map(is_alive, pids)))
    assert get_provider().status("each minute").state is LockState.FREE


def test_jobs_that_go_on_are_killed(beats: Beats) -> None:
    """After ``--kill-after``, with all that they have started."""
    times = ["--stop-timeout", "0s", "--kill-after", "0s"]
    host = beats.start(*times, body=write_and_go_on)
    when_it_waits(host)
    beats.step()
    pids = process_ids(beats.folder)
    host.send_signal(signal.SIGTERM)
    assert host.wait() == 0
    wait_for(lambda: not any(map(is_alive, pids)))
    row = LockRun.objects.get()
    assert row.outcome == RunOutcome.FAILED
    assert "killed by signal 9" in row.exception_message


def test_tick_of_a_killed_beat_is_owed(beats: Beats) -> None:
    """A beat that starts within the grace begins the tick that nobody began."""
    host = beats.start()
    when_it_waits(host)
    wait_for(is_registered)
    host.kill()
    tick = beats.step()
    beats.start("--no-catch-up")
    assert wait_for(beats.ticks) == [tick]


def test_tick_while_the_store_is_away_is_owed(beats: Beats) -> None:
    """The beat begins it as soon as the store answers again."""
    host = beats.start()
    when_it_waits(host)
    wait_for(is_registered)
    away, asked = beats.folder / "away", beats.folder / "asked"
    away.touch()
    tick = beats.step()
    wait_for(asked.exists)
    away.unlink()
    beats.step(timedelta(seconds=5))
    assert wait_for(beats.ticks) == [tick]


def test_new_job_owes_only_ticks_to_come(beats: Beats) -> None:
    """A beat that is the first to know a job does not begin its last tick."""
    host = beats.start()
    when_it_waits(host)
    wait_for(is_registered)
    assert [beats.step()] == wait_for(beats.ticks)


def test_child_that_is_killed_before_its_body_gives_its_tick_back(
    beats: Beats,
) -> None:
    """The same tick begins a few seconds later, on the same host."""
    host = beats.start(prepare=partial(kill_first_before_its_body, beats.folder))
    when_it_waits(host)
    tick = beats.step()
    wait_for((beats.folder / "killed").exists)
    wait_for(lambda: get_provider().status("each minute").state is LockState.FREE)
    assert beats.ticks() == []
    beats.step(timedelta(seconds=6))
    assert wait_for(beats.ticks) == [tick]
    wait_for(lambda: LockRun.objects.exists())
    assert [row.outcome for row in LockRun.objects.all()] == [RunOutcome.SUCCEEDED]


def kill_first_before_its_body(folder: Path) -> None:
    """Let the first child die between its acquisition and its body."""

    def acquire(provider: DatabaseLockProvider, lock: Lock) -> LockHolder | None:
        holder = really(provider, lock)
        if lock.opens_run and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return holder

    really = DatabaseLockProvider.acquire
    patched = patch.object(DatabaseLockProvider, "acquire", acquire)
    patched.__enter__()
    KEPT.append(patched)


@pytest.mark.parametrize("rerun", [False, True])
def test_child_that_is_killed_in_its_body(beats: Beats, rerun: bool) -> None:
    """
    The run of a killed child has failed.

    With ``rerun`` the tick begins once more, but only once.
    """
    host = beats.start(body=write_and_die, options={"rerun": rerun})
    when_it_waits(host)
    tick = beats.step()
    expected = [tick, tick] if rerun else [tick]
    wait_for(lambda: LockRun.objects.count() == len(expected))
    for _ in range(4):
        beats.step(timedelta(seconds=6))
    assert wait_for(lambda: get_provider().status("each minute").state.is_held is False)
    assert beats.ticks() == expected
    for row in LockRun.objects.all():
        assert row.outcome == RunOutcome.FAILED
        assert "The job's process was killed by signal 9" in row.exception_message
    following = beats.step()
    wait_for(lambda: beats.ticks()[len(expected) :][:1] == [following])


def test_process_that_does_not_end_is_ended(beats: Beats) -> None:
    """A thread that is no daemon keeps a job's process, so the beat ends it."""
    host = beats.start(body=write_and_leave_a_thread, prepare=expect_an_early_exit)
    when_it_waits(host)
    beats.step()
    [pid] = process_ids(beats.folder)
    wait_for(lambda: not is_alive(pid))
    tick = beats.step()
    wait_for(lambda: tick in beats.ticks())
    host.send_signal(signal.SIGTERM)
    _, errors = host.communicate()
    assert "The job of lock 'each minute' has returned, but its process" in errors
    assert LockRun.objects.first().outcome == RunOutcome.SUCCEEDED


def expect_an_early_exit() -> None:
    """Let a process end at once when its job has returned."""
    for patched in (
        override_settings(SHEDLOCK_EXIT_TIMEOUT="0s"),
        patch.object(children, "LATE_EXIT_SECONDS", 0.0),
    ):
        patched.__enter__()
        KEPT.append(patched)


def test_dead_store_is_one_line_of_a_child(beats: Beats) -> None:
    """
    A child whose store fails writes one line, without a traceback.

    The line says which job does not start, and why.
    """
    host = beats.start(prepare=lose_store_in_children)
    when_it_waits(host)
    beats.step()
    wait_for((beats.folder / "clock").exists)
    text = "The job of lock 'each minute' does not start, because the store failed"
    wait_for(lambda: text in errors_of(host))
    host.send_signal(signal.SIGTERM)
    _, errors = host.communicate()
    assert errors.count("\n") == 1, errors


def errors_of(host: Command) -> str:
    host.stderr.seek(0)
    return host.stderr.read()


def lose_store_in_children() -> None:
    """Let each acquisition of a job fail."""

    def acquire(provider: DatabaseLockProvider, lock: Lock) -> LockHolder | None:
        if lock.opens_run:
            raise LockProviderError("no server listens")
        return really(provider, lock)

    really = DatabaseLockProvider.acquire
    patched = patch.object(DatabaseLockProvider, "acquire", acquire)
    patched.__enter__()
    KEPT.append(patched)


def test_saturated_beat_warns(beats: Beats) -> None:
    """A tick that waits for room is reported, with what to do, and begins later."""
    body = write_and_wait_for_leave
    host = beats.start("--jobs", "1", body=body, prepare=have_another_job)
    when_it_waits(host)
    tick = beats.step()
    wait_for(lambda: len(beats.ticks()) == 1)
    beats.step(timedelta(seconds=16))
    text = "waits for room, because 1 jobs run here at once. Give --jobs"
    wait_for(lambda: text in errors_of(host))
    (beats.folder / "leave").touch()
    assert wait_for(lambda: beats.ticks() == [tick, tick])


def have_another_job() -> None:
    """Have one more job at each tick, which runs as the other does."""
    job = next(job for job in registered_jobs if job.name == "each minute")
    lock = scheduler_lock("another", schedule=job.schedule)
    KEPT.append(lock(job.target))


def test_job_that_runs_on_past_its_next_tick_is_reported(beats: Beats) -> None:
    """A tick waits until the previous run has ended, and the log says so."""
    host = beats.start(body=write_and_wait_for_leave)
    when_it_waits(host)
    beats.step()
    wait_for(lambda: len(beats.ticks()) == 1)
    tick = beats.step()
    assert wait_for(lambda: "its job still runs as" in errors_of(host))
    (beats.folder / "leave").touch()
    wait_for(lambda: tick in beats.ticks())


def test_overdue_jobs_run_side_by_side(beats: Beats) -> None:
    """Each is a job of its own, so one does not wait for the other's end."""
    how: dict[str, Any] = {"prepare": have_another_job, "options": beats.hourly()}
    register(beats, "another", **how)
    beats.step(timedelta(minutes=4))
    beats.start(body=write_and_wait_for_leave, **how)
    assert wait_for(lambda: len(beats.ticks()) == 2)
    (beats.folder / "leave").touch()


def test_beat_shows_that_it_lives(beats: Beats) -> None:
    """A beat holds its own lock while it runs, and deletes the record at the end."""
    host = beats.start(prepare=partial(let_time_pass_at_the_end, beats.folder))
    when_it_waits(host)
    name = f"shedlock.beat:{socket.gethostname()}"
    own = LockRecord.objects.filter(name=name, released_at=None)
    locked_by = wait_for(lambda: own.values_list("locked_by", flat=True).first())
    second = beats.start()
    when_it_waits(second)
    second.send_signal(signal.SIGTERM)
    assert second.wait() == 0
    assert own.get().locked_by == locked_by
    host.send_signal(signal.SIGTERM)
    assert host.wait() == 0
    assert get_provider().status(name) is None
    assert not LockRun.objects.filter(name=name).exists()


def test_store_that_is_away(beats: Beats) -> None:
    """
    A beat reports a store that fails once, and retries until the store answers.

    Then the beat goes on.
    """
    away, asked = beats.folder / "away", beats.folder / "asked"
    away.touch()
    host = beats.start()
    for times in range(1, 4):
        wait_for(lambda times=times: asked.exists() and asked.stat().st_size == times)
        beats.step(timedelta(seconds=5))
    away.unlink()
    beats.step(timedelta(seconds=5))
    when_it_waits(host)
    tick = beats.step()
    wait_for(lambda: tick in beats.ticks())
    host.send_signal(signal.SIGTERM)
    _, errors = host.communicate()
    assert errors.count("The store failed. The beat keeps trying: away") == 1


class Still(StartedJobs):
    """Jobs of a beat whose waits end as the test says, and that never start."""

    how: Callable[[], None]
    added: list[DueStart] = []

    def start(self, due: DueStart, write: Callable[[str], None]) -> bool:
        self.added.append(due)
        return True


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Still]]:
    """Let beats of this process start nothing; they have a few daily jobs."""

    def wait(signals: ProcessSignals, seconds: float) -> None:
        Still.how()

    monkeypatch.setattr(beat, "StartedJobs", Still)
    monkeypatch.setattr(ProcessSignals, "wait", wait)
    monkeypatch.setattr(Still, "added", [])
    with scheduled_jobs() as kept:
        assert kept.report  # registered as long as somebody knows it
        yield Still


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def let_time_pass_at_the_end(folder: Path) -> None:
    """The clock of these tests stands still, but for the time a statement takes."""

    def delete_unused(
        provider: DatabaseLockProvider, name: str, unused_for: timedelta
    ) -> bool:
        now = datetime.fromisoformat((folder / "clock").read_text())
        (folder / "clock").write_text((now + timedelta(seconds=1)).isoformat())
        return really(provider, name, unused_for)

    really = DatabaseLockProvider.delete_unused
    patched = patch.object(DatabaseLockProvider, "delete_unused", delete_unused)
    patched.__enter__()
    KEPT.append(patched)


@pytest.mark.each_store
@pytest.mark.parametrize(
    ("args", "wakes", "expected"),
    [
        ((), [4.0], 0),
        ((), [5.0], 1),
        ((), [5.0, 10.0, 15.0], 3),
    ],
)
def test_reads_while_it_waits(
    still: type[Still],
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    wakes: list[float],
    expected: int,
) -> None:
    """A look is one read of the records, every five seconds."""
    run_once(still)  # the records are there
    run_once(still)
    times = iter(wakes)
    now = 1000.0
    monkeypatch.setattr(beat, "uptime", lambda: now)

    def go_on() -> None:
        nonlocal now
        passed = next(times, math.inf)
        if passed == math.inf:
            stop()
        else:
            now = 1000.0 + passed

    still.how = go_on
    with counted_statements() as sent:
        run("beat", *args)
    reads = [sql for sql in statements(sent) if sql.startswith("SELECT")]
    of_start = 4  # its look, requests, other beats, and its own lock
    assert len(reads) - of_start == expected, reads


def run_once(still: type[Still]) -> list[DueStart]:
    """Return what a beat starts at its first look."""
    still.added.clear()
    still.how = stop
    run("beat")
    return [*still.added]


def requested(still: type[Still]) -> list[str]:
    """Return the jobs that a beat starts at its first look, for requests."""
    started = run_once(still)
    return [due.name for due in started if due.start.trigger is Trigger.OPERATOR]


def test_request_is_started(still: type[Still]) -> None:
    """The start is bound to the request that was read."""
    get_provider().request_run("report", "ops", "at once, please")
    assert requested(still) == ["report"]
    [due] = still.added
    assert (due.start.operator, due.start.reason) == ("ops", "at once, please")
    assert due.start.request == LockRecord.objects.get(name="report").asked_at


@pytest.mark.parametrize("holder", ["a run", "an expired run", "a pause"])
def test_request_for_a_held_lock_waits(still: type[Still], holder: str) -> None:
    """No process is started every few seconds for a job that can't run now."""
    get_provider().request_run("report", "ops", "at once, please")
    pause("report") if holder == "a pause" else take("report")
    if holder == "an expired run":
        expire("report")
    assert requested(still) == []
    assert get_provider().status("report").job.asked_by == "ops"


def test_expired_request_is_closed(
    still: type[Still], caplog: pytest.LogCaptureFixture
) -> None:
    """The beat starts nothing for it, and says so in the log, once."""
    get_provider().request_run("report", "ops", "at once, please")
    asked = LockRecord.objects.filter(name="report")
    asked.update(asked_at=DatabaseNow() - REQUEST_LIFETIME)
    assert requested(still) == []
    assert get_provider().status("report").job.asked_at is not None
    asked.update(asked_at=DatabaseNow() - EXPIRED_REQUEST_AGE)
    assert requested(still) == requested(still) == []
    assert get_provider().status("report").job.asked_at is None
    assert caplog.text.count("The request has expired") == 1


@pytest.fixture
def old_loop(still: type[Still]) -> Iterator[beat.BeatLoop]:
    """A beat whose first look was long ago, and whose jobs are registered."""
    run_once(still)
    output = Beat(OutputWrapper(StringIO()), OutputWrapper(StringIO()), no_style())
    loop = beat.BeatLoop(get_provider(), output, beat.BeatOptions())
    loop.since = datetime.now(UTC) - timedelta(days=300)
    loop._look()
    still.added.clear()
    yield loop
    loop.presence.end()


def test_record_that_is_deleted_owes_nothing(old_loop: beat.BeatLoop) -> None:
    """Ticks before that were begun, or reported."""
    LockRecord.objects.filter(name="report").delete()
    old_loop._look()
    ticks = get_provider().status("report").ticks
    assert ticks.due_at > datetime.now(UTC)
    assert ticks.tick > datetime.now(UTC) - timedelta(days=2)


def test_old_beat_leaves_a_changed_schedule_alone(old_loop: beat.BeatLoop) -> None:
    """
    An old beat does not overwrite a schedule that a newer version has changed.

    In a rolling deploy the new version registers its schedule once.
    """
    changed = Schedule("0 4 * * *", "UTC")
    get_provider().register("report", changed)
    old_loop._look()
    assert get_provider().status("report").schedule == changed


def test_schedule_that_cannot_be_registered(
    old_loop: beat.BeatLoop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Somebody has locked its row: the beat says so, and looks after the others."""

    def refuse(*args: Any, **options: Any) -> None:
        raise LockProviderError("Its row is locked.")

    LockRecord.objects.filter(name="report").delete()
    monkeypatch.setattr(DatabaseLockProvider, "register", refuse)
    get_provider().request_run("tidy", "ops", "at once, please")
    old_loop._look()
    old_loop._look()
    assert Still.added[0].name == "tidy"
    text = "The schedule of lock 'report' could not be registered: Its row is locked."
    assert caplog.messages.count(text) == 1


def test_locked_row_keeps_no_other_schedule_away(
    old_loop: beat.BeatLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedules behind it are registered in the same look."""

    def refuse_first(
        provider: DatabaseLockProvider, name: str, *args: Any, **how: Any
    ) -> None:
        tried.append(name)
        if len(tried) == 1:
            error = LockProviderError("Its row is locked.")
            error.is_blocked = True
            raise error
        register(provider, name, *args, **how)

    tried: list[str] = []
    register = DatabaseLockProvider.register
    monkeypatch.setattr(DatabaseLockProvider, "register", refuse_first)
    LockRecord.objects.filter(name__in=["report", "fetch"]).delete()
    old_loop._look()
    assert sorted(tried) == ["fetch", "report"]
    assert get_provider().status(tried[0]) is None
    assert get_provider().status(tried[1]).schedule is not None


def test_host_without_room_for_processes(
    old_loop: beat.BeatLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat that can't start a process tries only one job in each look."""

    def refuse(jobs: Still, due: DueStart, write: Callable[[str], None]) -> bool:
        Still.added.append(due)
        return False

    monkeypatch.setattr(Still, "start", refuse)
    for name in ("tidy", "report"):
        get_provider().request_run(name, "ops", "at once, please")
    old_loop._look()
    assert len(Still.added) == 1


def test_reader_of_the_output_is_gone(
    old_loop: beat.BeatLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A closed output pipe does not stop the beat.

    After Ctrl-C ``| tee log`` is gone, but the jobs must end in order.
    """

    written: list[str] = []

    def refuse(text: str) -> None:
        written.append(text)
        raise BrokenPipeError("Broken pipe")

    monkeypatch.setattr(old_loop.output, "write", refuse)
    old_loop._write("Waiting")
    old_loop._print_jobs(datetime.now(UTC))
    assert written[:2] == ["Waiting", "Starting these jobs of provider 'default':"]


def test_beat_is_seen(still: type[Still]) -> None:
    """A beat counts as a catch-up that was seen, except with ``--no-catch-up``."""
    still.how = stop
    run("beat", "--no-catch-up")
    assert last_catch_up(get_provider()) is None
    run("beat")
    assert last_catch_up(get_provider()) is not None


def test_nothing_to_start() -> None:
    """A beat without a job, or without locks, is a mistake."""
    with (
        only_jobs_of(),
        override_settings(INSTALLED_APPS=["django_shedlock", "django_shedlock.beat"]),
    ):
        with pytest.raises(CommandError, match="No job of provider 'default' has a"):
            run("beat")
    with override_settings(SHEDLOCK_ENABLED=False):
        with pytest.raises(CommandError, match="each host would run each job"):
            run("beat")


def test_note_of_a_catch_up_that_is_interrupted_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGTERM between its acquisition and its release leaves no lock held."""
    acquire = MemoryLockProvider.acquire

    def interrupt(provider: MemoryLockProvider, lock: Lock) -> None:
        acquire(provider, lock)
        raise SystemExit

    monkeypatch.setattr(MemoryLockProvider, "acquire", interrupt)
    with locked_in_memory():
        with pytest.raises(SystemExit):
            note_catch_up(get_provider())
        wait_for(lambda: not is_held(CATCH_UP_LOCK))
