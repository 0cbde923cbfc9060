"""``manage.py shedlock history``: the last runs in a terminal and for programs."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import NoReturn

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test import override_settings

from django_shedlock.cli.history import History
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.status import LockStatus, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import call, run
from tests.support.locks import MINUTE, add_run, pause, take
from tests.support.private_connections import counted_statements
from tests.support.waiting import NEVER_SECONDS

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
IN_MEMORY = {
    "default": {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}
}


def names(*args: str) -> list[str]:
    return [run["name"] for run in json.loads(run("history", *args, "--json"))]


def test_history_without_runs() -> None:
    """An empty table is said in words."""
    assert run("history") == "No runs yet.\n"
    assert run("history", "--json") == "[]\n"


def test_history_is_a_table_with_the_newest_run_on_top() -> None:
    """Each run is a line: when, which lock, how it ended, how long, who and why."""
    first_by = "web-1:7:b"
    add_run("first", duration=timedelta(milliseconds=1500), locked_by=first_by)
    add_run(
        "second",
        RunOutcome.FAILED,
        locked_by="web-1:7:a",
        duration=timedelta(minutes=2),
        exception_type="ValueError",
        exception_message="no such file",
    )
    header, second, first = run("history", "--wide").splitlines()
    assert header.split("  ")[0] == "STARTED"
    assert "second  failed     2m        web-1:7:a  ValueError: no such file" in second
    assert "first   succeeded  1.5s      web-1:7:b  -" in first


@pytest.mark.parametrize("command", [["history"], ["show", "job"]])
def test_tracebacks_are_printed_if_asked_for(command: list[str]) -> None:
    """Below the table, with the run that each is of; its lines move no cursor."""
    take("job")
    traceback = 'Traceback (most recent call last):\n  File "a.py"\nValueError: \x1b'
    failed = {"exception_type": "ValueError", "exception_traceback": traceback}
    add_run("job", RunOutcome.FAILED, **failed)
    assert "Traceback" not in run(*command)
    *_, title, first, _, last = run(*command, "--traceback").splitlines()
    assert re.fullmatch(r"job, \d{4}-\d\d-\d\d \S+:", title)
    assert first == "Traceback (most recent call last):"
    assert last == "ValueError: \\x1b"


def test_history_of_one_lock() -> None:
    """With a name, only that lock's runs are shown."""
    add_run("billing")
    add_run("nightly")
    assert names("billing") == ["billing"]


def test_history_of_an_unknown_lock() -> None:
    """A misspelt name is said to be unknown; one that has never run is not."""
    pause("job")
    with pytest.raises(CommandError, match="no lock 'jbo'. Did you mean 'job'?"):
        run("history", "jbo")
    assert run("history", "job") == "The history has no run of it.\n"


def test_history_of_a_lock_whose_run_is_open() -> None:
    """The run is not denied, though the history has no row of it."""
    lock = take("job")
    LockRecord.objects.update(lock_until=DatabaseNow())
    first, second = run("history", "job").splitlines()
    assert first == "The history has no run of it."
    assert second.startswith(f"Lock 'job': Its run as {lock.locked_by} began at 2")
    assert second.endswith(" and has not reported its end.")
    assert run("history", "job", "--since", "0s") == "There are no such runs.\n"


def test_history_of_several_locks_without_runs() -> None:
    """The history of several locks without runs ignores the runs of other locks."""
    take("other")
    LockRecord.objects.update(lock_until=DatabaseNow())
    for name in ("job:1", "job:2"):
        pause(name)
    assert run("history", "job:*") == "The history has no run of them.\n"


def test_history_of_a_pattern_without_a_lock() -> None:
    """A pattern that matches neither a lock nor an older run is an error, status 4."""
    add_run("gone:1")
    pause("job")
    status, printed, told = call("history", "none:*")
    assert (status, printed) == (4, "")
    assert told.startswith("No lock matches the pattern 'none:*'. ")
    assert call("history", "gone:?", "none:*")[0] == 4
    told = "There are no such runs.\n"
    assert run("history", "gone:*", "--outcome", "failed") == told
    assert run("history", "j*", "--outcome", "failed") == told


def test_history_of_another_provider() -> None:
    """Runs under another provider's lock of the same name are not shown."""
    add_run("job", provider="other")
    assert names() == []


