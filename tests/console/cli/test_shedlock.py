"""``manage.py shedlock``: what it prints, and its exit statuses."""

from __future__ import annotations

import getpass
import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_shedlock.cli import listing
from django_shedlock.cli.base import operator
from django_shedlock.cli.terminal import printable
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import reading
from django_shedlock.schedules.cron import Schedule
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import call, run
from tests.support.lateness import (
    DAILY,
    be_on_time,
    be_overdue,
    be_overdue_by_unknown_schedule,
)
from tests.support.locks import (
    LEASE,
    MINUTE,
    configure,
    end_run,
    pause,
    state,
    status_of,
    take,
)
from tests.support.waiting import STARTUP_PATIENCE

pytestmark = pytest.mark.django_db

OF_NO_DATABASE = {
    "default": {
        "BACKEND": "django_shedlock.providers.database.DatabaseLockProvider",
        "OPTIONS": {"using": "gone"},
    }
}


def test_pause_without_an_end_has_no_number_of_days() -> None:
    """A century is no answer to how long it is paused."""
    pause("job", lasting=FOREVER)
    assert "until resumed" in run("list", "--wide")
    [listed] = json.loads(run("list", "--json"))
    assert (listed["remaining"], listed["remaining_reason"]) == (None, "until resumed")
    LockRecord.objects.all().delete()
    pause("job")
    assert "until resumed" not in run("list", "--wide")
    [listed] = json.loads(run("list", "--json"))
    assert listed["remaining"] > 0
    assert listed["remaining_reason"] == ""


def test_list_without_locks() -> None:
    """An empty table is said in words."""
    assert run("list") == "There are no locks yet.\n"


def test_list_is_a_table() -> None:
    """Each lock is a line, below the names of the columns."""
    lock = take("billing")
    take("a.much.longer.name").release()
    end_run("a.much.longer.name", RunOutcome.FAILED)
    header, first, second, advice = run("list", "--wide").splitlines()
    assert header.split() == [
        "NAME",
        "STATE",
        "LOCKED",
        "BY",
        "LOCKED",
        "AT",
        "REMAINING",
        "LAST",
        "RUN",
        "FINDINGS",
    ]
    assert first.startswith("a.much.longer.name  free")
    assert second.startswith("billing             running  " + lock.locked_by)
    assert first.endswith("-          failed    failed")
    assert re.search(r"  (5m|4m(\d+s)?) +- +-$", second)
    assert advice.startswith("1 lock has findings. `python manage.py sh")


def test_list_as_json() -> None:
    """Programs get instants in ISO-8601 and durations in seconds."""
    lock = take("billing")
    end_run("billing", RunOutcome.LOST)
    [listed] = json.loads(run("list", "--json"))
    assert listed["name"] == "billing"
    assert listed["state"] == "running"
    assert listed["locked_by"] == lock.locked_by
    assert 0 < listed["remaining"] <= LEASE.total_seconds()
    assert listed["last_outcome"] == "lost"
    assert listed["locked_at"] < listed["lock_until"]


def test_list_of_schedules() -> None:
    """Where a lock has a schedule, a last column tells its next tick."""
    for name in ("late", "quick", "unplanned"):
        take(name).release()
    be_overdue("late")
    be_on_time("quick")
    header, *lines, _ = run("list", "--wide").splitlines()
    assert header.endswith("FINDINGS")
    columns = slice(header.index("NEXT"), header.index("FINDINGS"))
    texts = [line[columns].rstrip() for line in lines]
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:00-0[56]:00"
    assert re.fullmatch(moment, texts[0])
    assert re.fullmatch(moment, texts[1])
    assert texts[2] == "-"
    assert lines[0].endswith("  overdue")


def test_list_of_schedules_as_json() -> None:
    """Programs get the schedule, its next tick, and since when the job is overdue."""
    for name in ("late", "quick", "unplanned"):
        take(name).release()
    since = be_overdue("late")
    be_on_time("quick")
    keys = ("schedule", "next_tick", "overdue_since")
    late, quick, unplanned = (
        [lock[key] for key in keys] for lock in json.loads(run("list", "--json"))
    )
    assert late[0] == quick[0] == str(DAILY)
    assert datetime.fromisoformat(late[1]) > datetime.now(UTC)
    assert datetime.fromisoformat(late[2]) == since
    assert quick[2] is None
    assert unplanned == [None, None, None]


def test_list_marks_what_is_overdue_after_the_grace() -> None:
    """The setting says how long that is."""
    take("job").release()
    be_overdue("job")
    with override_settings(SHEDLOCK_GRACE="30d"):
        assert "overdue" not in run("list", "--wide")


def test_list_of_a_lock_that_nobody_ever_held() -> None:
    """A job that is only registered has no holder, and was not locked at any time."""
    get_provider().register("job", Schedule("@hourly", "UTC"))
    row = run("list", "--wide").splitlines()[1]
    assert re.split(" {2,}", row)[:6] == ["job", "free", "-", "-", "-", "-"]


