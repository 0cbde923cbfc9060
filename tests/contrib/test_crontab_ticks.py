"""Each tick of an entry of ``CRONJOBS`` runs once, by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command, get_commands
from django.test import override_settings
from django_crontab.crontab import Crontab

from django_shedlock.contrib.crontab.entries import CrontabEntry, crontab_jobs
from django_shedlock.history.pruning import prune_locks
from django_shedlock.models import LockRecord
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.schedules.cron import Schedule
from tests.support.clocks import store_clock
from tests.support.crontabs import CRONTAB_SETTINGS, Digest, Report, calls, command
from tests.support.jobs import only_jobs_of
from tests.support.locks import take

pytestmark = pytest.mark.django_db(transaction=True)

JOBS = "tests.support.crontabs"
CALL = "django.core.management.call_command"
APPS = [
    "django_shedlock",
    "django_shedlock.beat",
    "django_shedlock.contrib.crontab",
    "django_crontab",
]
SIX = datetime(2026, 6, 1, 6, tzinfo=UTC)
A_DAY = timedelta(days=1)
AN_HOUR = timedelta(hours=1)
TWENTY_SECONDS = timedelta(seconds=20)
DAILY = "0 6 * * *"
KINDS: list[Any] = [
    (DAILY, f"{JOBS}.plain"),
    (DAILY, f"{JOBS}.coroutine"),
    (DAILY, f"{JOBS}.decorated"),
    (DAILY, f"{JOBS}.wrapped"),
    (DAILY, f"{JOBS}.decorated_coroutine"),
    (DAILY, CALL, ["digest"]),
    (DAILY, CALL, ["report"]),
]


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    """Install the two apps, whose commands Django remembers; cron counts in UTC."""
    calls.clear()
    with ExitStack() as stack:
        stack.callback(get_commands.cache_clear)
        settings = {
            **CRONTAB_SETTINGS,
            "INSTALLED_APPS": APPS,
            "SHEDLOCK_CRONTAB_TIME_ZONE": "UTC",
            "SHEDLOCK_CRONTAB": options_of_all(lock_at_least_for=0),
        }
        stack.enter_context(override_settings(**settings))
        get_commands.cache_clear()
        stack.enter_context(command("report", Report()))
        stack.enter_context(command("digest", Digest()))
        yield


def options_of_all(**options: Any) -> dict[str, Any]:
    return {entry[1]: options for entry in KINDS}


def run(entry: Any, now: datetime, *entries: Any) -> None:
    with override_settings(CRONJOBS=entries or [entry]), store_clock(now):
        call_command("crontab", "run", Crontab()._Crontab__hash_job(entry))


@pytest.mark.parametrize("entry", KINDS, ids=str)
def test_each_tick_runs_once(entry: Any) -> None:
    """A short job does not run again on a host that is 20 seconds late."""
    for day in range(3):
        early = SIX + day * A_DAY
        run(entry, early)
        run(entry, early + TWENTY_SECONDS)
        assert len(calls) == day + 1
        record = LockRecord.objects.get()
        assert (record.tick, record.due_at) == (early, early + A_DAY)
        assert record.schedule == "0 6 * * * UTC"


@pytest.mark.parametrize("entry", KINDS, ids=str)
def test_ticks_can_be_left_out(entry: Any) -> None:
    """With ``"schedule": None`` an entry has a lock, and no ticks."""
    options = options_of_all(schedule=None, lock_at_least_for=0)
    with override_settings(SHEDLOCK_CRONTAB=options):
        run(entry, SIX)
        run(entry, SIX + AN_HOUR)
    assert len(calls) == 2
    assert LockRecord.objects.get().schedule is None


def test_other_schedule_of_the_settings() -> None:
    """A schedule in SHEDLOCK_CRONTAB takes the place of the entry's own."""
    options = options_of_all(schedule="@weekly", lock_at_least_for=0)
    with override_settings(SHEDLOCK_CRONTAB=options, TIME_ZONE="Asia/Tokyo"):
        run((DAILY, f"{JOBS}.plain"), SIX)
        run((DAILY, f"{JOBS}.plain"), SIX + A_DAY)
    assert len(calls) == 1
    assert LockRecord.objects.get().schedule == "@weekly Asia/Tokyo"


class Tickless(MemoryLockProvider):
    """Somebody's own store, which knows of no ticks."""

    keeps_ticks = False


# The bodies of the others look for a row.
@pytest.mark.parametrize("entry", [*KINDS[:2], *KINDS[5:]], ids=str)
def test_store_that_keeps_no_ticks_locks(entry: Any) -> None:
    """Where ticks can't be kept, entries run under locks all the same."""
    stores = {"default": {"BACKEND": f"{__name__}.Tickless"}}
    with override_settings(SHEDLOCK_PROVIDERS=stores):
        run(entry, SIX)
        run(entry, SIX + TWENTY_SECONDS)
    assert [call[0].provider.__class__ for call in calls] == [Tickless, Tickless]


