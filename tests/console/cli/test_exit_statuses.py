"""The exit statuses of ``manage.py shedlock``: one for each kind of error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from django_shedlock.cli.base import ExitStatus
from django_shedlock.cli.command import subcommands
from django_shedlock.models import LockRecord
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import run
from tests.support.documents import all_documents
from tests.support.jobs import Jobs, scheduled_jobs
from tests.support.locks import take

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)
PAGE = "docs/reference/commands.rst"
TABLES = ("shedlock", "shedlock_action", "shedlock_notice", "shedlock_run")
OF_NO_DATABASE = {
    "default": {
        "BACKEND": "django_shedlock.providers.database.DatabaseLockProvider",
        "OPTIONS": {"using": "gone"},
    }
}
CALLS = {
    "list": (),
    "show": ("job",),
    "history": (),
    "release": ("job",),
    "extend": ("job", "1m"),
    "pause": ("job", "--reason", "the disk is full"),
    "resume": ("job",),
    "acknowledge": ("job", "--reason", "the disk is full"),
    "withdraw": ("job",),
    "prune": (),
    "check": (),
    "run": ("job", "--", "true"),
    "trigger": ("report",),
    "catch-up": (),
}
"""A call of each subcommand that ends by itself."""
ENDLESS = "beat"
"""It goes on without its store, and without its tables."""


def status_of(*args: str) -> tuple[int, str]:
    """Return the exit status that a shell would see, and the error's text."""
    try:
        call_command("shedlock", *args)
    except CommandError as error:
        # argparse's own refusals have no status; the command line gives them 2.
        is_refusal = str(error).startswith("Error: ")
        return 2 if is_refusal else error.returncode, str(error)
    except SystemExit as end:
        return int(end.code or 0), ""
    return 0, ""


@pytest.fixture(autouse=True)
def jobs() -> Iterator[Jobs]:
    with scheduled_jobs() as made:
        yield made


@pytest.fixture
def no_tables() -> Iterator[None]:
    """Be in a project that nobody has migrated yet."""
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"ALTER TABLE {table} RENAME TO {table}_elsewhere")
        try:
            yield
        finally:
            for table in TABLES:
                cursor.execute(f"ALTER TABLE {table}_elsewhere RENAME TO {table}")


def documented() -> dict[int, str]:
    """Return each status of the reference's table, with its meaning."""
    [page] = [page for page in all_documents() if page.name == PAGE]
    rows = re.findall(r"^   \* - (\d+)\n     - (.+(?:\n       .+)*)", page.source, re.M)
    return {int(number): text for number, text in rows}


def test_reference_has_each_status() -> None:
    """The table of the reference page has the code's statuses, and no others."""
    assert sorted(documented()) == sorted({status.value for status in ExitStatus})


def test_every_subcommand_is_called_here() -> None:
    """A new subcommand needs its line in ``CALLS``, and on the reference page."""
    [page] = [page for page in all_documents() if page.name == PAGE]
    assert subcommands().keys() == {*CALLS, ENDLESS}
    for subcommand in subcommands().values():
        assert f"``{subcommand.name}``" in page.source


@pytest.mark.parametrize("words", [("pause", "job"), ("pause", "--all")])
@pytest.mark.parametrize("blank", ["", " \t"])
def test_blank_reason_is_none(words: tuple[str, ...], blank: str) -> None:
    """Where a reason is required, a blank one is refused like a missing one: 2."""
    take("job").release()
    status, text = status_of(*words, "--reason", blank)
    assert (status, text) == (2, "Error: argument --reason: say why: the text is blank")
    assert status_of(*words)[0] == 2
    assert status_of("acknowledge", "job", "--reason", blank)[0] == 2
    assert status_of("release", "job", "--force", "--reason", blank)[0] == 2


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments(name: str) -> None:
    """An option that there is not is refused by each subcommand: 2."""
    status, text = status_of(name, "--no-such-option", *CALLS[name])
    assert (status, "no-such-option" in text) == (ExitStatus.WRONG_CALL, True)


@pytest.mark.parametrize(
    "args",
    [
        ("extend", "job", "soon"),
        ("run", "job", "--lock-at-most-for", "soon", "--", "true"),
        ("run", "job", "--time-zone", "UTC", "--", "true"),
        ("run", "job", "--schedule", "* * * * *", "--jitter", "1m", "--", "true"),
        ("prune", "--all-providers", "--provider", "default"),
        *((name, "--provider", "gone", *args) for name, args in CALLS.items()),
    ],
)
def test_arguments_that_cannot_work(args: tuple[str, ...]) -> None:
    """Values that only the command itself can refuse have the same status: 2."""
    take("job")
    assert status_of(*args)[0] == ExitStatus.WRONG_CALL


@pytest.mark.parametrize("name", CALLS)
@override_settings(SHEDLOCK_PROVIDERS=OF_NO_DATABASE)
def test_wrong_settings(name: str) -> None:
    """Settings that can't work are as a wrong call: 2."""
    assert status_of(name, *CALLS[name])[0] == ExitStatus.WRONG_CALL


@pytest.mark.parametrize("args", [("release", "job"), ("trigger", "report")])
def test_job_that_runs(args: tuple[str, ...]) -> None:
    """What would disturb a running job is refused: 3."""
    take(args[1])
    assert status_of(*args)[0] == ExitStatus.RUNNING


@pytest.mark.parametrize(
    "args",
    [
        ("list", "typo"),
        ("show", "typo"),
        ("history", "typo"),
        ("release", "typo"),
        ("extend", "typo", "1m"),
        ("resume", "typo"),
        ("trigger", "typo"),
    ],
)
def test_unknown_name(args: tuple[str, ...]) -> None:
    """A lock or a job that nobody knows: 4. The nearest is suggested."""
    take("typos")
    status, text = status_of(*args)
    assert status == ExitStatus.UNKNOWN
    assert args[0] == "trigger" or "Did you mean 'typos'?" in text


@pytest.mark.parametrize(
    "args", [("release", "job"), ("extend", "job", "1m"), ("resume", "job")]
)
def test_lock_that_is_not_held(args: tuple[str, ...]) -> None:
    """There is nothing to release, to extend or to resume: 5."""
    take("job").release()
    assert status_of(*args)[0] == ExitStatus.NOT_HELD


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("name", CALLS)
def test_missing_tables(name: str) -> None:
    """Before ``migrate``, one sentence names it, and the store has failed: 125."""
    status, text = status_of(name, *CALLS[name])
    if name == "check":  # a finding
        assert status == 2
        return
    assert status == ExitStatus.STORE_FAILED
    assert "Run `python manage.py migrate`." in text
    assert "\n" not in text


@pytest.mark.usefixtures("no_tables")
def test_check_before_migrate(capsys: pytest.CaptureFixture[str]) -> None:
    """The only finding is the missing table, with the command that makes it."""
    status_of("check")
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("CRITICAL ")
    assert line.endswith("its table is missing. Run `python manage.py migrate`.")


def test_job_that_failed() -> None:
    """An overdue job that fails: 1."""
    take("failing").release()
    run("catch-up")  # registers what it finds
    long_ago = DatabaseNow() - 3 * DAY
    LockRecord.objects.filter(name="failing").update(tick=None, due_at=long_ago)
    assert status_of("catch-up")[0] == ExitStatus.FAILED
