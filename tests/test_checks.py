"""The system checks, each by its id."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import CheckMessage, run_checks
from django.db import OperationalError, connection, connections
from django.test import override_settings

from django_shedlock import (
    LockNotAcquired,
    LockProviderError,
    Schedule,
    checks,
    clocks,
    conf,
    hold,
    scheduler_lock,
)
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.sql.compiling import Statement
from tests.support.jobs import app_in, only_jobs_of

# Django's own checks ask each MySQL or MariaDB for its version.
BOTH = ["default", "other"]
pytestmark = pytest.mark.django_db(databases=BOTH)

TWINS = "tests.apps.twins"
MEMORY = "django_shedlock.providers.memory.MemoryLockProvider"
DURATION_HINTS = {
    "shedlock.W007": 'Write, for example: lock_at_least_for="1m".',
    "shedlock.W008": 'Write, for example: lock_at_most_for="12m", keep_alive=True. '
    "Then the lease is extended while the job runs.",
}
FITTING: dict[str, Any] = {"schedule": "*/15 * * * *", "lock_at_most_for": "14m59s"}


@pytest.fixture(autouse=True)
def no_other_jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the jobs of other tests."""
    with only_jobs_of():
        yield


def found(messages: list[CheckMessage], number: str) -> list[CheckMessage]:
    return [message for message in messages if message.id == f"shedlock.{number}"]


def test_sound_project_has_nothing_to_say() -> None:
    """A project without mistakes gets no message from the checks."""

    @scheduler_lock("job")
    def job() -> None: ...

    assert [m for m in run_checks() if str(m.id).startswith("shedlock.")] == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"SHEDLOCK_ENABLED": "False"}, "SHEDLOCK_ENABLED = 'False': it must be bool"),
        ({"SHEDLOCK_NAMESPACE": None}, "SHEDLOCK_NAMESPACE = None: it must be str"),
        ({"SHEDLOCK_PROVIDERS": []}, "SHEDLOCK_PROVIDERS"),
        ({"SHEDLOCK_TABLE": "my_schema.shedlock"}, "without a schema"),
        ({"SHEDLOCK_TABLE": ""}, "it must be the name of a table"),
        ({"SHEDLOCK_DEFAULT_LOCK_AT_MOST_FOR": "1 hour"}, "'1 hour' is not a duration"),
        ({"SHEDLOCK_HISTORY_RETENTION": -5}, "-5: it must not be negative"),
        ({"SHEDLOCK_HISTORY_SCRUB": "shop.hide"}, "SHEDLOCK_HISTORY_SCRUB: No module"),
        ({"SHEDLOCK_HISTORY_SCRUB": "os.sep"}, "'os.sep': it is no function"),
    ],
)
def test_e001_setting_of_a_wrong_type(settings: Any, text: str) -> None:
    """E001 names the setting and its value, and stops no other check."""
    with override_settings(**settings):
        [message] = found(run_checks(), "E001")
        assert text in message.msg


@pytest.mark.parametrize(
    ("providers", "text"),
    [
        ({"default": {"BACKEND": "no.such.Provider"}}, "no.such"),
        ({}, 'SHEDLOCK_PROVIDERS has no "default"'),
    ],
)
def test_e002_provider_that_cannot_be_made(providers: Any, text: str) -> None:
    """E002 tells which entry of SHEDLOCK_PROVIDERS gives no provider, and why."""
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        [message] = found(run_checks(), "E002")
        assert text in message.msg


def test_e002_unknown_database() -> None:
    """E002 names the databases that the provider can use."""
    unknown = {"BACKEND": DATABASE, "OPTIONS": {"using": "replica"}}
    with override_settings(SHEDLOCK_PROVIDERS={"default": unknown}):
        [message] = found(run_checks(), "E002")
    assert "'replica', which is not in DATABASES" in message.msg
    assert message.hint == "DATABASES has 'default', 'other'."


def test_e003_job_with_an_unknown_provider() -> None:
    """E003 names the job and the alias."""

    @scheduler_lock("job", provider="redis")
    def job() -> None: ...

    [message] = found(run_checks(), "E003")
    assert "unknown_provider.<locals>.job can't run" in message.msg
    assert "'redis'" in message.msg
    assert message.hint == (
        "Look at the options of the lock, and at the settings of this package."
    )


