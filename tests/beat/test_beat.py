"""``shedlock beat``: hosts that start jobs at their ticks, and none leads."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from django.core.management import CommandError
from django.test import override_settings

from django_shedlock.beat import loop as beat
from django_shedlock.beat.bodies import Bodies
from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.registry.requests import (
    CATCH_UP_LOCK,
    REQUEST_LIFETIME,
    last_catch_up,
)
from django_shedlock.schedules.state import Trigger
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import is_held, locked_in_memory
from tests.support.beats import (
    Beats,
    beats_in,
    process_ids,
    when_it_waits,
    write_and_go_on,
    write_and_wait,
)
from tests.support.commands import run
from tests.support.jobs import only_jobs_of, scheduled_jobs
from tests.support.locks import pause, take
from tests.support.operators import statements
from tests.support.private_connections import counted_statements
from tests.support.runs import is_alive
from tests.support.waiting import wait_for

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
    assert sorted(beats.ticks()) == expected


def test_it_says_what_it_will_run(beats: Beats) -> None:
    """Each job, its schedule, and its next tick."""
    told = when_it_waits(beats.start())
    assert told.startswith("Starting these jobs of provider 'default':")
    assert "each minute: * * * * * " in told
    assert f":{beats.step().minute:02}:00" in told


def test_job_is_started_by_its_scheduler(beats: Beats) -> None:
    """So the record decides about its tick, and history knows that."""
    # A catch-up might run the tick first, with this grace.
    when_it_waits(beats.start("--no-catch-up"))
    beats.step()
    wait_for(beats.ticks)
    row = wait_for(LockRun.objects.filter(outcome=RunOutcome.SUCCEEDED).first)
    assert row.trigger == Trigger.SCHEDULER


def test_what_is_overdue_is_caught_up(beats: Beats) -> None:
    """Nobody was there at the tick; a beat that starts later runs it."""
    register(beats)
    tick = beats.step(timedelta(minutes=3))
    beats.start()
    assert wait_for(beats.ticks) == [tick]
    assert wait_for(LockRun.objects.first).trigger == Trigger.CATCH_UP


def test_host_that_stood_still_runs_the_newest_tick(beats: Beats) -> None:
    """Not the one that it waited for, of an hour ago perhaps."""
    when_it_waits(beats.start("--no-catch-up"))
    tick = beats.step(timedelta(minutes=3))
    assert wait_for(beats.ticks) == [tick]


def test_without_catch_up_nothing_is(beats: Beats) -> None:
    """A beat that starts later waits for its next tick."""
    register(beats)
    beats.step(timedelta(minutes=3))
    ask_for_a_run()
    when_it_waits(beats.start("--no-catch-up"))
    tick = beats.step()
    assert wait_for(beats.ticks) == [tick]
    assert get_provider().status("each minute").job.asked_by == "ops"


def test_run_that_an_operator_asks_for(beats: Beats) -> None:
    """It begins within seconds, and long before the next tick."""
    when_it_waits(beats.start())
    wait_for(is_registered)  # its first catch-up would carry it out as well
    ask_for_a_run()
    beats.step(timedelta(seconds=5))
    wait_for(beats.ticks)
    row = wait_for(LockRun.objects.filter(outcome=RunOutcome.SUCCEEDED).first)
    assert (row.trigger, row.operator) == (Trigger.OPERATOR, "ops")


def register(beats: Beats) -> None:
    """Let a beat make the job known, and be gone."""
    host = beats.start()
    wait_for(is_registered)
    host.kill()
    host.stdout.read()  # until its catch-up has ended, too


def is_registered() -> bool:
    """Tell whether the record knows its ticks: it is made a moment earlier."""
    status = get_provider().status("each minute")
    return status is not None and status.schedule is not None


def ask_for_a_run() -> None:
    get_provider().request_run("each minute", "ops", "at once, please")


def test_sigterm_ends_the_jobs(beats: Beats) -> None:
    """They get it as well, tidy up, and release their locks."""
    host = beats.start(body=write_and_wait)
    when_it_waits(host)
    beats.step()
    wait_for(beats.ticks)
    host.send_signal(signal.SIGTERM)
    assert host.wait() == 0
    assert (beats.folder / "tidied up").exists()
    assert get_provider().status("each minute").state is LockState.FREE
    assert LockRun.objects.get().outcome == RunOutcome.FAILED


def test_jobs_that_go_on_are_killed(beats: Beats) -> None:
    """After the grace, with all that they have started."""
    host = beats.start("--grace", "0s", body=write_and_go_on)
    when_it_waits(host)
    beats.step()
    pids = process_ids(beats.folder)
    host.send_signal(signal.SIGTERM)
    assert host.wait() == 0
    wait_for(lambda: not any(map(is_alive, pids)))


def test_store_that_is_away(beats: Beats) -> None:
    """It is told once, and asked until it answers; then the beat goes on."""
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


class Still(Bodies):
    """Bodies of a beat whose wait ends as the test says, and that never start."""

    how: Callable[[], None]
    added: list[str] = []
    ended = 0
    now = 0.0

    def wait(self, seconds: float) -> None:
        self._waiting.clear()
        type(self).how()

    def add(self, key: str, body: Callable[..., object], *arguments: object) -> None:
        self.added.append(key)

    def end(self, grace: timedelta) -> None:
        type(self).ended += 1


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Still]]:
    """Let beats of this process start nothing; they have one daily job."""
    monkeypatch.setattr(beat, "Bodies", Still)
    monkeypatch.setattr(Still, "ended", 0)
    monkeypatch.setattr(Still, "added", [])
    with scheduled_jobs() as kept:
        assert kept.report  # registered as long as somebody knows it
        yield Still


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_what_ends_it_ends_its_jobs(still: type[Still]) -> None:
    """Nobody else would: they have process groups of their own."""

    def fail() -> None:
        raise ZeroDivisionError

    still.how = fail
    with pytest.raises(ZeroDivisionError):
        run("beat")
    assert still.ended == 1


@pytest.mark.parametrize(
    ("args", "wakes", "count"),
    [
        ((), [0.0], 4),  # the clock, the requests to run, and that a beat was seen
        ((), [0.0, 3.0, 5.0], 5),
        ((), [0.0, 5.0, 60.0], 10),
        (("--no-catch-up",), [0.0, 5.0, 60.0], 2),
    ],
)
def test_statements_while_it_waits(
    still: type[Still],
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    wakes: list[float],
    count: int,
) -> None:
    """One each five seconds, for requests, and four each minute."""
    note_catch_up(get_provider())  # the record is there
    uptimes = iter(wakes)
    monkeypatch.setattr(beat, "uptime", lambda: still.now)
    still.now = next(uptimes)

    def go_on() -> None:
        still.now = next(uptimes, math.inf)
        if still.now == math.inf:
            stop()

    still.how = go_on
    with counted_statements() as sent:
        run("beat", *args)
    assert len(statements(sent)) == count


def requested(still: type[Still]) -> list[str]:
    """Return the requested runs that a beat starts at its first look."""
    still.how = stop
    run("beat")
    return [key for key in still.added if "asks for" in key]


def test_request_is_started(still: type[Still]) -> None:
    """By its own key, since the job may also start at its tick."""
    get_provider().request_run("report", "ops", "at once, please")
    assert requested(still) == ["report, which ops asks for"]


@pytest.mark.parametrize("holder", ["a run", "a pause"])
def test_request_for_a_held_lock_waits(still: type[Still], holder: str) -> None:
    """No process is started every few seconds for a job that can't run now."""
    get_provider().request_run("report", "ops", "at once, please")
    take("report") if holder == "a run" else pause("report")
    assert requested(still) == []
    assert get_provider().status("report").job.asked_by == "ops"