ELSEWHERE = {
    "default": {
        "BACKEND": "django_shedlock.providers.database.DatabaseLockProvider",
        "OPTIONS": {"using": "other"},
    }
}


@override_settings(SHEDLOCK_PROVIDERS=ELSEWHERE)
@pytest.mark.django_db(databases=["default", "other"])
def test_commands_look_into_the_database_of_the_provider() -> None:
    """``history`` and ``prune`` use only the database of the provider."""
    add_run("here")
    take("import:9").release()
    LockRun.objects.using("other").all().delete()
    add_run("there", using="other")
    long_ago = DatabaseNow() - 2 * DAY
    LockRecord.objects.using("other").update(lock_until=long_ago, released_at=long_ago)
    assert names() == ["there"]
    shown = run("prune", "--unused-for", "1d", "--older-than", "1d")
    assert shown == "Deleted records of unused locks: 1.\nDeleted runs: 0.\n"


@pytest.mark.django_db(transaction=True)
def test_history_without_its_table() -> None:
    """The text names the command that makes the table."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock_run RENAME TO elsewhere")
    try:
        with pytest.raises(CommandError, match="`python manage.py migrate`") as caught:
            run("history")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock_run")
    assert caught.value.returncode == 125


def test_history_is_in_the_order_in_which_it_was_written() -> None:
    """The history keeps the order of writing even if the database clock is set back."""
    add_run("first", ended=DatabaseNow() + DAY)
    add_run("second")
    assert names() == ["second", "first"]


def test_history_by_outcome() -> None:
    """Nobody knows when a run began that another worker accounted for."""
    add_run("dead", RunOutcome.ABANDONED, started=None)
    add_run("good")
    assert names("--outcome", "abandoned") == ["dead"]
    _, line = run("history", "dead").splitlines()
    assert line.split() == ["-", "dead", "abandoned", "-", "-"]
    [told] = json.loads(run("history", "dead", "--json"))
    assert (told["started"], told["duration"]) == (None, None)


def test_running_run_stands_above_the_others_with_its_duration() -> None:
    """
    A running run stands above the ended runs, with its duration so far.

    The JSON output has that duration as well.
    """
    add_run("job")
    take("import:2")
    begin_earlier("import:2", 2 * MINUTE)
    take("import:1")
    begin_earlier("import:1", 90 * MINUTE)
    pause("paused")
    assert names() == ["import:2", "import:1", "job"]
    assert names("import:1") == ["import:1"]
    assert names("--limit", "1") == ["import:2"]
    assert names("--outcome", "running") == ["import:2", "import:1"]
    assert names("--since", "1m") == ["import:2", "import:1", "job"]
    assert names("--attention") == names("--outcome", "failed") == []
    assert re.search(r"import:2 +running +2m\w* so far", run("history"))
    assert re.search(r"import:1 +running +1h30m\w* so far", run("history"))
    [shown] = json.loads(run("history", "import:2", "--json"))
    assert (shown["outcome"], shown["ended"]) == ("running", None)
    assert 120 <= shown["duration"] < 120 + NEVER_SECONDS
    assert (shown["host"], shown["pid"]) == (socket.gethostname(), os.getpid())


def test_run_that_ends_meanwhile_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The history and the records are read one after the other."""
    lock = take("job")
    [running] = get_provider().statuses()
    lock.release()

    def statuses(provider: LockProvider, query: LockQuery) -> Iterator[LockStatus]:
        return iter([running])

    monkeypatch.setattr(DatabaseLockProvider, "statuses", statuses)
    assert len(names()) == 1


def test_history_is_shown_while_the_store_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The runs that are over may be in another place than the locks."""

    def fail(provider: LockProvider, query: LockQuery) -> NoReturn:
        raise LockProviderError("Could not read the locks")

    add_run("job")
    monkeypatch.setattr(DatabaseLockProvider, "statuses", fail)
    status, printed, complaint = call("history")
    assert (status, "job" in printed) == (0, True)
    assert "Runs that go on are not shown: Could not read the locks" in complaint


def begin_earlier(name: str, by: timedelta) -> None:
    """Let the lock's run have begun so long ago; its lease ends as before."""
    LockRecord.objects.filter(name=name).update(locked_at=DatabaseNow() - by)


def test_history_has_a_limit() -> None:
    """Twenty runs are shown, or as many as are asked for."""
    for number in range(25):
        add_run(f"job-{number}")
    assert len(names()) == 20
    assert names("--limit", "2") == ["job-24", "job-23"]