@pytest.mark.parametrize(
    ("options", "settings", "text"),
    [
        ({"lock_at_least_for": "2h"}, {}, "(2h) is longer than lock_at_most_for (1h)"),
        ({}, {"SHEDLOCK_NAMESPACE": "x" * 250}, "at most 255 are allowed"),
        ({}, {"SHEDLOCK_DEFAULT_LOCK_AT_MOST_FOR": 0}, "must be positive"),
    ],
)
def test_e003_job_that_the_settings_make_impossible(
    options: Any, settings: Any, text: str
) -> None:
    """E003 tells what the settings and the job's options do to each other."""

    @scheduler_lock("job.name", **options)
    def job() -> None: ...

    with override_settings(**settings):
        [message] = found(run_checks(), "E003")
        assert text in message.msg


@pytest.mark.parametrize("zone", [None, ""])
def test_e003_schedule_without_a_time_zone(zone: str | None) -> None:
    """E003 finds a schedule that counts in no time zone, and one with its own can."""

    @scheduler_lock("job.name", **FITTING)
    def job() -> None: ...

    own = {**FITTING, "schedule": Schedule("*/15 * * * *", "UTC")}

    @scheduler_lock("other.name", **own)
    def other() -> None: ...

    with override_settings(TIME_ZONE=zone):
        [message] = checks.check_jobs()
    assert message.id == "shedlock.E003"
    assert "Lock 'job.name': its schedule has no time zone" in message.msg
    assert 'Schedule("*/15 * * * *", "UTC")' in message.msg


