"""``manage.py shedlock history``: the last runs in a terminal and for programs."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test import override_settings

from django_shedlock.cli.history import History
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import run
from tests.support.locks import add_run, take
from tests.support.private_connections import counted_statements

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
    take("job")
    with pytest.raises(CommandError, match="no lock 'jbo'. Did you mean 'job'?"):
        run("history", "jbo")
    assert run("history", "job") == "There are no such runs.\n"


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
    """Its runs are shown and its locks are pruned, and not those of another one."""
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
    """Also if the database's clock was set back between two runs."""
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


def test_running_job_is_not_in_the_history() -> None:
    """Its record shows it, and the history when it is over."""
    lock = take("job")
    assert names() == []
    assert "running" in run("list", "job")
    lock.release()
    with pytest.raises(CommandError, match="--outcome"):
        run("history", "--outcome", "running")


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
    """One statement fetches the runs that are shown, and tells if there are more."""
    for number in range(25):
        add_run(f"job-{number}")
    with counted_statements() as statements:
        shown = run("history")
    assert len(statements) == 1
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
    assert len(statements) == 1


def test_history_of_several_locks_and_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and patterns may be mixed; the pages that they need are read."""
    monkeypatch.setattr(History, "run_batch_size", 2)
    for name in ("import:1", "nightly", "import:2", "Import:3", "import", "[x]"):
        add_run(name)
    assert names("import:*") == ["import:2", "import:1"]
    assert names("import:?", "nightly") == ["import:2", "nightly", "import:1"]
    assert names("*ight*", "[x]") == ["[x]", "nightly"]
    assert run("history", "none:*") == "There are no such runs.\n"


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
