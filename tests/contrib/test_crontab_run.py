"""The command ``crontab`` of the app that locks all entries of ``CRONJOBS``."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import BaseCommand, call_command, get_commands
from django.test import override_settings
from django_crontab.crontab import Crontab

from django_shedlock import Lock, locks_held, scheduler_lock
from django_shedlock.contrib.crontab.entries import CrontabEntry
from django_shedlock.durations import format_duration
from django_shedlock.models import LockRecord
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.sql.fields import DatabaseNow
from tests.support.clocks import daily_far_from_now
from tests.support.crontabs import CRONTAB_SETTINGS, Digest, Report, calls, command
from tests.support.jobs import only_jobs_of
from tests.support.locks import has_succeeded, take
from tests.support.paths import ROOT

pytestmark = pytest.mark.django_db(transaction=True)

SQLITE = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
JOBS = "tests.support.crontabs"
CALL = "django.core.management.call_command"
NIGHTLY = daily_far_from_now()
APPS = [
    "django_shedlock",
    "django_shedlock.beat",
    "django_shedlock.contrib.crontab",
    "django_crontab",
]


in_utc = partial(override_settings, SHEDLOCK_CRONTAB_TIME_ZONE="UTC")


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    """Install the two apps, whose commands Django remembers."""
    calls.clear()
    with override_settings(INSTALLED_APPS=APPS, **CRONTAB_SETTINGS):
        get_commands.cache_clear()
        yield
    get_commands.cache_clear()


def run(*entry: Any) -> None:
    with override_settings(CRONJOBS=[("0 0 1 1 *", f"{JOBS}.failing"), entry]):
        call_command("crontab", "run", Crontab()._Crontab__hash_job(entry))


def lock_of(*entry: Any) -> Lock:
    run(*entry)
    lock: Lock = calls[0][0]
    return lock


def test_entry_runs_under_a_lock_of_its_path() -> None:
    """The job gets its arguments, and the lock's name has nothing of the schedule."""
    run("*/5 * * * *", f"{JOBS}.plain", "> /dev/null")
    [(lock, args, kwargs)] = calls
    assert (lock.name, args, kwargs) == (f"cron:{JOBS}.plain", (), {})


def test_arguments_are_part_of_the_name() -> None:
    """Two entries of one function with different arguments are two locks."""
    take(f'cron:{JOBS}.plain("gold")')
    run("*/5 * * * *", f"{JOBS}.plain", ["gold"])
    run("*/5 * * * *", f"{JOBS}.plain", ["silver"], {"b": {"y": 1, "x": 2}, "a": True})
    [(lock, args, kwargs)] = calls
    assert lock.name == f'cron:{JOBS}.plain("silver", a=true, b={{"x": 2, "y": 1}})'
    assert (args, kwargs["a"]) == (("silver",), True)


def test_skip_is_silent(capfd: Any, caplog: Any) -> None:
    """An entry whose lock is held prints nothing, logs no error and exits with 0."""
    take(f"cron:{JOBS}.failing")
    run("*/5 * * * *", f"{JOBS}.failing")
    assert capfd.readouterr() == ("", "")
    assert [r for r in caplog.records if r.levelno > logging.INFO] == []


def test_short_job_keeps_its_lock_for_a_while() -> None:
    """A host that starts the tick a little later does not run the job again."""
    with override_settings(SHEDLOCK_CRONTAB={f"{JOBS}.plain": {"schedule": None}}):
        run("*/5 * * * *", f"{JOBS}.plain")
        run("*/5 * * * *", f"{JOBS}.plain")
    assert len(calls) == 1
    assert LockRecord.objects.filter(lock_until__gt=DatabaseNow()).count() == 1