def test_e003_schedule_where_no_ticks_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E003 tells before its first tick that a job could not run each of them once."""

    @scheduler_lock("job.name", **FITTING)
    def job() -> None: ...

    with override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": MEMORY}}):
        assert checks.check_jobs() == []
        monkeypatch.setattr(MemoryLockProvider, "keeps_ticks", False)
        [message] = checks.check_jobs()
    assert message.id == "shedlock.E003"
    assert "'job.name': the provider 'default' keeps no ticks" in message.msg


@pytest.mark.parametrize(
    ("schedule", "between", "proposal"),
    [
        ("every 20s", "20s", '"16s"'),
        (["every 20s", "every 30s"], "10s", '"8s"'),
        (["every 1m", "30 6 * * *"], "1m", '"48s"'),
    ],
    ids=str,
)
def test_w008_of_an_interval(schedule: Any, between: str, proposal: str) -> None:
    """A lease that outlasts an interval, or the gap in a union, is reported."""

    @scheduler_lock("poll", schedule=schedule, lock_at_most_for="1m")
    def job() -> None: ...

    [message] = checks.check_jobs()
    assert message.id == "shedlock.W008"
    assert f"not shorter than the time between two ticks ({between})" in message.msg
    assert f"lock_at_most_for={proposal}" in str(message.hint)


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({}, ""),
        (
            {"lock_at_least_for": "15m", "lock_at_most_for": "15m"},
            "W007 W008",
        ),
        ({"lock_at_least_for": "14m"}, ""),
        ({"lock_at_least_for": "20m", "schedule": None, "lock_at_most_for": "1h"}, ""),
        ({"lock_at_most_for": "15m"}, "W008"),
        ({"lock_at_most_for": None}, "W008"),
        ({"lock_at_most_for": None, "keep_alive": True}, "W008"),
        ({"lock_at_most_for": None, "schedule": "0 */2 * * *"}, ""),
        ({"lock_at_most_for": None, "schedule": None}, ""),
    ],
)
def test_w007_and_w008_of_a_schedule(options: Any, numbers: str) -> None:
    """W007 and W008 report durations that may skip the next tick."""

    @scheduler_lock("job.name", **{**FITTING, **options})
    def job() -> None: ...

    messages = checks.check_jobs()
    assert [str(message.id)[-4:] for message in messages] == numbers.split()
    for message in messages:
        assert "test_w007_and_w008_of_a_schedule" in message.msg
        assert "'job.name'" in message.msg
        assert "not shorter than the time between two ticks (15m)" in message.msg
        assert message.hint == DURATION_HINTS[str(message.id)]


@pytest.mark.parametrize(
    ("schedule", "least", "line"),
    [
        ("*/5 * * * *", "0s", 'lock_at_most_for="4m"'),
        ("* * * * *", "30s", 'lock_at_most_for="48s"'),
        ("* * * * *", "55s", 'lock_at_most_for="55s"'),
        ("* * * * *", "1m", 'lock_at_most_for="48s"'),
        ("0 * * * *", "0s", 'lock_at_most_for="48m"'),
    ],
)
def test_hints_of_w007_and_w008_can_be_pasted(
    schedule: str, least: str, line: str
) -> None:
    """A job with the options that both hints name has nothing more to say."""

    def options(hint: str | None) -> dict[str, Any]:
        code = re.findall(r"Write, for example: (.*?)\.(?: |$)", str(hint))
        return dict(eval(f"dict({code[0]})"))

    @scheduler_lock("job", schedule=schedule, lock_at_least_for=least)
    def job() -> None: ...

    messages = checks.check_jobs()
    assert line in str(messages[-1].hint)
    pasted = {"lock_at_least_for": least}
    for message in messages:
        pasted |= options(message.hint)
    with only_jobs_of():

        @scheduler_lock("job", schedule=schedule, **pasted)
        def sound() -> None: ...

        assert checks.check_jobs() == []


def test_hints_of_w007_and_w008_can_be_pasted_into_a_setting() -> None:
    """A command of SHEDLOCK_COMMANDS gets what stands in a dict."""
    options = {"schedule": "*/10 * * * *"}
    long = {"lock_at_least_for": "10m", "lock_at_most_for": "10m"}
    with override_settings(SHEDLOCK_COMMANDS={"sqlflush": {**options, **long}}):
        starving, too_long = checks.check_jobs()
    assert starving.hint == 'Write, for example: "lock_at_least_for": "1m".'
    assert too_long.hint == (
        'Write, for example: "lock_at_most_for": "8m", "keep_alive": True. Then the '
        "lease is extended while the job runs."
    )
    pasted = {"lock_at_least_for": "1m", "lock_at_most_for": "8m", "keep_alive": True}
    with override_settings(SHEDLOCK_COMMANDS={"sqlflush": {**options, **pasted}}):
        assert checks.check_jobs() == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("SHEDLOCK_COMMAND", "Did you mean SHEDLOCK_COMMANDS?"),
        (
            "SHEDLOCK_LOCK_AT_MOST_FOR",
            "Did you mean SHEDLOCK_DEFAULT_LOCK_AT_MOST_FOR?",
        ),
        ("SHEDLOCK_XYZ", "Remove it."),
    ],
)
def test_w023_misspelt_setting(name: str, hint: str) -> None:
    """W023 names a setting that does not exist, and the one that is probably meant."""
    with override_settings(**{name: {}}):
        [message] = checks.check_settings()
    assert message.id == "shedlock.W023"
    assert message.msg == f"{name} has no effect: there is no such setting."
    assert message.hint == hint


def test_settings_that_exist_are_no_w023() -> None:
    """All settings of the package may stand in the project's settings."""
    values = {setting.name: setting.default for setting in conf.SETTINGS}
    with override_settings(**values):
        assert found(checks.check_settings(), "W023") == []


def test_w008_says_what_happens() -> None:
    """W008 says for how long, and at how many ticks, nobody runs the job."""

    @scheduler_lock("job.name", lock_at_most_for="1h", schedule="*/15 * * * *")
    def job() -> None: ...

    [message] = checks.check_jobs()
    held = "If a worker dies, its lock stays held for up to 1h"
    assert held in message.msg
    assert "is skipped at each tick until then (4 at the most)." in message.msg


def test_w008_and_a_provider_that_cannot_be_made() -> None:
    """What E002 tells of keeps no other check from being made."""

    @scheduler_lock("job.name", schedule="*/15 * * * *")
    def job() -> None: ...

    with override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": "no.such"}}):
        assert checks.check_jobs() == []


@override_settings(INSTALLED_APPS=["django_shedlock", TWINS])
def test_w001_two_jobs_with_one_name() -> None:
    """W001 finds two jobs of one name, also in commands that nobody imported yet."""
    forget(TWINS)
    [message] = found(checks.check_jobs(), "W001")
    assert "'twins.digest'" in message.msg
    assert f"{TWINS}.jobs.send_digest" in message.msg
    assert f"{TWINS}.management.commands.digest.Command" in message.msg
    assert message.hint == (
        "Give each job a name of its own, or silence this if you mean it."
    )