@pytest.mark.parametrize("limit", ["0", "-1", "many", "²"])
def test_history_refuses_what_is_no_limit(limit: str) -> None:
    """A limit that is none is a wrong call."""
    with pytest.raises(CommandError, match="--limit"):
        run("history", f"--limit={limit}")


def test_history_as_json() -> None:
    """Programs get instants in ISO-8601, durations in seconds, and nothing left out."""
    add_run(
        "job",
        RunOutcome.FAILED,
        duration=timedelta(minutes=2),
        exception_type="ValueError",
        exception_message="x" * 1000,
    )
    [failed] = json.loads(run("history", "--json"))
    assert (failed["outcome"], failed["duration"]) == ("failed", 120)
    assert failed["exception_message"] == "x" * 1000
    assert (failed["host"], failed["pid"]) == ("web-1", 7)
    assert failed["started"] <= failed["ended"]


def test_history_of_a_run_of_no_time_as_json() -> None:
    """A coarse clock measures zero, which is a duration as well."""
    add_run("job", duration=timedelta(0))
    [quick] = json.loads(run("history", "--json"))
    assert quick["duration"] == 0


def test_history_shows_hostile_messages_on_one_line() -> None:
    """A message is cut, and can neither break the table nor move the cursor."""
    add_run(
        "job",
        RunOutcome.FAILED,
        exception_type="ValueError",
        exception_message="first\nsecond \x1b[2J" + "x" * 1000,
    )
    _, line = run("history", "--wide").splitlines()
    assert r"first\nsecond \x1b[2J" in line
    assert line.endswith("x…")
    assert len(line) < 250


@override_settings(USE_TZ=False)
def test_history_without_time_zones() -> None:
    """Projects with naive datetimes see their runs as well."""
    add_run("job")
    assert names() == ["job"]


@override_settings(SHEDLOCK_PROVIDERS=IN_MEMORY)
def test_provider_without_history() -> None:
    """A provider that keeps no history is said to have none: exit status 2."""
    with pytest.raises(CommandError, match="'default' keeps no history") as caught:
        run("history")
    assert caught.value.returncode == 2


@pytest.mark.django_db(transaction=True)
def test_history_reads_only_what_it_shows() -> None:
    """
    ``history`` sends two statements, however many runs there are.

    One fetches the ended runs to show, and whether there are more of them. The other
    one fetches the running runs.
    """
    for number in range(25):
        add_run(f"job-{number}")
    with counted_statements() as statements:
        shown = run("history")
    assert len(statements) == 2
    assert len(shown.splitlines()) == 22
    assert shown.endswith("\nThere are more runs: see --limit.\n")
    assert "more" not in run("history", "--limit", "25")


@pytest.mark.django_db(transaction=True)
def test_history_of_a_name_reads_no_other() -> None:
    """The runs of names that begin with it are not read page by page."""
    add_run("import")
    for number in range(45):
        add_run(f"import:{number}")
    with counted_statements() as statements:
        assert names("import") == ["import"]
    assert len(statements) == 2


def test_history_of_several_locks_and_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and patterns may be mixed; the pages that they need are read."""
    monkeypatch.setattr(History, "run_batch_size", 2)
    for name in ("import:1", "nightly", "import:2", "Import:3", "import", "[x]"):
        add_run(name)
    assert names("import:*") == ["import:2", "import:1"]
    assert names("import:?", "nightly") == ["import:2", "nightly", "import:1"]
    assert names("*ight*", "[x]") == ["[x]", "nightly"]


def test_history_since() -> None:
    """Only runs that ended within a time, by the database's clock."""
    add_run("old", ended=DatabaseNow() - 2 * DAY)
    add_run("new", started=DatabaseNow() - 2 * DAY)
    assert names("--since", "1d") == ["new"]
    assert names("--since", "3d") == ["new", "old"]


def test_history_of_what_needs_attention() -> None:
    """Only runs with a bad end."""
    for outcome in RunOutcome:
        add_run(outcome.value, outcome)
    assert names("--attention") == [
        "abandoned",
        "lost",
        "timed out",
        "failed",
    ]


def test_history_of_a_lock_without_record_by_outcome() -> None:
    """A name that has only runs is known, whatever their outcomes."""
    add_run("gone")
    assert run("history", "gone", "--outcome", "failed") == "There are no such runs.\n"