@pytest.mark.each_store
def test_entry_that_has_no_interval_has_no_ticks() -> None:
    """What cron starts once a boot runs at each of them."""
    entry = ("@reboot", f"{JOBS}.plain")
    run(entry, SIX)
    run(entry, SIX + AN_HOUR)
    assert len(calls) == 2


@pytest.mark.each_store
def test_start_at_boot_after_a_job_that_ran_at_the_shutdown() -> None:
    """The lease of a job that was killed is soon over, and the boot runs it again."""
    entry = ("@reboot", f"{JOBS}.plain")
    job = CrontabEntry(*entry).job
    assert job is not None
    with store_clock(SIX):
        take(job.request.configuration())
    run(entry, SIX + TWENTY_SECONDS)
    assert calls == []
    run(entry, SIX + timedelta(minutes=2))
    assert len(calls) == 1


def test_line_of_the_crontab_has_one_time() -> None:
    """The text of several expressions is no time of an entry, and has no ticks."""
    several = f"{DAILY} | 0 7 * * *"
    assert str(Schedule(several, "UTC")) == f"{several} UTC"
    entry = CrontabEntry(several, f"{JOBS}.plain")
    assert entry.ticks is None
    assert entry.ticks_of_call is None


def test_wrong_entry_stops_no_other() -> None:
    """Jobs are known by name, whatever is wrong with other entries."""
    wrong = [
        "nothing",
        ("* * * * *", "no.such.job"),
        ("* * * * *", "tests.apps.broken.jobs.job"),
        ("* * * * *", f"{JOBS}.remind"),
        ("* * * * *", f"{JOBS}.plain", [{1}]),
        (DAILY, f"{JOBS}.unlocked"),
    ]
    options = {f"{JOBS}.unlocked": {"lock_at_most_for": "soon"}}
    with override_settings(
        CRONJOBS=[*wrong, (DAILY, f"{JOBS}.plain")], SHEDLOCK_CRONTAB=options
    ):
        assert [job.name for job in crontab_jobs()] == [f"cron:{JOBS}.plain"]
    for nothing in (None, 3):
        with override_settings(CRONJOBS=nothing):
            assert "decorated" in [job.name for job in named_jobs("default")]


def test_entry_whose_lock_contradicts_the_settings_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    An entry whose lock contradicts the settings is logged and left out.

    The other entries stay known.
    """
    path = f"{JOBS}.decorated"
    with override_settings(
        CRONJOBS=[(DAILY, path), (DAILY, f"{JOBS}.plain")],
        SHEDLOCK_CRONTAB={path: {"schedule": None}},
        SHEDLOCK_DEFAULT_LOCK_AT_LEAST_FOR="8m",  # the lease lasts for seven
    ):
        assert [job.name for job in crontab_jobs()] == [f"cron:{JOBS}.plain"]
    assert f"The entry {(DAILY, path)!r} of CRONJOBS is wrong." in caplog.text


def test_wrong_entry_is_logged_without_the_secrets_of_its_arguments(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An option of a command may be a token."""
    entry = (DAILY, "no.such.module", ["--token=s3cr3t"])
    with override_settings(CRONJOBS=[entry]):
        assert list(crontab_jobs()) == []
    [record] = caplog.records
    assert "--token=***" in record.getMessage()
    assert "s3cr3t" not in record.getMessage()


def test_job_of_an_entry_has_the_name_that_its_arguments_make() -> None:
    """A decorated job that needs arguments can be started by the name of the entry."""
    job = CrontabEntry(DAILY, f"{JOBS}.remind", ["gold"]).job
    assert job is not None
    assert (job.name, job.name_template) == ("remind:gold", None)
    assert not job.needs_arguments
    assert job.start()
    assert LockRecord.objects.get().name == "remind:gold"


def test_pruning_leaves_what_entries_have_run() -> None:
    """An entry that cron starts seldom keeps its record, so a missed run is seen."""
    run((DAILY, f"{JOBS}.plain"), SIX)
    LockRecord.objects.update(lock_until=SIX - 1000 * A_DAY)
    with override_settings(CRONJOBS=[(DAILY, f"{JOBS}.plain")]):
        assert prune_locks("default", A_DAY) == 0
    with override_settings(CRONJOBS=[]):
        assert prune_locks("default", A_DAY) == 1


def catch_up(now: datetime, *entries: Any, zone: str = "UTC") -> str:
    settings = {"CRONJOBS": list(entries), "SHEDLOCK_CRONTAB_TIME_ZONE": zone}
    out = StringIO()
    with override_settings(**settings), store_clock(now), only_jobs_of(JOBS):
        call_command("shedlock", "catch-up", stdout=out)
    return out.getvalue()


FRIDAY = datetime(2026, 6, 5, 9, tzinfo=UTC)
WEEKDAYS = ("0 9 * * 1-5", f"{JOBS}.plain")
SATURDAYS = ("0 12 * * 6", f"{JOBS}.plain")