def test_expired_request_is_closed(
    still: type[Still], caplog: pytest.LogCaptureFixture
) -> None:
    """The beat starts nothing for it, and says so in the log, once."""
    get_provider().request_run("report", "ops", "at once, please")
    LockRecord.objects.update(asked_at=DatabaseNow() - REQUEST_LIFETIME)
    assert requested(still) == requested(still) == []
    assert get_provider().status("report").job.asked_at is None
    assert caplog.text.count("The request has expired") == 1


def test_beat_is_seen(still: type[Still]) -> None:
    """It carries out requests, so it counts as a catch-up; unless it is told not to."""
    still.how = stop
    run("beat", "--no-catch-up")
    assert last_catch_up(get_provider()) is None
    run("beat")
    assert last_catch_up(get_provider()) is not None


def test_clock_that_is_set_back(
    still: type[Still], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next tick comes by the store's clock as it is then."""
    clocks = [datetime(2030, 1, day, tzinfo=UTC) for day in (9, 2)]
    monkeypatch.setattr(DatabaseLockProvider, "now", lambda provider: clocks.pop(0))
    looks: list[list[datetime]] = []
    uptimes = iter([60.0, math.inf])
    monkeypatch.setattr(beat, "uptime", lambda: still.now)
    monkeypatch.setattr(
        beat.BeatLoop, "_start_due", lambda made: looks.append(made.due) or math.inf
    )
    still.now = 0.0

    def go_on() -> None:
        still.now = next(uptimes)
        if still.now == math.inf:
            stop()

    still.how = go_on
    run("beat", "--no-catch-up")
    before, after = (min(due) for due in looks)
    assert before.day in {9, 10}
    assert after.day in {2, 3}


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
