"""The app for Sentry Crons, by what the SDK hands to its transport."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from django_shedlock import LockLost, execute, hold, scheduler_lock
from django_shedlock.contrib.sentry import apps
from django_shedlock.locks.time_limits import TimeLimitExceeded
from django_shedlock.registry.jobs import decorated_job
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.testing import (
    force_release,
    held_elsewhere,
    locked_in_memory,
    run_as_if_at,
)
from tests.support.clocks import store_clock
from tests.support.forks import run_in_fork
from tests.support.installed import installed
from tests.support.locks import Broken
from tests.support.threads import meeting_of, run_threads
from tests.support.waiting import PATIENCE
from tests.support.web import serving

YEARLY = "0 0 1 1 *"
"""A tick that does not come while a test runs."""

IN_DATABASE = {
    "default": {"BACKEND": "django_shedlock.providers.database.DatabaseLockProvider"}
}

UNCOMPRESSED = ("transport_compression_level", "transport_zlib_compression_level")
"""The option that has to be 0; the SDK renamed it."""


class Noted(Transport):
    """Keeps what the SDK would send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[dict[str, Any]] = []
        self.error: Exception | None = None

    def capture_envelope(self, envelope: Envelope) -> None:
        if self.error:
            raise self.error
        for item in envelope.items:
            assert item.type == "check_in"
            self.sent.append(item.payload.json)

    def take(self) -> list[tuple[str, str]]:
        """Return the monitor and status of each check-in since the last call."""
        taken, self.sent = self.sent, []
        return [(each["monitor_slug"], each["status"]) for each in taken]


@pytest.fixture
def sentry() -> Iterator[Noted]:
    transport = Noted()
    sentry_sdk.init(
        "http://key@127.0.0.1/1",
        transport=transport,
        environment="staging",
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    yield transport
    sentry_sdk.get_client().close()
    sentry_sdk.Scope.get_global_scope().set_client(None)


@pytest.fixture(autouse=True)
def connected() -> Iterator[None]:
    with locked_in_memory(), installed("django_shedlock.contrib.sentry"):
        yield


def run(name: str = "nightly", schedule: Any = YEARLY) -> None:
    execute(lambda: None, name, schedule=schedule)


def test_run_checks_in_and_out(sentry: Noted, settings: Any) -> None:
    """The first check-in makes the monitor, the second one belongs to it."""
    settings.SHEDLOCK_GRACE = "150s"
    schedule = Schedule("30 2 * * mon", "Europe/Berlin")
    execute(lambda: None, "Shop.nightly", schedule=schedule, lock_at_most_for="90m1s")
    begun, ended = sentry.sent
    assert begun["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "30 2 * * mon"},
        "timezone": "Europe/Berlin",
        "checkin_margin": 3,
        "max_runtime": 92,
    }
    assert begun["duration"] is None
    assert 0 <= ended["duration"] < 200
    assert "monitor_config" not in ended
    assert begun["check_in_id"] == ended["check_in_id"]
    assert {each["environment"] for each in sentry.sent} == {"staging"}
    assert sentry.take() == [("shop-nightly", "in_progress"), ("shop-nightly", "ok")]


def test_zone_of_the_settings_and_a_shorthand(sentry: Noted, settings: Any) -> None:
    """Sentry knows neither of them; of each duration it wants a minute at least."""
    settings.SHEDLOCK_GRACE = 0
    execute(lambda: None, "nightly", schedule="@midnight", lock_at_most_for="30s")
    assert sentry.sent[0]["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 0 * * *"},
        "timezone": "America/Chicago",
        "checkin_margin": 1,
        "max_runtime": 2,
    }


