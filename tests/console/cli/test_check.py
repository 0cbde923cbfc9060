"""``manage.py shedlock check``: what it finds, and its exit statuses."""

from __future__ import annotations

import io
import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.core.management.base import OutputWrapper
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from django_shedlock import clocks, execute
from django_shedlock.clocks import local_text
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.sql.fields import DatabaseNow
from tests.support.clocks import store_clock
from tests.support.commands import call
from tests.support.lateness import (
    HOUR,
    HOURLY,
    be_on_time,
    be_overdue,
    be_overdue_by_unknown_schedule,
    give_schedule,
)
from tests.support.locks import MINUTE, configure, end_run, expire, take

pytestmark = pytest.mark.django_db

DATABASE = "django_shedlock.providers.database.DatabaseLockProvider"
TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MEMORY = "django_shedlock.providers.memory.MemoryLockProvider"


def check(*args: str) -> tuple[int, str]:
    """Return the exit status, and what is printed."""
    out = io.StringIO()
    try:
        call_command("shedlock", *args, stdout=out)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def found(*args: str) -> list[dict[str, Any]]:
    _, printed = check("check", "--json", *args)
    listed: list[dict[str, Any]] = json.loads(printed)
    return listed


def age(name: str, duration: timedelta) -> None:
    LockRecord.objects.filter(name=name).update(locked_at=DatabaseNow() - duration)


def test_nothing_is_wrong() -> None:
    """Locks that are free or run as usual are no finding: exit status 0."""
    take("free").release()
    end_run("free", duration=MINUTE)
    take("running")
    end_run("running", RunOutcome.FAILED)
    end_run("running", duration=MINUTE)
    assert check("check") == (0, "No findings.\n")
    assert found() == []


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (RunOutcome.FAILED, "failed at {ended_at} with ValueError."),
        (RunOutcome.TIMED_OUT, "was ended at {ended_at} because its time limit was"),
        (RunOutcome.LOST, "lost its lock at {lost_at}, "),
        (RunOutcome.ABANDONED, "began at {started_at}, has not reported its end, and"),
    ],
)
def test_bad_last_run(outcome: RunOutcome, text: str) -> None:
    """A last run that went wrong is a line that says when: exit status 1."""
    take("job").release()
    end_run("job")
    end_run("job", outcome, exception_type="ValueError")
    status, printed = check("check")
    assert status == 1
    names = ("started_at", "ended_at", "lost_at")
    [times] = LockRecord.objects.values(*names)
    when = {name: at and local_text(at) for name, at in times.items()}
    assert printed.startswith(f"WARNING Lock 'job': Its last run {text}".format(**when))
    assert len(printed.splitlines()) == 1
    assert [(each["kind"], each["lock"]) for each in found()] == [
        (outcome.value, "job")
    ]
    end_run("job")
    # Of a loss one has to know for a day, however later runs end.
    assert check("check")[0] == (outcome is RunOutcome.LOST)


def test_abandoned_run_whose_start_is_not_known() -> None:
    """Another service had the lock meanwhile, so the record does not say it."""
    take("job").release()
    end_run("job", RunOutcome.ABANDONED)
    LockRecord.objects.update(started_at=None)
    LockRun.objects.update(started=None)
    assert "Its last run has not reported its end, and does" in check("check")[1]


def test_failures_in_a_row_are_counted() -> None:
    """The line tells whether it is the first time."""
    for told in (
        " with ValueError.",
        "ValueError, and 2 runs in a row have not succeeded.",
        "ValueError, and 3 runs in a row have not succeeded.",
    ):
        end_run("job", RunOutcome.FAILED, exception_type="ValueError")
        assert told in check("check")[1]


def test_expired_and_never_released() -> None:
    """A lock whose worker died is one finding, also if that happened before."""
    for _ in range(2):
        lock = take("job")
        expire("job")
    assert [each["kind"] for each in found()] == ["expired"]
    status, printed = check("check")
    assert (status, f"{lock.locked_by} never released" in printed) == (1, True)