def test_w001_and_doubled_braces() -> None:
    """W001 knows a name by what it means."""

    @scheduler_lock("a{{b}}")
    def one() -> None: ...

    @scheduler_lock("a{{b}}")
    def two() -> None: ...

    [message] = found(checks.check_jobs(), "W001")
    assert "'a{b}'" in message.msg


INVALID = """
from django.core.management import BaseCommand
from django_shedlock import scheduler_lock

@scheduler_lock("digest", {options})
class Command(BaseCommand):
    def handle(self, **options): ...
"""


@pytest.mark.parametrize("module", ["jobs", "management.commands.digest"])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("lock_at_most_for='10 minuts'", "lock_at_most_for: '10 minuts' is not a dur"),
        ("lock_at_least_for='2m', lock_at_most_for='1m'", "(2m) is longer than"),
        ("schedule='@often'", "schedule: '@often' has no interval"),
        ("schedule='every 1500ms'", 'write "every 1s" or "every 2s"'),
        (
            "schedule=[f'every {number}d' for number in range(99, 149)]",
            "Lock 'digest': schedule: 'every 99d | every 100d | every 101d | every",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_e004_module_with_an_invalid_lock(
    tmp_path: Path, module: str, options: str, text: str
) -> None:
    """E004 tells of a lock that keeps its own module from being imported, and where."""
    with app_in(tmp_path) as app:
        file = app.joinpath(*module.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(INVALID.format(options=options))
        [message] = checks.check_jobs()
    assert message.id == "shedlock.E004"
    begin = f"loose_app.{module} can't be imported, so its jobs are not known: Invalid"
    assert message.msg.startswith(begin)
    assert text in message.msg
    assert f'(file "{file}", line 5: @scheduler_lock("digest", ' in message.msg
    assert message.hint == (
        "Correct that lock's name or options. Its job can't run before."
    )


def test_e004_of_a_lock_that_a_helper_makes(tmp_path: Path) -> None:
    """The line of the job counts, and not the one of the helper below it."""
    with app_in(tmp_path) as app:
        (app / "locks.py").write_text(
            "from django_shedlock import scheduler_lock\n"
            "def locked(lease):\n"
            "    return scheduler_lock('job', lock_at_most_for=lease)(print)\n"
        )
        (app / "jobs.py").write_text(
            "from loose_app.locks import locked, scheduler_lock\nlocked('10 minuts')\n"
        )
        [message] = checks.check_jobs()
    assert f'{app / "jobs.py"}", line 2: locked(' in message.msg


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("def (:", "SyntaxError: "),
    ],
)
def test_w002_module_that_cannot_be_imported(
    tmp_path: Path, code: str, text: str
) -> None:
    """W002 tells of any other module whose jobs are not known, and stops nothing."""
    with app_in(tmp_path) as app:
        file = app / "jobs.py"
        file.write_text(f"from django_shedlock import scheduler_lock\n{code}")
        [message] = checks.check_jobs()
    assert message.id == "shedlock.W002"
    assert f"known: {text}" in message.msg
    assert f'(file "{file}"' in message.msg
    assert message.hint == (
        "Make it importable. If it is a script, put what it runs below "
        '`if __name__ == "__main__"`.'
    )
    assert not message.is_serious()


def forget(package: str) -> None:
    for name in [name for name in sys.modules if name.startswith(package)]:
        del sys.modules[name]


DATABASE = "django_shedlock.providers.database.DatabaseLockProvider"
SERVER = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": "shop",
    "HOST": "db",
    "PORT": 5432,
    "OPTIONS": {},
}
FILE = {**SERVER, "ENGINE": "django.db.backends.sqlite3", "HOST": "", "PORT": ""}


def sharing(
    monkeypatch: pytest.MonkeyPatch, one: dict[str, Any], two: dict[str, Any]
) -> list[CheckMessage]:
    """Return what is told of two providers with these entries of DATABASES."""
    monkeypatch.setitem(connections.settings, "default", one)
    monkeypatch.setitem(connections.settings, "other", two)
    other = {"BACKEND": DATABASE, "OPTIONS": {"using": "other"}}
    providers = {"default": {"BACKEND": DATABASE}, "second": other}
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        return checks.check_providers()