@pytest.mark.parametrize(
    ("time", "options", "at_most", "at_least"),
    [
        ("* * * * *", {}, "54s", "0s"),
        ("*/5 * * * *", {}, "4m30s", "0s"),
        ("@daily", {}, "1h", "0s"),
        ("@reboot", {}, "1m", "1m"),
        ("@reboot", {"lock_at_least_for": "5m"}, "5m", "5m"),
        ("@reboot", {"lock_at_most_for": "2h"}, "2h", "1m"),
        ("* * * * *", {"schedule": None}, "54s", "30s"),
        ("*/5 * * * *", {"schedule": None}, "4m30s", "1m"),
        ("@daily", {"schedule": None, "lock_at_most_for": "10s"}, "10s", "10s"),
        ("@daily", {"lock_at_least_for": "2h"}, "2h", "2h"),
        ("@daily", {"lock_at_most_for": "10s"}, "10s", "0s"),
        ("@daily", {"lock_at_most_for": 90, "lock_at_least_for": 0}, "1m30s", "0s"),
    ],
)
def test_durations_come_from_the_schedule(
    time: str, options: Any, at_most: str, at_least: str
) -> None:
    """The lease ends before the next tick and is kept alive, unless settings differ."""
    with override_settings(SHEDLOCK_CRONTAB={f"{JOBS}.plain": options}):
        job = CrontabEntry(time, f"{JOBS}.plain").job
    assert job is not None
    assert job.request.keep_alive is True
    configuration = job.request.configuration()
    assert format_duration(configuration.lock_at_most_for) == at_most
    assert format_duration(configuration.lock_at_least_for) == at_least


@pytest.mark.parametrize("keep_alive", [False, None])
def test_start_at_boot_that_is_not_kept_alive_has_a_long_lease(
    keep_alive: bool | None,
) -> None:
    """A lease of a minute would end before a job that nothing extends."""
    options = {f"{JOBS}.plain": {"keep_alive": keep_alive}}
    with override_settings(SHEDLOCK_CRONTAB=options):
        job = CrontabEntry("@reboot", f"{JOBS}.plain").job
    assert job is not None
    configuration = job.request.configuration()
    assert configuration.lock_at_most_for == timedelta(hours=1)
    assert configuration.lock_at_least_for == timedelta(minutes=1)


def test_settings_of_path_and_of_call() -> None:
    """Options of a call with its arguments count more than those of its path."""
    options = {
        f"{JOBS}.plain": {"name": "plain", "keep_alive": False},
        f'{JOBS}.plain("gold")': {"name": "gold"},
    }
    with override_settings(SHEDLOCK_CRONTAB=options):
        gold = CrontabEntry("@daily", f"{JOBS}.plain", ["gold"]).job
        other = CrontabEntry("@daily", f"{JOBS}.plain", [1]).job
    assert gold is not None
    assert other is not None
    assert (gold.name, gold.request.keep_alive) == ("gold", False)
    assert other.name == "plain"


def test_entry_that_is_to_have_no_lock() -> None:
    """An entry of CRONJOBS with ``locked`` False runs without a lock."""
    options = {f"{JOBS}.unlocked": {"locked": False}}
    with override_settings(SHEDLOCK_CRONTAB=options):
        run("* * * * *", f"{JOBS}.unlocked")
    assert calls == [()]


@pytest.mark.parametrize("name", ["decorated", "wrapped", "bound"])
def test_decorated_target_keeps_its_own_lock(name: str) -> None:
    """A decorated job is locked once, also below other wrappers and partials."""
    lock = lock_of("*/5 * * * *", f"{JOBS}.{name}")
    assert (lock.name, lock.configuration.lease) == ("decorated", "7m")
    assert LockRecord.objects.count() == 1


def test_decorated_command_keeps_its_own_lock() -> None:
    """A command with a lock, called by its name, is locked once."""
    with command("digest", Digest()):
        lock = lock_of("0 6 * * *", CALL, ["digest"])
    assert lock.name == "digest"
    assert LockRecord.objects.count() == 1


class Sweep(BaseCommand):
    """A command that can be called to look only."""

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--dry-run", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        calls.append((len(locks_held()),))


def test_only_the_lock_of_a_command_knows_calls_that_look() -> None:
    """``--dry-run`` runs without a command's own lock, not without the entry's."""
    entry = ("*/5 * * * *", CALL, ["sweep", "--dry-run"])
    with command("sweep", Sweep()):
        run(*entry)
    assert LockRecord.objects.get().name == 'cron:sweep("--dry-run")'
    # A class of its own, because the decorator changes it.
    decorated = scheduler_lock("sweep")(type("Locked", (Sweep,), {}))
    with command("sweep", decorated()):
        run(*entry)
    assert calls == [(1,), (0,)]