def test_several_expressions_say_when_the_next_tick_is(
    sentry: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentry takes one expression, so it gets the minutes until the next tick."""
    twice = Schedule(["0 6 1 1 *", "0 6 1 7 *"], "UTC")
    june = datetime(2126, 6, 1, 5, 59, 30, tzinfo=UTC)
    monkeypatch.setattr(apps, "host_now", lambda: june)
    execute(lambda: None, "nightly", schedule=twice)
    config = sentry.sent[0]["monitor_config"]
    minutes = 30 * 24 * 60 + 1
    assert config["schedule"] == {
        "type": "interval",
        "value": minutes,
        "unit": "minute",
    }
    assert config["timezone"] == "UTC"


@pytest.mark.parametrize(
    ("interval", "value", "unit"),
    [
        ("every 1m", 1, "minute"),
        ("every 90m", 90, "minute"),
        ("every 2h", 2, "hour"),
        ("every 3d", 3, "day"),
    ],
)
def test_interval_of_whole_minutes_is_an_interval(
    sentry: Noted, interval: str, value: int, unit: str
) -> None:
    """Sentry knows intervals of minutes, hours and days."""
    run(schedule=interval)
    config = sentry.sent[0]["monitor_config"]
    assert config["schedule"] == {"type": "interval", "value": value, "unit": unit}
    assert config["timezone"] == "UTC"


def test_minutes_until_the_next_tick_of_another_minute(
    sentry: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a schedule in seconds, a minute's later ticks are not awaited."""
    noon = datetime(2126, 6, 1, 12, tzinfo=UTC)
    for schedule, seconds, minutes in [
        ("every 20s", 0, 1),
        (["every 20s", "0 6 * * *"], 0, 1),
        ("every 150s", 0, 3),
        (["every 180s", "every 200s"], 180, 3),  # the tick of 200 s is not reported
    ]:
        tick = noon + timedelta(seconds=seconds)
        now = tick + timedelta(seconds=1)
        monkeypatch.setattr(apps, "host_now", lambda now=now: now)
        with run_as_if_at(tick):
            run(str(schedule), schedule)
        config = sentry.sent[-2]["monitor_config"]
        assert config["schedule"] == {
            "type": "interval",
            "value": minutes,
            "unit": "minute",
        }


def test_first_run_of_a_minute_checks_in(sentry: Noted) -> None:
    """Sentry drops what comes more often, whichever tick of a minute runs first."""
    reported = []
    for time in ("00:00", "00:20", "00:40", "01:20", "01:40", "02:40", "03:00"):
        with run_as_if_at(f"2126-06-01 12:{time}+00:00"):
            run(schedule="every 20s")
        if sentry.take():
            reported.append(time)
    assert reported == ["00:00", "01:20", "02:40", "03:00"]


def test_second_run_of_a_tick_checks_in(sentry: Noted) -> None:
    """After a failure, an operator's run tells Sentry that the job is well again."""

    @scheduler_lock("poll", schedule="every 20s")
    def poll() -> None: ...

    job = decorated_job(poll)
    assert job is not None
    with run_as_if_at("2126-06-01 12:00:20+00:00"):
        poll()
        job.start(Start(Trigger.OPERATOR))
    assert sentry.take() == [("poll", "in_progress"), ("poll", "ok")] * 2


@pytest.mark.django_db
@pytest.mark.each_store
def test_record_knows_which_tick_was_begun_before(sentry: Noted, settings: Any) -> None:
    """Each run may be in another process, so no process remembers it."""
    settings.SHEDLOCK_PROVIDERS = IN_DATABASE
    noon, reported = datetime(2026, 6, 1, 12, tzinfo=UTC), []
    for seconds in (0, 20, 80, 100):
        with store_clock(noon + timedelta(seconds=seconds)):
            run(schedule="every 20s")
        if sentry.take():
            reported.append(seconds)
    assert reported == [0, 80]


def test_failed_run_is_an_error(sentry: Noted) -> None:
    """An exit with status 0 is a success, as in the history."""
    limit = TimeLimitExceeded(timedelta(minutes=30))
    for raised in (Broken(), SystemExit(3), SystemExit(0), limit):
        with pytest.raises(type(raised)), hold(f"job-{raised}", schedule=YEARLY):
            raise raised
    assert [status for _, status in sentry.take()[1::2]] == [
        "error",
        "error",
        "ok",
        "error",
    ]


def test_skip_checks_nothing_in(sentry: Noted) -> None:
    """A skip sends no check-in, whether the lock is held or the tick has run."""
    with held_elsewhere("nightly"):
        run()
    assert sentry.take() == []
    run("other")
    run("other")
    assert sentry.take() == [("other", "in_progress"), ("other", "ok")]


def test_lock_without_a_schedule_checks_nothing_in(sentry: Noted) -> None:
    """A lock without a schedule sends no check-in."""
    run(schedule=None)
    assert sentry.take() == []


def test_lost_lock_is_an_error_at_once(sentry: Noted) -> None:
    """While the body runs; how it ends then is not told."""
    with hold("nightly", schedule=YEARLY) as lock:
        sentry.take()
        force_release("nightly")
        with pytest.raises(LockLost):
            lock.extend()
        assert sentry.take() == [("nightly", "error")]
    assert sentry.take() == []


def test_extension_keeps_the_check_in_open(
    sentry: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    An extension keeps the check-in open, at most once per interval.

    A short lease that is kept alive is then no timeout for Sentry.
    """
    with hold("nightly", schedule=YEARLY) as lock:
        lock.extend()
        assert sentry.take() == [("nightly", "in_progress")]
        monkeypatch.setattr(apps, "CHECK_IN_INTERVAL_SECONDS", 0)
        lock.extend()
        assert "monitor_config" not in sentry.sent[0]
        assert sentry.take() == [("nightly", "in_progress")]
    assert sentry.take() == [("nightly", "ok")]
    with hold("other") as lock:
        lock.extend()
    assert sentry.take() == []


def test_async_jobs_and_runs_in_one_another(sentry: Noted) -> None:
    """Each run has a check-in of its own."""

    @scheduler_lock("inner", schedule=YEARLY)
    async def inner() -> None:
        raise Broken("on purpose")

    @scheduler_lock("outer", schedule=YEARLY)
    async def outer() -> None:
        with pytest.raises(Broken):
            await inner()

    asyncio.run(outer())
    assert len({each["check_in_id"] for each in sentry.sent}) == 2
    assert sentry.take() == [
        *(("outer", "in_progress"), ("inner", "in_progress")),
        *(("inner", "error"), ("outer", "ok")),
    ]


def test_runs_in_threads(sentry: Noted) -> None:
    """Each thread's run closes its own check-in."""
    names = iter([f"job-{number}" for number in range(8)])
    meeting = meeting_of(8)

    def check_in_and_out() -> None:
        execute(meeting.wait, next(names), schedule=YEARLY)

    run_threads(8, check_in_and_out, meeting)
    keys = [(each["monitor_slug"], each["check_in_id"]) for each in sentry.sent]
    assert len(keys) == 16
    assert len(set(keys)) == 8


def test_without_the_sdk_set_up_nothing_is_kept() -> None:
    """A project may call init() in some of its processes only."""
    before = len(apps._open)
    with hold("nightly", schedule=YEARLY):
        assert len(apps._open) == before


@pytest.mark.django_db(transaction=True)
def test_job_of_a_beat_checks_in_and_out() -> None:
    """The SDK sends later, and its process is forked and ends."""
    with serving() as web:
        sentry_sdk.init(
            f"http://key@{web.url.removeprefix('http://')}/1",
            default_integrations=False,
            auto_enabling_integrations=False,
            shutdown_timeout=PATIENCE,
            _experiments=dict.fromkeys(UNCOMPRESSED, 0),
        )
        run_in_fork(run)
        sentry_sdk.get_client().close()
        sentry_sdk.Scope.get_global_scope().set_client(None)
        sent = [each.body for each in web.sent if '"type":"check_in"' in each.body]
    assert [re.findall('"status":"(.+?)"', body) for body in sent] == [
        ["in_progress"],
        ["ok"],
    ]


def test_transport_that_raises_breaks_no_job(sentry: Noted) -> None:
    """A job runs although Sentry's transport raises an exception."""
    sentry.error = Broken("no network")
    done: list[str] = []
    execute(lambda: done.append("done"), "nightly", schedule=YEARLY)
    assert done == ["done"]
    assert sentry.take() == []