def test_e005_two_providers_with_one_database() -> None:
    """E005 tells of two aliases whose equal names would be one lock."""
    entry = {"BACKEND": DATABASE}
    other = {"BACKEND": DATABASE, "OPTIONS": {"using": "other"}}
    providers = {"default": entry, "twin": entry, "own": other}
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        [message] = found(run_checks(), "E005")
        with pytest.raises(LockNotAcquired), hold("job"), hold("job", provider="twin"):
            pytest.fail("this is why")
    assert "'default' and 'twin' of SHEDLOCK_PROVIDERS" in message.msg
    assert message.hint == (
        "Remove all of them but one, and give its alias as `provider`."
    )
    assert message.is_serious()


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize(
    ("one", "two"),
    [
        (SERVER, {**SERVER, "PORT": "5432"}),
        (SERVER, {**SERVER, "OPTIONS": {"connect_timeout": 5}}),
        (
            {**FILE, "NAME": "db.sqlite3"},
            {**FILE, "NAME": Path("db.sqlite3").resolve()},
        ),
    ],
)
def test_e005_two_entries_of_one_database(
    monkeypatch: pytest.MonkeyPatch, one: dict[str, Any], two: dict[str, Any]
) -> None:
    """E005 knows a database by where it is, and not by its alias."""
    [message] = sharing(monkeypatch, one, two)
    assert "'default' and 'second'" in message.msg


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize(
    ("one", "two"),
    [
        (SERVER, {**SERVER, "NAME": "shop2"}),
        (SERVER, {**SERVER, "HOST": "db2"}),
        (SERVER, {**SERVER, "PORT": 5433}),
        (SERVER, {**SERVER, "USER": "tenant"}),
        (SERVER, {**SERVER, "OPTIONS": {"options": "-c search_path=tenant"}}),
        ({**FILE, "NAME": ":memory:"}, {**FILE, "NAME": ":memory:"}),
    ],
)
def test_e005_not_of_other_places(
    monkeypatch: pytest.MonkeyPatch, one: dict[str, Any], two: dict[str, Any]
) -> None:
    """E005 says nothing of two servers, two schemas or two memories."""
    assert sharing(monkeypatch, one, two) == []


def test_e005_not_of_databases_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """E005 says nothing of a mirror, or of names that only a run of tests gives."""
    assert sharing(monkeypatch, SERVER, {**SERVER}) == []


def test_e005_not_of_other_providers() -> None:
    """E005 ignores other providers and unknown databases, which E002 reports."""
    memory = {"BACKEND": MEMORY}
    unknown = {"BACKEND": DATABASE, "OPTIONS": {"using": "replica"}}
    providers = {"default": memory, "b": memory, "c": unknown, "d": unknown}
    with override_settings(SHEDLOCK_PROVIDERS=providers):
        messages = checks.check_providers()
    assert {message.id for message in messages} == {"shedlock.E002"}


@pytest.mark.django_db(transaction=True, databases=BOTH)
@pytest.mark.parametrize(
    ("table", "consequence"),
    [
        ("shedlock", "no job with a lock will run"),
        ("shedlock_run", "no run will be recorded"),
        ("shedlock_action", "no action of an operator will be recorded"),
        ("shedlock_notice", "no notification will be sent"),
    ],
)
def test_w003_missing_table(table: str, consequence: str) -> None:
    """W003 tells what a missing table leads to, and what to do, if it may look."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO elsewhere")
    try:
        assert found(run_checks(), "W003") == []
        [message] = found(run_checks(databases=["default"]), "W003")
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE elsewhere RENAME TO {table}")
    assert consequence in message.msg
    assert message.hint == "Run `python manage.py migrate --database default`."


@pytest.mark.django_db(transaction=True, databases=BOTH)
@pytest.mark.parametrize(
    ("table", "column", "consequence"),
    [
        ("shedlock", "asked_why", "no job with a lock will run"),
        ("shedlock_run", "reason", "no run will be recorded"),
    ],
)
def test_w003_missing_column(table: str, column: str, consequence: str) -> None:
    """W003 names the columns that a table lacks, before a job meets them."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO elsewhere")
    try:
        [message] = found(run_checks(databases=["default"]), "W003")
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table} RENAME COLUMN elsewhere TO {column}")
    assert f"'{table}' in database 'default' lacks the columns {column}" in message.msg
    assert consequence in message.msg
    assert "migrate --database default" in str(message.hint)