@override_settings(
    SHEDLOCK_PROVIDERS={"default": {"BACKEND": MEMORY}, "shop": {"BACKEND": DATABASE}}
)
def test_expired_lock_says_what_to_do_next() -> None:
    """A release, once its process is gone; only then a run. It ends the finding."""
    lock = take(configure("my job"), get_provider("shop"))
    expire("my job")
    be_overdue("my job")
    commands = [each["command"] for each in found()]
    shedlock = "python manage.py shedlock --provider shop"
    assert commands == [
        f"{shedlock} show 'my job'",
        f"{shedlock} show 'my job'",
    ]
    check("--provider", "shop", "release", "my job", "--held-by", lock.locked_by)
    [overdue] = found()
    assert overdue["kind"] == "overdue"
    assert overdue["command"] == f"{shedlock} catch-up 'my job'"


def test_job_that_takes_longer_than_usual() -> None:
    """A job is suspicious that runs for three times as long as it did."""
    take("job", lock_at_most_for=timedelta(hours=2))
    end_run("job", duration=10 * MINUTE)
    age("job", 29 * MINUTE)
    assert found() == []
    age("job", 31 * MINUTE)
    assert [each["kind"] for each in found()] == ["long"]
    _, printed = check("check")
    assert "Its job has run for 31m" in printed
    assert "it usually takes 10m. If" in printed


def test_job_that_takes_longer_than_it_may() -> None:
    """What is suspicious can be said; a lock that is only kept runs nothing."""
    take("job", lock_at_most_for=timedelta(hours=2))
    take("kept", lock_at_least_for=timedelta(seconds=50)).release()
    age("kept", 31 * MINUTE)
    age("job", 31 * MINUTE)
    assert found() == []
    assert [each["lock"] for each in found("--held-for", "30m")] == ["job"]
    assert found("--held-for", "1h") == []


@pytest.mark.parametrize(
    ("columns", "since", "why", "command"),
    [
        (
            {"tick": TEN - 3 * HOUR, "succeeded": TEN - 3 * HOUR},
            "02:00",
            "No run has begun since the tick of 2026-03-02 01:00:00-06:00: check "
            "whether its scheduler runs.",
            "catch-up job",
        ),
        (
            {"succeeded": TEN - SECOND},
            "04:00",
            "No run has ever begun: check whether its scheduler runs.",
            "catch-up job",
        ),
        (
            {"tick": TEN, "succeeded": TEN - SECOND},
            "04:00",
            "Its job ran, but did not succeed: find out why.",
            "trigger job",
        ),
        (
            {"tick": TEN, "succeeded": TEN - 3 * HOUR},
            "02:00",
            "The last tick that ran, 2026-03-02 04:00:00-06:00, has not succeeded "
            "either: find out why.",
            "trigger job",
        ),
    ],
)
def test_overdue_job(
    columns: dict[str, datetime], since: str, why: str, command: str
) -> None:
    """The line tells which tick, why it is late, and which command runs the job."""
    take("job").release()
    give_schedule(
        "job", schedule=HOURLY, **{"tick": None, "succeeded": None, **columns}
    )
    with store_clock(TEN + timedelta(minutes=10)):
        [overdue] = [each for each in found() if each["kind"] == "overdue"]
    if command.startswith("trigger"):  # after a look whether it has run meanwhile
        assert overdue["command"] == "python manage.py shedlock show job"
        overdue["command"] = overdue["command_after_look"]
    assert overdue["command"] == f"python manage.py shedlock {command}"
    late = {"04:00": "10m", "02:00": "2h10m"}[since]
    # The store's clock goes on meanwhile.
    sentence = re.sub(r"^(Late by \w+m)\d+s:", r"\1:", overdue["sentence"])
    assert sentence == (
        f"Late by {late}: the tick of 2026-03-02 {since}:00-06:00 (0 * * * * UTC) has "
        f"not succeeded. {why}"
    )