def test_list_of_a_schedule_that_nobody_reads() -> None:
    """Nobody knows the ticks of another version's schedule, and all else is listed."""
    take("job").release()
    be_overdue_by_unknown_schedule("job")
    [listed] = json.loads(run("list", "--json"))
    assert (listed["name"], listed["next_tick"]) == ("job", None)
    assert "NEXT" not in run("list")


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("running", "runs"),
        ("held-at-least", "kept"),
        ("expired", "expired"),
        ("free", "free"),
    ],
)
def test_list_of_one_state(wanted: str, name: str) -> None:
    """Only the locks in a state are shown, in JSON as well."""
    take("runs")
    take("kept", lock_at_least_for=MINUTE).release()
    take("expired")
    LockRecord.objects.filter(name="expired").update(lock_until=DatabaseNow())
    take("free").release()
    header, line, *_ = run("list", "--state", wanted).splitlines()
    assert (header.split()[0], line.split()[0]) == ("NAME", name)
    listed = json.loads(run("list", "--state", wanted, "--json"))
    assert [lock["name"] for lock in listed] == [name]


def test_list_of_a_state_that_no_lock_has() -> None:
    """A list of a state that no lock has says that there are no such locks."""
    take("runs")
    assert run("list", "--state", "free") == "There are no such locks.\n"


def test_list_of_an_unknown_state() -> None:
    """A misspelt state is refused, with those that there are."""
    with pytest.raises(CommandError, match="held-at-least"):
        run("list", "--state", "held")


def listed(*args: str) -> list[str]:
    return [lock["name"] for lock in json.loads(run("list", "--json", *args))]


@pytest.mark.each_store
def test_list_of_some_names() -> None:
    """Several names and patterns may be mixed; case and brackets count."""
    for name in ("import:1", "import:2", "Import:3", "nightly", "[x]"):
        take(name)
    assert listed("import:*") == ["import:1", "import:2"]
    assert listed("nightly", "import:*") == ["import:1", "import:2", "nightly"]
    assert listed("nightly", "import:?", "[x]") == [
        "[x]",
        "import:1",
        "import:2",
        "nightly",
    ]
    assert listed("[!i]*:3", "*ght*") == ["Import:3", "nightly"]


@pytest.mark.each_store
def test_list_of_a_pattern_without_a_lock() -> None:
    """A list pattern without a lock is an error that names the pattern, status 4."""
    take("import:1")
    for words in (["none:*"], ["import:*", "none:*"], ["none:*", "--json"]):
        status, printed, told = call("list", *words)
        assert (status, printed) == (4, "")
        assert told.startswith("No lock matches the pattern 'none:*'. ")
    told = run("list", "import:*", "--state", "free")
    assert told == "There are no such locks.\n"


def test_list_of_an_unknown_name() -> None:
    """A misspelt name is an error with a suggestion; it is no empty list."""
    take("import:1")
    with pytest.raises(CommandError, match="Did you mean 'import:1'?"):
        run("list", "impotr:1")


def test_list_begins_with_what_needs_somebody() -> None:
    """The most urgent locks come first, and --attention shows only these."""
    for name in ("a", "failed", "late", "z"):
        take(name).release()
    end_run("failed", RunOutcome.FAILED, exception_type="ValueError")
    be_overdue("late")
    assert listed() == ["late", "failed", "a", "z"]
    assert listed("--attention") == ["late", "failed"]
    assert listed("--attention", "--state", "running") == []
    assert listed("f*", "z", "--attention") == ["failed"]
    rows = json.loads(run("list", "--json"))
    assert [[each["kind"] for each in row["findings"]] for row in rows] == [
        ["overdue"],
        ["failed"],
        [],
        [],
    ]
    assert "\n2 locks have findings." in run("list")
    assert "other" not in run("list")
    told = run("list", "f*").splitlines()[-2:]
    assert told[0].startswith("1 lock has findings. `python manage.py shedlock check`")
    assert told[1].startswith("1 other lock has findings: see `python manage.py shed")
    assert run("list", "a").splitlines()[-1].startswith("2 other locks have findings:")
    told = run("list", "a", "--state", "running")
    assert told.startswith("There are no such locks.\n2 other locks")
    LockRecord.objects.exclude(name="a").delete()
    LockRun.objects.all().delete()
    assert run("list", "--attention") == "There are no such locks.\n"


def test_list_has_a_limit() -> None:
    """A last line says that there are more; programs get all."""
    for number in range(7):
        take(f"import:{number}")
    short = run("list", "--limit", "3")
    assert len(short.splitlines()) == 5
    assert short.endswith("\nThere are more locks: see --limit.\n")
    assert "more" not in run("list", "--limit", "7")
    assert len(listed()) == 7
    assert listed("--limit", "2") == ["import:0", "import:1"]