@pytest.mark.each_store
@pytest.mark.parametrize("entries", [[WEEKDAYS, SATURDAYS], [SATURDAYS, WEEKDAYS]])
def test_lock_of_a_call_counts_the_ticks_of_all_its_entries(entries: list[Any]) -> None:
    """Each of two times runs once, and a missed Saturday is caught up on Sunday."""
    saturday = FRIDAY.replace(hour=12) + A_DAY
    for entry, tick in ((WEEKDAYS, FRIDAY), (SATURDAYS, saturday)):
        for late in (timedelta(0), TWENTY_SECONDS):
            run(entry, tick + late, *entries)
        record = LockRecord.objects.get()
        assert record.tick == tick
    assert len(calls) == 2
    assert record.due_at == FRIDAY + 3 * A_DAY
    # One text in whatever order, so that no edit of CRONJOBS changes the schedule.
    assert record.schedule == f"{WEEKDAYS[0]} | {SATURDAYS[0]} UTC"
    run(WEEKDAYS, FRIDAY + 7 * A_DAY, *entries)
    sunday = saturday + 8 * A_DAY
    assert catch_up(sunday, *entries).endswith(": ran.\n")
    assert catch_up(sunday, *entries) == ""
    assert len(calls) == 4


def test_entries_of_one_call_are_one_job() -> None:
    """Nothing that lists or starts jobs meets the call twice."""
    entries = [WEEKDAYS, SATURDAYS, (*WEEKDAYS, ">> log"), (DAILY, CALL, ["report"])]
    with override_settings(CRONJOBS=entries):
        names = [job.name for job in crontab_jobs()]
    assert names == [f"cron:{JOBS}.plain", "cron:report"]


@pytest.mark.each_store
@pytest.mark.parametrize("turn", [1, -1])
def test_overdue_entry_is_caught_up_by_its_own_schedule(turn: int) -> None:
    """If two calls share a lock, catch-up runs the one whose ticks the lock counts."""
    entries = [(WEEKDAYS[0], f"{JOBS}.plain"), (SATURDAYS[0], f"{JOBS}.plain", ["eu"])]
    shared = {f"{JOBS}.plain": {"name": "shared", "lock_at_least_for": 0}}
    with override_settings(SHEDLOCK_CRONTAB=shared):
        run(entries[0], FRIDAY)
        monday = FRIDAY + 3 * A_DAY + timedelta(minutes=10)
        assert catch_up(monday, *entries[::turn]).endswith(": ran.\n")
        assert catch_up(monday, *entries[::turn]) == ""
    assert [args for _, args, _ in calls] == [(), ()]
    record = LockRecord.objects.exclude(schedule=None).get()
    assert record.schedule == "0 9 * * 1-5 UTC"


AT_TWO = ("0 2 * * *", f"{JOBS}.plain")
BERLIN = "Europe/Berlin"
TEN_MINUTES = timedelta(minutes=10)


def test_host_in_another_time_zone_runs_no_tick_again() -> None:
    """cron counts in Berlin, and who catches up in UTC: each night has one run."""
    night = datetime(2026, 1, 15, 1, tzinfo=UTC)
    for number in range(3):
        at_one = night + number * A_DAY
        with override_settings(SHEDLOCK_CRONTAB_TIME_ZONE=BERLIN):
            run(AT_TWO, at_one)
        assert catch_up(at_one + TEN_MINUTES, AT_TWO) == ""
        assert catch_up(at_one + timedelta(hours=1) + TEN_MINUTES, AT_TWO) == ""
        assert len(calls) == number + 1


def test_two_time_zones_hide_no_missed_run() -> None:
    """Hosts that catch up in turn do not forget what is late; the one in step runs."""
    night = datetime(2026, 1, 15, 1, tzinfo=UTC)
    with override_settings(SHEDLOCK_CRONTAB_TIME_ZONE=BERLIN):
        run(AT_TWO, night)
    for hours in range(1, 24, 6):
        for zone in ("UTC", BERLIN):
            assert catch_up(night + timedelta(hours=hours), AT_TWO, zone=zone) == ""
    next_night = night + A_DAY + TEN_MINUTES
    assert ": is left to other hosts: " in catch_up(next_night, AT_TWO)
    assert catch_up(next_night, AT_TWO, zone=BERLIN).endswith(": ran.\n")
    assert len(calls) == 2


def test_entries_tick_in_the_zone_of_cron() -> None:
    """The ticks of an entry are in cron's zone, not in the project's."""
    zone = {"SHEDLOCK_CRONTAB_TIME_ZONE": "Asia/Kolkata", "TIME_ZONE": "UTC"}
    with override_settings(**zone):
        job = CrontabEntry(DAILY, f"{JOBS}.plain").job
        run((DAILY, f"{JOBS}.plain"), SIX)
    assert job is not None
    assert job.request.schedule == Schedule(DAILY, "Asia/Kolkata")
    half_past = SIX.replace(hour=0, minute=30)
    assert LockRecord.objects.get().tick == half_past