def test_other_command_gets_a_lock() -> None:
    """A command without one is locked by its name and arguments, without a path."""
    with command("report", Report()):
        run("0 6 * * *", CALL, ["report"])
        run("0 6 * * *", CALL, ["report", "gold", "--format", "csv"])
        run("0 6 * * *", CALL, ["report", "gold"], {"format": "csv"})
    assert [lock.name for lock, *_ in calls] == [
        "cron:report",
        'cron:report("gold", "--format", "csv")',
        'cron:report("gold", format="csv")',
    ]


def test_command_named_by_its_keyword_is_the_same_call() -> None:
    """A command named by keyword runs under the same lock as one named by position."""
    by_keyword = {"command_name": "report", "format": "csv"}
    with command("report", Report()), command("digest", Digest()):
        run("0 6 * * *", CALL, [], by_keyword)
        run("0 6 * * *", CALL, [], {"command_name": "digest"})
        entry = CrontabEntry("0 6 * * *", CALL, ["report"], {"format": "csv"})
        assert CrontabEntry("0 6 * * *", CALL, [], by_keyword).call == entry.call
    assert [lock.name for lock, *_ in calls] == ['cron:report(format="csv")', "digest"]
    assert calls[0][1:] == ([], "csv")


@pytest.mark.parametrize(
    "key", [CALL, "report", f'{CALL}("report", "gold")', 'report("gold")']
)
def test_settings_of_a_command(key: str) -> None:
    """Options may stand by each name that people give to a command and to its call."""
    with (
        command("report", Report()),
        override_settings(SHEDLOCK_CRONTAB={key: {"name": "gold"}}),
    ):
        job = CrontabEntry("@daily", CALL, ["report", "gold"]).job
    assert job is not None
    assert job.name == "gold"


@pytest.mark.each_store
def test_start_at_boot_leaves_the_ticks_alone() -> None:
    """A call that also has ticks runs at each boot, and a boot uses up no tick."""
    path = f"{JOBS}.plain"
    jobs = [(NIGHTLY, path), ("@reboot", path)]
    options = {path: {"lock_at_least_for": 0}}
    with in_utc(CRONJOBS=jobs, SHEDLOCK_CRONTAB=options):
        for job in (jobs[1], jobs[1], jobs[0], jobs[0], jobs[1]):
            call_command("crontab", "run", Crontab()._Crontab__hash_job(job))
    assert len(calls) == 4
    record = LockRecord.objects.get()
    assert record.schedule == f"{NIGHTLY} UTC"
    assert has_succeeded(record)