@pytest.mark.each_store
def test_list_reads_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many locks there are, few are read at once, and none is left out."""
    monkeypatch.setattr(reading, "RECORDS_PER_READ", 2)
    names = [f"import:{number}" for number in range(5)]
    for name in names:
        take(name)
    assert listed() == names
    assert "\nThere are more locks" in run("list", "--limit", "3")


@pytest.mark.each_store
@pytest.mark.django_db(transaction=True)
def test_list_asks_only_for_what_it_shows(django_assert_max_num_queries: Any) -> None:
    """The number of statements does not grow with the number of locks."""
    for number in range(60):
        take(f"import:{number}")
        end_run(f"import:{number}", RunOutcome.FAILED)
    with django_assert_max_num_queries(12):
        run("list")
    with django_assert_max_num_queries(12):
        run("list", "import:1*", "--state", "running")


@override_settings(USE_TZ=False)
def test_list_without_time_zones() -> None:
    """Projects with naive datetimes see their locks as well."""
    take("billing")
    assert "billing" in run("list")


def test_release_of_a_kept_lock() -> None:
    """A lock that is only held by lock_at_least_for is released at once."""
    lock = take("job", lock_at_least_for=MINUTE)
    lock.release()
    told = f"Lock 'job' is released. {lock.locked_by} held it.\n"
    assert run("release", "job") == told
    assert state("job") is LockState.FREE


def test_release_of_a_running_lock_is_bound_to_its_holder() -> None:
    """A running job's lock is not released by mistake; that is exit status 3."""
    lock = take("job")
    with pytest.raises(CommandError, match=f"running as {lock.locked_by}") as caught:
        run("release", "job")
    assert caught.value.returncode == 3
    assert str(caught.value).endswith(
        "Make sure that its process is gone, then: python manage.py shedlock release "
        f"job --held-by {lock.locked_by} --reason"
    )
    assert state("job") is LockState.RUNNING
    run("release", "job", "--held-by", lock.locked_by, "--reason", "it is gone")
    assert state("job") is LockState.FREE