def told_at(kind: str, moment: datetime, *args: str) -> list[str]:
    with store_clock(moment):
        listed = found(*args)
    return [each["sentence"] for each in listed if each["kind"] == kind]


def overdue_at(moment: datetime, *args: str) -> list[str]:
    return told_at("overdue", moment, *args)


@override_settings(
    SHEDLOCK_PROVIDERS={"default": {"BACKEND": MEMORY}, "shop": {"BACKEND": DATABASE}}
)
def test_overdue_job_of_another_provider() -> None:
    """The command that runs the job now asks the provider that has its lock."""
    execute(lambda: None, "job", provider="shop")
    be_overdue("job")
    [overdue] = found()
    assert (
        overdue["command"] == "python manage.py shedlock --provider shop catch-up job"
    )


def test_overdue_job_is_a_warning() -> None:
    """
    An overdue job is a warning with exit status 1.

    A success ends the warning.
    """
    take("job").release()
    be_overdue("job")
    status, printed = check("check")
    assert (status, len(printed.splitlines())) == (1, 1)
    assert re.match("WARNING Lock 'job': Late by .*: the tick of", printed)
    be_on_time("job")
    assert check("check") == (0, "No findings.\n")


@pytest.mark.each_store
def test_job_is_overdue_after_the_grace() -> None:
    """The setting says how long that is, unless the call does."""
    take("job").release()
    give_schedule("job", tick=TEN, succeeded=TEN, schedule=HOURLY)
    late = TEN + HOUR + timedelta(minutes=10)
    assert len(overdue_at(late)) == 1
    assert overdue_at(late, "--grace", "11m") == []
    with override_settings(SHEDLOCK_GRACE="11m"):
        assert overdue_at(late) == []
        assert len(overdue_at(late, "--grace", "0s")) == 1


def test_running_job_is_not_overdue() -> None:
    """
    A running job is not overdue, since it may succeed yet.

    A job that keeps later ticks from being run is reported as running too long.
    """
    take("job")
    give_schedule("job", tick=TEN, succeeded=TEN - HOUR, schedule=HOURLY)
    soon, late = (TEN + HOUR + minutes * MINUTE for minutes in (4, 6))
    assert told_at("overdue", late) == told_at("long", soon) == []
    [long] = told_at("long", late)
    assert "since the tick of 2026-03-02 04:00:00-06:00 (0 * * * * UTC)" in long
    assert told_at("long", late, "--grace", "7m") == []
    assert told_at("long", late, "--held-for", "365d") == []


def test_job_that_runs_as_long_as_usual_may_skip_ticks() -> None:
    """What always takes longer than until the next tick is nothing to look at."""
    take("job", lock_at_most_for=HOUR)
    be_overdue("job")
    age("job", 30 * MINUTE)
    assert [each["kind"] for each in found()] == ["long"]
    end_run("job", duration=31 * MINUTE)
    assert found() == []
    LockRecord.objects.update(usual=29 * 60)
    [long] = found()
    assert "so later ticks are skipped." in long["sentence"]


def test_limit_counts_for_jobs_that_usually_keep_it() -> None:
    """A healthy job of 3.2 hours that usually takes 6.4 is no finding of 2 hours."""
    take("job", lock_at_most_for=30 * HOUR)
    age("job", timedelta(hours=3.2))
    assert [each["kind"] for each in found("--held-for", "2h")] == ["long"]
    end_run("job", duration=timedelta(hours=6.4))
    assert found("--held-for", "2h") == []
    age("job", timedelta(hours=20))
    assert [each["kind"] for each in found("--held-for", "2h")] == ["long"]


def test_overdue_job_does_not_hide_why_it_is() -> None:
    """That it failed, or that its worker died, is a finding of its own below."""
    take("failed").release()
    end_run("failed", RunOutcome.FAILED, exception_type="ValueError")
    take("dead")
    expire("dead")
    for name in ("failed", "dead"):
        be_overdue(name)
    assert [(each["lock"], each["kind"]) for each in found()] == [
        ("dead", "overdue"),
        ("dead", "expired"),
        ("failed", "overdue"),
        ("failed", "failed"),
    ]