@pytest.mark.parametrize("name", ["coroutine", "decorated_coroutine"])
def test_coroutine_function_is_run(name: str) -> None:
    """A coroutine function runs to its end, under its own lock or the entry's."""
    lock = lock_of("*/5 * * * *", f"{JOBS}.{name}")
    own = name.replace("_", " ")
    assert lock.name == (own if "_" in name else f"cron:{JOBS}.{name}")
    assert LockRecord.objects.count() == 1


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (("* * * * *", f"{JOBS}.failing"), "ZeroDivisionError: by nobody"),
        (("* * * * *", f"{JOBS}.missing"), "ImportError"),
        (("* * * * *", f"{JOBS}.plain", 3), "it has to be (time, path)"),
        (("* * * * *", f"{JOBS}.plain", [], {"path": 1}, 1), "it has to be"),
        (
            ("* * * * *", CALL, ["nothing"]),
            "Unknown command",
        ),
    ],
)
def test_failure_is_logged_and_exits_with_1(
    entry: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the entry and the traceback, and the exit status tells cron."""
    with pytest.raises(SystemExit) as end:
        run(*entry)
    assert end.value.code == 1
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.name == "django_shedlock"
    assert repr(entry) in record.getMessage()
    assert text in caplog.text


def test_hash_of_no_entry_says_that_cronjobs_changed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """cron's line is older than CRONJOBS: cron mails why, and what to do."""
    with pytest.raises(SystemExit) as end, override_settings(CRONJOBS=[]):
        call_command("crontab", "run", "0123456789abcdef")
    assert end.value.code == 1
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.exc_info is None
    assert "hash 0123456789abcdef, so nothing is run: CRONJOBS" in record.getMessage()
    assert "`python manage.py crontab add --verbosity 0`" in record.getMessage()


def test_store_that_fails_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Without its store the job does not run, and the exit status is 1."""
    LockRecord.objects.all().delete()
    broken = {"default": {"BACKEND": "no.such.Provider"}}
    with override_settings(SHEDLOCK_PROVIDERS=broken), pytest.raises(SystemExit):
        run("* * * * *", f"{JOBS}.plain")
    assert calls == []
    assert "no.such" in caplog.text


def test_other_subcommands_are_django_crontabs(tmp_path: Path) -> None:
    """Adding an entry writes the line that django-crontab would."""
    table = tmp_path / "table"
    program = tmp_path / "crontab"
    program.write_text(f'#!/bin/sh\n[ "$1" = -l ] || cat "$1" > {table}\n')
    program.chmod(0o755)
    entry = ("0 6 * * *", f"{JOBS}.plain")
    Path(tmp_path, "project.py").write_text(
        f"from tests.settings import *\n"
        f"INSTALLED_APPS = {APPS!r}\nCRONJOBS = [{entry!r}]\n"
        f"CRONTAB_EXECUTABLE = {str(program)!r}\n"
        f"globals().update({CRONTAB_SETTINGS!r})\n"
        f"ROOT_URLCONF, urlpatterns = 'project', []\n"
        f"DATABASES = {SQLITE!r}\n"  # the tests' user may use test databases only
    )
    done = subprocess.run(
        # django-crontab leaves the reading end of a pipe open.
        [sys.executable, "-W", "ignore", "-m", "django", "crontab", "add"],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "project",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "adding cronjob" in done.stdout
    assert f"crontab run {Crontab()._Crontab__hash_job(entry)}" in table.read_text()


def test_triggered_job_has_the_schedule_of_its_entry() -> None:
    """What runs by hand counts for the entry's newest tick, and is not overdue."""
    with in_utc(CRONJOBS=[(NIGHTLY, f"{JOBS}.decorated")]):
        call_command("shedlock", "trigger", "decorated", stdout=io.StringIO())
    record = LockRecord.objects.get(name="decorated")
    assert str(record.schedule).startswith(NIGHTLY)
    assert has_succeeded(record)


@pytest.mark.parametrize("name", ["plain", "decorated"])
def test_job_knows_who_starts_its_entry(name: str) -> None:
    """An operator's start is one, whether the target has its own lock or not."""
    start = Start(Trigger.OPERATOR, operator="alice", reason="the disk was full")
    with in_utc():
        job = CrontabEntry(NIGHTLY, f"{JOBS}.{name}").job
        assert job is not None
        assert job.start(start)
    assert calls[0][0].configuration.start == start


def test_overdue_entries_are_caught_up() -> None:
    """Entries with and without their own locks run again, once, if they are overdue."""
    entries = [
        (NIGHTLY, f"{JOBS}.decorated_coroutine"),
        (NIGHTLY, f"{JOBS}.plain", ["gold"]),
        (NIGHTLY, CALL, ["report"]),
        (NIGHTLY, "nowhere.at_all"),
    ]
    with (
        in_utc(CRONJOBS=entries),
        command("report", Report()),
        only_jobs_of(JOBS),
    ):
        call_command("shedlock", "catch-up")
        assert calls == []
        then = DatabaseNow() - timedelta(days=3)
        LockRecord.objects.update(due_at=then, tick=then)
        out = io.StringIO()
        call_command("shedlock", "catch-up", stdout=out)
        call_command("shedlock", "catch-up", stdout=out)
    assert out.getvalue().count(": ran.") == len(calls) == 3