JAVA_TABLE = (
    "CREATE TABLE {}(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, "
    "locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))"
)


@pytest.mark.once
def test_migrate_names_the_page_on_java(tmp_path: Path) -> None:
    """W003 says before `migrate` fails that ShedLock's own table is in the way."""
    with closing(sqlite3.connect(tmp_path / "default.sqlite3")) as database:
        database.execute(JAVA_TABLE.format("shedlock"))
    migrated = manage(tmp_path, "migrate", "--verbosity=0")
    assert migrated.returncode != 0
    said = migrated.stderr
    assert "lacks the columns lock_at_least_until, released_at" in said
    assert "ShedLock for Java made this table" in said
    assert "stores/java.html" in said
    assert "Run `python manage.py migrate" not in said


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True, databases=BOTH)
def test_w003_table_that_differs_in_case() -> None:
    """W003 finds the table of a Java service whose name is in lower case there."""
    with connection.cursor() as cursor:
        cursor.execute('CREATE TABLE "SHEDLOCK" (name text)')
    try:
        [message] = found(run_checks(databases=["default"]), "W003")
    finally:
        with connection.cursor() as cursor:
            cursor.execute('DROP TABLE "SHEDLOCK"')
    assert "has a table 'SHEDLOCK'" in message.msg


@pytest.fixture
def other_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Let locks be in "other", as if another backend had made its connection."""

    def pretend(vendor: str, name: str) -> None:
        monkeypatch.setattr(connections["other"], "vendor", vendor)
        monkeypatch.setattr(connections["other"], "display_name", name)
        # It may know statements that were compiled for its real backend.
        known = vars(connections["other"])
        monkeypatch.delitem(known, Statement.key_attribute, raising=False)
        other = {"BACKEND": DATABASE, "OPTIONS": {"using": "other"}}
        monkeypatch.setattr(
            settings, "SHEDLOCK_PROVIDERS", {"default": other}, raising=False
        )

    return pretend


@pytest.mark.parametrize(
    ("vendor", "name"), [("oracle", "Oracle"), ("cockroachdb", "CockroachDB")]
)
def test_w021_database_that_nobody_tried(
    vendor: str, name: str, other_is: Callable[[str, str], None]
) -> None:
    """W021 says that locks in such a database may not exclude anybody."""
    other_is(vendor, name)
    [message] = checks.check_providers()
    assert message.id == "shedlock.W021"
    assert f"SHEDLOCK_PROVIDERS['default'] keeps its locks in {name}." in message.msg


@pytest.mark.parametrize(
    ("vendor", "name"), [("microsoft", "SQL Server"), ("snowflake", "Snowflake")]
)
def test_e002_database_without_a_right_clock(
    vendor: str, name: str, other_is: Callable[[str, str], None]
) -> None:
    """E002 refuses a database whose clock is local, in whole seconds, or unknown."""
    other_is(vendor, name)
    [message] = checks.check_providers()
    assert message.id == "shedlock.E002"
    assert f"keeps its locks in {name}, whose clock they can't rely on" in message.msg
    with pytest.raises(LockProviderError, match=f"{name} has no clock"), hold("job"):
        pytest.fail("a process that checks nothing has no lock there either")


@pytest.mark.django_db(databases=BOTH)
def test_w004_clocks_far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """W004 tells by how much the database's clock differs from this host's."""
    assert found(run_checks(databases=["default"]), "W004") == []
    an_hour = timedelta(hours=1).total_seconds()
    real = clocks.time.time
    monkeypatch.setattr(clocks.time, "time", lambda: real() - an_hour)
    [message] = found(run_checks(databases=["default"]), "W004")
    assert " 1h" in message.msg or " 59m" in message.msg
    assert message.hint == (
        "Locks go by the database's clock and are right, but your scheduler goes by "
        "this host's. Synchronize both, for example with NTP."
    )


@pytest.mark.django_db(databases=BOTH)
def test_w005_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """W005 tells that the store can't be read, instead of a traceback."""

    def refuse() -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(connection.introspection, "table_names", refuse)
    [message] = found(run_checks(databases=["default"]), "W005")
    assert "connection refused" in message.msg
    assert message.hint == "No job with a lock runs while its store is unreachable."