def test_overdue_needs_no_schedule_that_can_be_read() -> None:
    """The record knows when the job is due, also where nobody can read its schedule."""
    take("job").release()
    be_overdue_by_unknown_schedule("job")
    end_run("job", RunOutcome.FAILED)
    assert [each["kind"] for each in found()] == ["overdue", "failed"]


@override_settings(SHEDLOCK_GRACE="soon")
def test_grace_that_is_no_duration_is_refused() -> None:
    """The setting is named; it is no failure of the store."""
    with pytest.raises(CommandError, match="SHEDLOCK_GRACE"):
        check("check")


def test_clocks_that_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store whose clock is far from this host's is a finding without a lock."""
    assert abs(clocks.clock_difference(get_provider().now)) < timedelta(seconds=5)
    for hours, direction in [(1, "ahead of"), (-1, "behind")]:
        monkeypatch.setattr(clocks, "time", Shifted(-3600 * hours))
        [clock] = found()
        assert (clock["kind"], clock["lock"]) == ("clock", None)
        assert direction in clock["sentence"]
        assert "59m" in clock["sentence"] or "1h" in clock["sentence"]


class Shifted:
    """A clock that is wrong by the same number of seconds always."""

    def __init__(self, seconds: float):
        self._seconds = seconds

    def time(self) -> float:
        return time.time() + self._seconds


@pytest.mark.django_db(transaction=True)
def test_store_that_fails_is_critical() -> None:
    """Without the table no job runs, which is said with the remedy: exit status 2."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock RENAME TO elsewhere")
    try:
        status, printed = check("check")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock")
    assert status == 2
    assert printed.startswith("CRITICAL Provider 'default': Could not read")
    assert "migrate" in printed


@override_settings(
    SHEDLOCK_PROVIDERS={
        "default": {"BACKEND": "no.such.Provider"},
        "memory": {"BACKEND": MEMORY},
    }
)
def test_every_provider_is_looked_at() -> None:
    """A provider that can't be created is critical, and does not hide the others."""
    assert [(each["provider"], each["kind"]) for each in found()] == [
        ("default", "unreachable")
    ]
    assert check("--provider", "memory", "check") == (0, "No findings.\n")
    assert check("check")[0] == 2


@override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": MEMORY}})
def test_provider_without_history() -> None:
    """Locks in memory have a state, but no last run."""
    assert isinstance(get_provider(), MemoryLockProvider)
    take("job", lock_at_most_for=timedelta(milliseconds=1))
    time.sleep(0.01)
    assert [each["kind"] for each in found()] == ["expired"]


@pytest.mark.parametrize(
    ("providers", "text"),
    [
        ({}, "none at all"),
        (["default"], "must be dict"),
        ({"default": {"BACKEND": DATABASE, "OPTIONS": {"using": "gone"}}}, "'gone'"),
    ],
)
def test_settings_with_which_no_job_runs_are_critical(
    providers: Any, text: str
) -> None:
    """No traceback, and not the status of a job that needs a look."""
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        status, printed = check("check")
    assert status == 2
    assert printed.startswith("CRITICAL")
    assert text in printed


@pytest.mark.parametrize(
    ("error", "shown"),
    [(TimeoutError(), "TimeoutError"), (KeyError("LOCATION"), "KeyError 'LOCATION'")],
)
def test_store_that_fails_without_a_text(
    monkeypatch: pytest.MonkeyPatch, error: Exception, shown: str
) -> None:
    """The type of the error says more than nothing, or than a key."""

    def now() -> None:
        raise error

    monkeypatch.setattr(get_provider(), "now", now)
    status, printed = check("check")
    assert (status, printed.strip()) == (2, f"CRITICAL Provider 'default': {shown}")