@pytest.mark.parametrize(
    ("args", "verb"),
    [
        (("release", "job", "--force"), "released"),
        (("extend", "job", "2h"), "extended"),
    ],
)
def test_intervention_is_told_with_its_reason(
    args: tuple[str, ...], verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says who did it, and why."""
    take("job")
    with caplog.at_level(logging.WARNING, "django_shedlock"):
        run(*args, "--reason", "the pod is gone")
    assert verb in caplog.text
    assert f"by {operator()}, because: 'the pod is gone'" in caplog.text


def test_operator_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container whose user has no name, the operator is a number."""

    def getuser() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(getpass, "getuser", getuser)
    assert operator() == f"user {os.getuid()}"


def test_nothing_moves_the_cursor_of_a_terminal() -> None:
    """What others wrote into the table is shown with its escapes written out."""
    take("job")
    LockRecord.objects.update(locked_by="evil\x1b[2J\nhost")
    assert r"evil\x1b[2J\nhost" in run("list", "--wide")
    with pytest.raises(CommandError, match=r"as evil\\x1b\[2J\\nhost\. Make"):
        run("release", "job")
    assert printable("Zürich 東京") == "Zürich 東京"


class Watcher:
    """Stands for the clock of a watch: ends it after some rounds, as Ctrl-C does."""

    def __init__(self, *rounds: Callable[[], object]):
        self.rounds = list(rounds)
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if not self.rounds:
            raise KeyboardInterrupt
        self.rounds.pop(0)()


def test_watch_shows_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is printed again and again, as it is then, until Ctrl-C."""
    lock = take("job")
    watcher = Watcher(lock.release)
    monkeypatch.setattr(listing, "time", watcher)
    first, second = (
        line.split()[1]
        for line in run("list", "--watch", "5s").splitlines()
        if line.startswith("job")
    )
    assert (first, second) == ("running", "free")
    assert watcher.pauses == [5, 5]


def test_watch_goes_on_when_the_store_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is shown in place of the table; the next time it may work again."""
    take("job")
    failing = get_provider()
    statuses = failing.statuses

    def fail(*args: object, **options: object) -> None:
        monkeypatch.setattr(failing, "statuses", statuses)
        raise LockProviderError("the store is gone")

    monkeypatch.setattr(failing, "statuses", fail)
    monkeypatch.setattr(listing, "time", Watcher(lambda: None))
    shown = run("list", "--watch")
    assert shown.startswith("the store is gone\n")
    assert "running" in shown


@pytest.mark.parametrize("interval", ["0s", "soon", "-1s"])
def test_watch_refuses_what_is_no_interval(interval: str) -> None:
    """An interval that is none is a wrong call."""
    with pytest.raises(CommandError, match="--watch"):
        run("list", f"--watch={interval}")


def test_watch_clears_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watched list clears the screen between its tables on a terminal only."""

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    take("job")
    monkeypatch.setattr(listing, "time", Watcher())
    screen = Screen()
    call_command("shedlock", "list", "--watch", stdout=screen)
    assert screen.getvalue().startswith("\x1b[2J\x1b[HNAME")
    monkeypatch.setattr(listing, "time", Watcher())
    assert "\x1b" not in run("list", "--watch")


@pytest.mark.parametrize("args", [["list", "--watch"], ["check"]])
def test_reader_that_stops_early(args: list[str]) -> None:
    """Behind `| head` there is no traceback, also not where Python ends."""
    reader, writer = os.pipe()
    os.close(reader)
    settings = "tests.support.lean_settings"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": settings}
    environment["PYTHONUNBUFFERED"] = "1"
    command = [sys.executable, "-m", "django", "shedlock", *args]
    done = subprocess.run(
        command,
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment,
        timeout=STARTUP_PATIENCE,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("args", [("release", "job"), ("extend", "job", "1m")])
def test_free_lock_is_not_held(args: tuple[str, ...]) -> None:
    """There is nothing to release or extend: exit status 5."""
    take("job").release()
    with pytest.raises(CommandError, match="nobody holds it") as caught:
        run(*args)
    assert caught.value.returncode == 5


@pytest.mark.parametrize("args", [("release", "jbo"), ("extend", "jbo", "1m")])
def test_unknown_lock(args: tuple[str, ...]) -> None:
    """A misspelt name is said to be unknown, with the nearest one: exit status 4."""
    take("job")
    take("import:7")
    with pytest.raises(CommandError, match="no lock 'jbo'. Did you mean") as caught:
        run(*args)
    assert "'job'?" in str(caught.value)
    assert caught.value.returncode == 4


def test_extend() -> None:
    """A running lock's lease is lengthened from now on, and never shortened."""
    take("job")
    told = run("extend", "job", "10m")
    assert re.search(r"is held for (10m|9m\d+s) more", told)
    run("extend", "job", "1s")
    assert status_of(get_provider(), "job").remaining > 9 * MINUTE


@pytest.mark.parametrize("duration", ["soon", "0s", ""])
def test_bad_duration(duration: str) -> None:
    """A duration that is none changes nothing: exit status 2."""
    take("job")
    with pytest.raises(CommandError, match=f"DURATION: {duration!r}|{duration}\\)"):
        run("extend", "job", duration)


def test_unknown_provider() -> None:
    """A misspelt provider is said to be unknown."""
    with pytest.raises(CommandError, match="no lock provider 'redis'"):
        run("--provider", "redis", "list")


@override_settings(
    SHEDLOCK_PROVIDERS={
        "default": {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"},
        "shop": {"BACKEND": "django_shedlock.providers.database.DatabaseLockProvider"},
    }
)
def test_options_may_stand_after_the_subcommand() -> None:
    """Wherever it stands, an option counts; the second one if there are two."""
    take(configure("job"), get_provider("shop"))
    assert "job" in run("list", "--provider", "shop")
    assert "job" in run("--provider", "default", "list", "--provider", "shop")
    assert "job" in run("--provider", "shop", "list", "--verbosity", "2")
    assert run("list", "--provider=default") == "There are no locks yet.\n"
    for option in ("--settings=tests.settings", "--pythonpath=.", "--traceback"):
        assert "job" in run("list", option, "--provider", "shop")


@pytest.mark.once
def test_settings_after_the_subcommand() -> None:
    """Django finds them there, as everywhere in its own commands."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "no.such.module"}
    command = [sys.executable, "-m", "django", "shedlock", "list", "--settings"]
    done = subprocess.run(
        [*command, "tests.support.lean_settings", "--provider", "gone"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=STARTUP_PATIENCE,
    )
    assert done.returncode == 2
    assert "There is no lock provider 'gone'" in done.stderr


def test_missing_subcommand() -> None:
    """Without a subcommand, the usage is shown."""
    with pytest.raises(CommandError, match="required: COMMAND"):
        run()


@override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": "no.such.Provider"}})
def test_broken_provider_is_no_traceback() -> None:
    """A provider that can't be made is said in words: exit status 2."""
    with pytest.raises(CommandError, match="no.such.Provider") as caught:
        run("list")
    assert caught.value.returncode == 2


@override_settings(SHEDLOCK_PROVIDERS=OF_NO_DATABASE)
def test_unknown_database_is_no_traceback() -> None:
    """A misspelt alias of a database is said in words: exit status 2."""
    with pytest.raises(CommandError, match="'gone' doesn't exist") as caught:
        run("list")
    assert caught.value.returncode == 2