def manage(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "django", *args],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.support.lean_settings",
            "SHEDLOCK_TEST_STORE": "sqlite",
            "SHEDLOCK_TEST_SQLITE_FOLDER": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.once
def test_first_migrate_prints_no_warning(tmp_path: Path) -> None:
    """Nobody has to hear of a table that is about to be made; others still do."""
    checked = manage(tmp_path, "check", "--database=default")
    assert "shedlock.W003" in checked.stderr
    migrated = manage(tmp_path, "migrate", "--verbosity=0")
    assert (migrated.returncode, migrated.stderr) == (0, "")


@pytest.mark.django_db(transaction=True, databases=BOTH)
def test_migrate_warns_of_a_table_that_it_will_not_make(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """W003 is right where a router, or somebody, has kept the table away."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock RENAME TO elsewhere")
    monkeypatch.setattr(sys, "argv", ["manage.py", "migrate"])
    try:
        messages = found(run_checks(databases=["default"]), "W003")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock")
    assert len(messages) == 1


MAILED = """
from tests.support.lean_settings import *

INSTALLED_APPS = ["django_shedlock", "shop"]
# Django's own checks connect to a server, and this is about none.
IN_MEMORY = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
DATABASES = dict.fromkeys(DATABASES, IN_MEMORY)
SHEDLOCK_PROVIDERS = {
    "default": {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}
}
"""
NIGHTLY = """
from django.core.management import BaseCommand
from django_shedlock import scheduler_lock

@scheduler_lock("nightly", schedule="* * * * *", lock_at_most_for="1h")
class Command(BaseCommand):
    def handle(self, **options):
        pass
"""


@pytest.mark.once
@pytest.mark.parametrize(
    ("line", "settings", "is_mailed"),
    [
        (["nightly"], "", True),
        (["nightly", "--skip-checks"], "", False),
        (["nightly"], "SILENCED_SYSTEM_CHECKS = ['shedlock.W008']", False),
        (["shedlock", "trigger", "nightly"], "", False),
    ],
    ids=["as it is", "skip checks", "silenced", "trigger"],
)
def test_what_cron_mails(
    tmp_path: Path, line: list[str], settings: str, is_mailed: bool
) -> None:
    """Without a terminal a command prints warnings, too, unless it skips checks."""
    (tmp_path / "project.py").write_text(MAILED + settings)
    commands = tmp_path / "shop" / "management" / "commands"
    commands.mkdir(parents=True)
    (commands / "nightly.py").write_text(NIGHTLY)
    (tmp_path / "shop" / "__init__.py").touch()
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "django", *line],
        env={"DJANGO_SETTINGS_MODULE": "project", "PYTHONPATH": path},  # as cron has
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert ("(shedlock.W008)" in done.stdout) == is_mailed
    assert ("System check identified" in done.stdout) == is_mailed
    assert is_mailed or line[0] == "shedlock" or not done.stdout


@pytest.mark.parametrize(
    "entry", ["django_shedlock", "django_shedlock.apps.ShedLockConfig"]
)
def test_e010_a_table_for_each_tenant(settings: Any, entry: str) -> None:
    """E010 refuses the app in TENANT_APPS, and names the way to go."""
    settings.SHARED_APPS = ["django_tenants", "django_shedlock"]
    assert found(run_checks(), "E010") == []
    settings.TENANT_APPS = ["shop", "django_shedlock.contrib.pings"]
    assert found(run_checks(), "E010") == []
    settings.TENANT_APPS = ["shop", entry]
    [message] = found(run_checks(), "E010")
    assert message.id == "shedlock.E010"
    assert message.is_serious()
    assert message.hint == (
        'Move "django_shedlock" to SHARED_APPS, and put the tenant into the names of '
        'its locks, as in "invoices:{tenant}".'
    )