@pytest.mark.parametrize("error", [ImproperlyConfigured, RuntimeError])
def test_store_that_fails_in_its_own_way_is_critical(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """As where the database's driver is missing, or its name is empty."""

    def now() -> None:
        raise error("supply the NAME")

    monkeypatch.setattr(get_provider(), "now", now)
    status, printed = check("check")
    assert (status, printed) == (2, "CRITICAL Provider 'default': supply the NAME\n")


def test_unknown_provider_is_critical() -> None:
    """A misspelt provider protects nothing."""
    status, printed = check("--provider", "redis", "check")
    assert (status, "no lock provider 'redis'" in printed) == (2, True)


def test_locks_can_be_left_out() -> None:
    """Names that match a pattern are no finding; the case counts."""
    for name in ("import:7", "import:8", "Import:9", "nightly"):
        end_run(name, RunOutcome.FAILED)
    args = ("--ignore", "import:*", "--ignore", "night??")
    assert [each["lock"] for each in found(*args)] == ["Import:9"]


def test_ignored_pattern_without_a_lock_is_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    An ``--ignore`` pattern without a lock is noted on a terminal only.

    A misspelt pattern is no error, and cron does not mail the note each time.
    """
    end_run("import:7", RunOutcome.SUCCEEDED)
    words = ("check", "--ignore", "import:*", "--ignore", "imprt:*")
    note = "--ignore 'imprt:*' matches no lock that is known.\n"
    assert call(*words) == (0, "No findings.\n", "")
    monkeypatch.setattr(OutputWrapper, "isatty", lambda self: True)
    assert call(*words) == (0, "No findings.\n", note)
    assert call(*words, "--json") == (0, "[]\n", note)
    assert call(*words, "--verbosity", "0") == (0, "", "")


def test_acknowledged_locks_are_named_whole() -> None:
    """A name is a word to copy: none is cut, and the others are counted."""
    names = [
        f"shop.send_a_very_long_mail_of_the_{number}_customers" for number in "1234"
    ]
    for name in names:
        end_run(name, RunOutcome.FAILED)
        call("acknowledge", name, "--reason", "known")
    _, printed, _ = call("check")
    listed = ", ".join(names[:3])
    assert printed.endswith(
        f"`python manage.py shedlock show NAME`: {listed} and 1 more.\n"
    )


def test_warnings_can_be_let_pass() -> None:
    """
    With ``--fail-on critical`` a warning does not fail the check.

    The probe of a pod should fail only if the store fails.
    """
    end_run("job", RunOutcome.FAILED)
    status, printed = check("check", "--fail-on", "critical")
    assert (status, printed.startswith("WARNING")) == (0, True)
    assert check("--provider", "redis", "check", "--fail-on", "critical")[0] == 2


def test_findings_stay_on_their_lines() -> None:
    """What others wrote into the tables can't forge a line."""
    take("job")
    LockRecord.objects.update(locked_by="web\nCRITICAL all is lost:1:a")
    expire("job")
    _, printed = check("check")
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize(
    "args", [["--held-for", "soon"], ["--grace", "-1s"], ["--fail-on", "never"]]
)
def test_wrong_call(args: list[str]) -> None:
    """What can't be understood is refused, with the argument's name."""
    with pytest.raises(CommandError, match=args[0]):
        check("check", *args)


def test_findings_cost_few_statements(django_assert_num_queries: Any) -> None:
    """Clock, locks, actions and runs: four, however many findings there are."""
    for number in range(30):
        take(f"job-{number}")
        end_run(f"job-{number}", RunOutcome.FAILED)
    with django_assert_num_queries(4 + 4 * 2):  # in four savepoints of the test's
        check("check")


def test_store_that_answers_late_is_not_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the store's clock is off for certain counts."""
    moments = iter([0.0, 100.0])
    monkeypatch.setattr(clocks.time, "time", lambda: next(moments))
    provider = get_provider()
    told = timezone.make_aware(datetime(1970, 1, 1, 0, 0, 5), UTC)
    monkeypatch.setattr(provider, "now", lambda: told)
    assert clocks.clock_difference(provider.now) == timedelta(0)
