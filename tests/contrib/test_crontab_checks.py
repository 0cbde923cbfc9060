"""The system checks of ``CRONJOBS``, each by its id."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.conf import settings
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings
from django_crontab.crontab import Crontab

from django_shedlock import scheduler_lock
from django_shedlock.contrib.crontab import checks, entries
from django_shedlock.contrib.crontab.checks import check_crontab
from tests.support import crontabs
from tests.support.crontabs import Digest, Report, command
from tests.support.jobs import only_jobs_of
from tests.support.paths import ROOT
from tests.support.zones import zone_file

# Django's own checks ask each MySQL or MariaDB for its version.
pytestmark = pytest.mark.django_db(databases=["default", "other"])

JOBS = "tests.support.crontabs"
CALL = "django.core.management.call_command"
WEEKDAYS, SATURDAYS, NOON = "0 9 * * 1-5", "0 12 * * 6", "0 12 * * 1-5"
ZERO_EDIT = ["django_shedlock", "django_shedlock.contrib.crontab", "django_crontab"]
TOO_LATE = ["django_shedlock", "django_crontab", "django_shedlock.contrib.crontab"]


@pytest.fixture(autouse=True)
def project() -> Iterator[None]:
    """Install django-crontab, on a host whose time zone does not matter."""
    apps = [*settings.INSTALLED_APPS, "django_crontab"]
    with override_settings(INSTALLED_APPS=apps, SHEDLOCK_CRONTAB_TIME_ZONE="UTC"):
        yield


@pytest.fixture(autouse=True)
def hourly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be a job with a schedule of its own, which no other test catches up."""
    decorate = scheduler_lock("hourly", lock_at_most_for="4m", schedule="@hourly")
    job = decorate(lambda: None)
    monkeypatch.setattr(crontabs, "hourly", job, raising=False)


@contextmanager
def cronjobs(*entries: Any, **others: Any) -> Iterator[None]:
    with (
        override_settings(CRONJOBS=list(entries), **others),
        command("report", Report()),  # Django forgets them with each change of apps
        command("digest", Digest()),
    ):
        yield


def messages(*entries: Any, **others: Any) -> list[CheckMessage]:
    with cronjobs(*entries, **others):
        return check_crontab()


def ids(*entries: Any, **others: Any) -> list[str]:
    return [str(m.id)[-4:] for m in messages(*entries, **others)]


def sound_entries() -> list[Any]:
    return [
        ("*/5 * * * *", f"{JOBS}.sound", ">> /var/log/sound-$(date +\\%F).log 2>&1"),
        ("*/5 * * * *", f"{JOBS}.kept_alive"),
        ["*/5 * * * *", f"{JOBS}.remind", ["gold"]],
        ("*/5 * * * *", f"{JOBS}.remind", (), {"group": "silver"}, ""),
    ]


def test_sound_entries_have_nothing_to_say() -> None:
    """Without a mistake there is no message, with the app or without."""
    assert messages(*sound_entries()) == []
    assert messages(*sound_entries(), INSTALLED_APPS=ZERO_EDIT) == []


def test_nothing_is_said_without_django_crontab() -> None:
    """A project that does not use django-crontab hears nothing of it."""
    assert ids("wrong", INSTALLED_APPS=["django_shedlock"]) == []


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (("* * * * *",), "it has to be (time, path)"),
        ("* * * * *", "it has to be (time, path)"),
        (("* * * * *", f"{JOBS}.sound", {}, []), "it has to be (time, path)"),
        (("* * * *", f"{JOBS}.sound"), "'* * * *' is no cron expression"),
        (("@every", f"{JOBS}.sound"), "'@every' is no interval"),
        (("every 20s", f"{JOBS}.sound"), "cron knows no intervals: give the job its"),
        (
            ("0 5 * * * | 0 6 * * *", f"{JOBS}.sound"),
            "has a |: write an entry for each",
        ),
        (("0 5 * * *|", f"{JOBS}.sound"), "has a |: write an entry for each"),
    ],
)
def test_e006_malformed_entry(entry: Any, text: str) -> None:
    """W025 has the entry and says what it should be; the others are checked."""
    [message, other] = messages(entry, ("* * * * *", f"{JOBS}.plain"))
    assert (message.id, other.id) == ("shedlock.W025", "shedlock.W006")
    assert text in message.msg
    assert message.hint == (
        "Write (time, path), (time, path, suffix) or (time, path, [args], {kwargs}, "
        "suffix). The path leads to a function, and its arguments are strings and "
        "numbers."
    )


def test_e006_cronjobs_is_no_list() -> None:
    """W025 also finds a CRONJOBS that has no entries at all."""
    with override_settings(CRONJOBS={"a": "b"}):
        [message] = check_crontab()
    assert message.id == "shedlock.W025"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (("@daily", "no.such.job"), "No module named 'no'"),
        (("@daily", f"{JOBS}.missing"), '"missing"'),
        (("@daily", "job"), "doesn't look like a module path"),
        (("@daily", f"{JOBS}.calls"), "is no function"),
        (("@daily", "tests.apps.broken.jobs.job"), "Error"),
        (("@daily", CALL, ["nothing"]), "no command 'nothing'"),
        (("@daily", CALL, [], {"command_name": "nothing"}), "no command 'nothing'"),
        (("@daily", CALL, [], {"command_name": None}), "no command None"),
    ],
)
def test_e006_target_that_cannot_be_run(entry: Any, text: str) -> None:
    """W025 tells why the path of an entry leads nowhere."""
    [message] = messages(entry)
    assert message.id == "shedlock.W025"
    assert text in message.msg


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (("@daily", f"{JOBS}.plain", [timedelta(1)]), "not JSON serializable"),
        (("@daily", f"{JOBS}.plain", [], {"since": {1}}), "not JSON serializable"),
        (("@daily", f"{JOBS}.remind", "gold"), "missing a required argument: 'group'"),
        (("@daily", f"{JOBS}.remind", ["a", "b"]), "too many positional arguments"),
        (("@daily", CALL), "missing a required"),
        (("@daily", CALL, ["report"], {"command_name": "report"}), "multiple values"),
    ],
)
def test_e006_arguments_that_do_not_work(entry: Any, text: str) -> None:
    """W025 finds what is no JSON, and what the target does not take."""
    [message] = messages(entry)
    assert message.id == "shedlock.W025"
    assert text in message.msg
    assert str(entry[1]) in message.msg


@pytest.mark.parametrize("name", ["coroutine", "decorated_coroutine"])
def test_e006_coroutine_function(name: str) -> None:
    """W025 finds what django-crontab would not await, unless the app runs it."""
    entry = ("@daily", f"{JOBS}.{name}")
    [message] = messages(entry)
    assert message.id == "shedlock.W025"
    assert f"The entry {entry!r} of CRONJOBS can't run: django-crontab" in message.msg
    assert "W025" not in ids(entry, INSTALLED_APPS=ZERO_EDIT)


@pytest.mark.parametrize("suffix", [">> log-$(date +%F)", "# nightly"])
def test_e007_suffix_that_breaks_the_line(suffix: str) -> None:
    """W026 finds what cron or django-crontab takes for something else."""
    [message] = messages(("*/5 * * * *", f"{JOBS}.sound", suffix))
    assert message.id == "shedlock.W026"
    assert message.hint == (
        "cron ends the line at %, so write \\%. If the line has a #, django-crontab "
        "can't find it again to remove it."
    )
    assert ids(("*/5 * * * *", f"{JOBS}.sound", [], {}, suffix)) == ["W026"]
    assert ids(CRONTAB_COMMAND_SUFFIX=suffix) == ["W026"]
    assert ids(CRONTAB_COMMAND_PREFIX=suffix) == ["W026"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lock_at_most": "1m"}, "unknown option 'lock_at_most'"),
        ({"lock": False}, "Did you mean locked?"),
        ({"lock_at_most_for": "soon"}, "'soon' is not a duration"),
        ({"lock_at_most_for": "1m", "lock_at_least_for": "2m"}, "(2m) is longer"),
        ({"name": ""}, "is blank"),
        ({"provider": "redis"}, "There is no lock provider 'redis'"),
        ("1m", "must be a dict"),
    ],
)
def test_e003_options_of_the_settings(options: Any, text: str) -> None:
    """E003 reports what is wrong in SHEDLOCK_CRONTAB."""
    entry = ("@daily", f"{JOBS}.plain")
    of_path = {f"{JOBS}.plain": options}
    [message] = messages(entry, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=of_path)
    assert message.id == "shedlock.E003"
    assert text in message.msg


def test_e001_unknown_time_zone() -> None:
    """E001 finds a time zone in which nobody can count."""
    [message] = messages(
        ("@daily", f"{JOBS}.plain"),
        INSTALLED_APPS=ZERO_EDIT,
        SHEDLOCK_CRONTAB_TIME_ZONE="Europe/Berln",
    )
    assert message.id == "shedlock.E001"
    assert "there is no time zone 'Europe/Berln'" in message.msg
    assert message.hint == (
        'Give a name such as "Europe/Berlin", or leave the setting empty.'
    )


def test_w006_entry_without_a_lock() -> None:
    """W006 finds functions and commands that each host runs."""
    assert ids(("@daily", f"{JOBS}.plain")) == ["W006"]
    assert ids(("@daily", CALL, ["report"])) == ["W006"]
    assert "W006" not in ids(("@daily", CALL, ["digest"]))
    [message] = messages(("@daily", CALL, ["report"]))
    assert "The entry report (@daily) of CRONJOBS has no lock" in message.msg
    assert message.hint == (
        "Decorate its target, give a command an entry in SHEDLOCK_COMMANDS, or put "
        "'django_shedlock.contrib.crontab' before 'django_crontab' in INSTALLED_APPS."
    )
    entry = ("@daily", f"{JOBS}.plain")
    assert ids(entry, INSTALLED_APPS=ZERO_EDIT) == []
    unlocked = {f"{JOBS}.plain": {"locked": False}}
    assert ids(entry, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=unlocked) == []


def test_options_of_its_command_are_not_the_entrys_fault() -> None:
    """E009 reports them once, however many entries start the command."""
    entries = [("@daily", CALL, ["sqlflush"]), ("@hourly", CALL, ["sqlflush"])]
    wrong = {"sqlflush": {"wiat": "1m"}}
    assert ids(*entries, SHEDLOCK_COMMANDS=wrong) == []
    assert ids(*entries, SHEDLOCK_COMMANDS=wrong, INSTALLED_APPS=ZERO_EDIT) == []


def test_w007_entry_that_starves() -> None:
    """W007 finds a lock that is kept until after the next tick."""
    assert "W007" in ids(("*/10 * * * *", f"{JOBS}.greedy"))
    assert "W007" not in ids(("*/11 * * * *", f"{JOBS}.sound"))


def test_w009_entry_that_may_run_twice() -> None:
    """W009 finds a lock of SHEDLOCK_COMMANDS that a short job releases too early."""
    entry = ("@daily", CALL, ["diffsettings"])
    options = {"lock_at_most_for": "1h"}
    assert ids(entry, SHEDLOCK_COMMANDS={"diffsettings": options}) == ["W009"]
    options = {**options, "lock_at_least_for": "1m"}
    assert ids(entry, SHEDLOCK_COMMANDS={"diffsettings": options}) == []


@pytest.mark.parametrize(
    "entry",
    [
        ("*/5 * * * *", f"{JOBS}.short"),
        ("@daily", CALL, ["digest"]),
    ],
    ids=str,
)
def test_w009_decorated_job_that_each_host_runs(entry: Any) -> None:
    """W009 finds a decorated function or command with neither option, once for each."""
    [message] = messages(entry)
    assert message.id == "shedlock.W009"
    assert "may run on two hosts" in message.msg
    assert message.hint == (
        "Set it to the time by which hosts may start a tick apart, such as 30s, or "
        "give the lock a schedule, whose ticks run once each."
    )
    with override_settings(SHEDLOCK_DEFAULT_LOCK_AT_LEAST_FOR="30s"):
        assert ids(entry) == []


@pytest.mark.parametrize(
    "entry",
    [
        ("*/5 * * * *", f"{JOBS}.short"),
        ("@daily", CALL, ["digest"]),
        ("@daily", f"{JOBS}.plain"),
    ],
    ids=str,
)
def test_w009_not_where_each_tick_runs_once(entry: Any) -> None:
    """With the app a tick runs once, whatever is kept; unless ticks are left out."""
    no_minimum = {f"{JOBS}.plain": {"lock_at_least_for": 0}}.get(entry[1], {})
    for options, told in (({}, []), ({"schedule": None}, ["W009"])):
        written = {entry[1]: {**no_minimum, **options}}
        assert ids(entry, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=written) == told


def test_w009_where_the_store_keeps_no_ticks() -> None:
    """A store that can't keep ticks can't run them once."""
    backend = "tests.contrib.test_crontab_ticks.Tickless"
    entry = ("*/5 * * * *", f"{JOBS}.short")
    stores = {"default": {"BACKEND": backend}}
    others = {"INSTALLED_APPS": ZERO_EDIT, "SHEDLOCK_PROVIDERS": stores}
    assert ids(entry, **others) == ["W009"]


@pytest.mark.parametrize("time", ["0 * * * *", "@hourly", "00 */1 * * *"])
@pytest.mark.parametrize("apps", [ZERO_EDIT, ["django_shedlock", "django_crontab"]])
def test_w012_not_for_the_same_time(time: str, apps: list[str]) -> None:
    """An entry may say in other words what its job's schedule says."""
    assert ids((time, f"{JOBS}.hourly"), INSTALLED_APPS=apps) == []


@pytest.mark.parametrize("time", ["*/30 * * * *", "5 * * * *", "@daily"])
@pytest.mark.parametrize("apps", [ZERO_EDIT, ["django_shedlock", "django_crontab"]])
def test_w012_entry_at_another_time(time: str, apps: list[str]) -> None:
    """W012 finds an entry whose time is not that of its job's own schedule."""
    [message] = messages((time, f"{JOBS}.hourly"), INSTALLED_APPS=apps)
    assert message.id == "shedlock.W012"
    assert "'@hourly' of its lock 'hourly'" in message.msg
    assert message.hint == (
        "Write the same in both places, or leave out the lock's schedule."
    )


@pytest.mark.parametrize(
    ("schedule", "told"),
    [("every 5m", []), ("every 7m", ["W012"]), (["every 5m", "7 6 * * *"], ["W012"])],
    ids=str,
)
def test_w012_interval_of_the_job(schedule: Any, told: list[str]) -> None:
    """A job's interval may be what cron's line says, if that is possible."""
    written = {f"{JOBS}.plain": {"schedule": schedule, "lock_at_most_for": "50s"}}
    entry = ("*/5 * * * *", f"{JOBS}.plain")
    assert ids(entry, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=written) == told


def test_w012_schedule_of_all_entries_of_a_call() -> None:
    """A job's own list is started by one entry for each time, or by one for all."""
    decorate = scheduler_lock("twice", lock_at_most_for="1h", schedule=[WEEKDAYS, NOON])
    with patch.object(crontabs, "twice", decorate(lambda: None), create=True):
        both = [(NOON, f"{JOBS}.twice"), (WEEKDAYS, f"{JOBS}.twice")]
        assert ids(*both) == ids(*both, INSTALLED_APPS=ZERO_EDIT) == []
        [message] = messages(both[0])
    assert message.id == "shedlock.W012"
    assert f"schedule '{WEEKDAYS} | {NOON}' of its lock 'twice'" in message.msg


@pytest.mark.parametrize("name", ["plain", "short", "sound", "hourly", "coroutine"])
@pytest.mark.parametrize("apps", [ZERO_EDIT, ["django_shedlock", "django_crontab"]])
def test_start_at_boot_is_no_mistake(name: str, apps: list[str]) -> None:
    """cron runs it, whether its target is decorated or not."""
    told = ids(("@reboot", f"{JOBS}.{name}"), INSTALLED_APPS=apps)
    assert told == ["W025"] * (name == "coroutine" and apps != ZERO_EDIT)


def test_w014_time_zone_that_the_host_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W014 finds that cron counts in another zone than the app."""
    (tmp_path / "localtime").write_bytes(zone_file("Asia/Tokyo"))
    monkeypatch.setattr(checks, "SYSTEM_ZONE_FILE", tmp_path / "localtime")
    monkeypatch.setattr(entries, "SYSTEM_ZONE_FILE", tmp_path / "localtime")
    assert messages(INSTALLED_APPS=ZERO_EDIT) == []
    with override_settings(SHEDLOCK_CRONTAB_TIME_ZONE=""):
        [message] = messages(INSTALLED_APPS=ZERO_EDIT)
        assert message.id == "shedlock.W014"
        assert "counted in 'UTC'" in message.msg
        assert message.hint == (
            'Set SHEDLOCK_CRONTAB_TIME_ZONE to cron\'s zone, such as "Europe/Berlin".'
        )
        assert messages() == []


def test_w012_schedule_of_the_settings() -> None:
    """W012 finds it where SHEDLOCK_CRONTAB gives the schedule, too."""
    entry = ("@daily", f"{JOBS}.plain")
    other = {f"{JOBS}.plain": {"schedule": "@weekly"}}
    assert ids(entry, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=other) == ["W012"]
    wrong = {f"{JOBS}.plain": {"schedule": "weekly"}}
    assert ids(entry, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=wrong) == ["E003"]


def test_w008_lease_longer_than_the_interval() -> None:
    """W008 finds a lease that outlasts the next tick, also if it is kept alive."""
    assert ids(("0 * * * *", f"{JOBS}.greedy")) == ["W008"]
    assert ids(("*/4 * * * *", f"{JOBS}.kept_alive")) == ["W008"]
    assert ids(("*/5 * * * *", f"{JOBS}.kept_alive")) == []
    assert ids(("0 */2 * * *", f"{JOBS}.greedy")) == []


FOR_A_SETTING = '"lock_at_most_for": "8m", "keep_alive": True'
FOR_A_DECORATOR = 'lock_at_most_for="8m", keep_alive=True'


@pytest.mark.parametrize(
    ("target", "others", "proposal"),
    [
        (
            (f"{JOBS}.plain",),
            {"SHEDLOCK_CRONTAB": {f"{JOBS}.plain": {"lock_at_most_for": "1h"}}},
            FOR_A_SETTING,
        ),
        (
            (CALL, ["sqlflush"]),
            {"SHEDLOCK_COMMANDS": {"sqlflush": {"lock_at_most_for": "1h"}}},
            FOR_A_SETTING,
        ),
        ((f"{JOBS}.hourly",), {}, FOR_A_DECORATOR),
    ],
)
def test_w008_hint_can_be_pasted_where_the_options_are(
    target: tuple[Any, ...], others: dict[str, Any], proposal: str
) -> None:
    """W008 has the form of the setting, or of the decorator."""
    decorate = scheduler_lock("hourly", lock_at_most_for="1h")
    with patch.object(crontabs, "hourly", decorate(lambda: None)):
        entry = ("*/10 * * * *", *target)
        [message] = messages(entry, INSTALLED_APPS=ZERO_EDIT, **others)
    assert message.id == "shedlock.W008"
    assert f"Write, for example: {proposal}. Then" in str(message.hint)


OUTSIDE = """
from django_shedlock import scheduler_lock

@scheduler_lock("outside", schedule="*/15 * * * *")
def job():
    pass
"""


@pytest.mark.parametrize("apps", [ZERO_EDIT, ["django_shedlock", "django_crontab"]])
def test_w008_of_a_job_outside_the_apps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apps: list[str]
) -> None:
    """W008 finds a job in a module that no other check imports."""
    (tmp_path / "outside_jobs.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "outside_jobs", raising=False)
    entries = [("*/15 * * * *", "outside_jobs.job"), ("@daily", "nodots"), "wrong"]
    with cronjobs(*entries, INSTALLED_APPS=apps), only_jobs_of():
        message, *others = check_crontab()
    assert (message.id, "outside_jobs.job" in message.msg) == ("shedlock.W008", True)
    assert [other.id for other in others] == ["shedlock.W025", "shedlock.W025"]


def test_w001_one_name_for_several_targets() -> None:
    """W001 finds targets that exclude each other, and not one at several times."""
    report = ("@daily", CALL, ["report"])
    plain = ("@weekly", f"{JOBS}.plain")
    options = {"name": "nightly", "schedule": None, "lock_at_least_for": 60}
    app = {
        "INSTALLED_APPS": ZERO_EDIT,
        "SHEDLOCK_CRONTAB": {CALL: options, f"{JOBS}.plain": options},
    }
    with override_settings(**app):
        assert "W001" not in ids(report, ("@weekly", *report[1:]))
        [message] = messages(report, plain)
    assert message.id == "shedlock.W001"
    assert "'nightly'" in message.msg
    assert f"manage.py report, {JOBS}.plain" in message.msg


def test_command_named_by_its_keyword_is_checked_like_others() -> None:
    """The checks know the command, its options, and what shares its lock."""
    by_keyword = ("@daily", CALL, [], {"command_name": "report"})
    assert ids(by_keyword) == ["W006"]
    named = {"report": {"name": "nightly"}}
    others = {"INSTALLED_APPS": ZERO_EDIT, "SHEDLOCK_CRONTAB": named}
    both = [by_keyword, ("@weekly", CALL, ["report"])]
    assert ids(*both, **others) == []
    named[f"{JOBS}.plain"] = {"name": "nightly", "schedule": None}
    [message] = messages(by_keyword, ("@weekly", f"{JOBS}.plain"), **others)
    assert message.id == "shedlock.W001"
    assert f"manage.py report, {JOBS}.plain" in message.msg
    wrong = {"sqlflush": {"wiat": "1m"}}
    of_setting = ("@daily", CALL, [], {"command_name": "sqlflush"})
    assert ids(of_setting, SHEDLOCK_COMMANDS=wrong) == []


@pytest.mark.parametrize("target", [(f"{JOBS}.plain",), (CALL, ["digest"])], ids=str)
def test_w013_not_for_one_call_at_several_times(target: tuple[Any, ...]) -> None:
    """The lock of a call counts the ticks of all its entries."""
    entries = [(WEEKDAYS, *target), (SATURDAYS, *target), ("@reboot", *target)]
    assert ids(*entries, INSTALLED_APPS=ZERO_EDIT) == []
    written = {target[0]: {"schedule": [WEEKDAYS, SATURDAYS]}}
    assert ids(*entries, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=written) == []


def test_w013_expressions_too_long_for_one_schedule() -> None:
    """Then each entry of a call has its own schedule, and the lock counts one."""
    minutes = [",".join(map(str, range(start, 60, 4))) for start in range(6)]
    entries = [(f"{minute} * * * *", f"{JOBS}.plain") for minute in minutes]
    [message] = messages(*entries, INSTALLED_APPS=ZERO_EDIT)
    assert message.id == "shedlock.W013"
    assert f"'cron:{JOBS}.plain'" in message.msg
    assert message.hint == (
        "Give each call its own lock name, shorten the expressions of a call, or turn "
        'counting off with `"schedule": None`.'
    )


def test_w013_one_name_for_several_calls() -> None:
    """W013 finds calls of which one would starve the other; by default none do."""
    entries = [
        ("@daily", CALL, ["report", "daily"]),
        ("@weekly", CALL, ["report", "weekly"]),
    ]
    assert ids(*entries, INSTALLED_APPS=ZERO_EDIT) == []
    shared = {CALL: {"name": "report"}}
    [message] = messages(*entries, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=shared)
    assert message.id == "shedlock.W013"
    assert 'report("daily") (@daily UTC)' in message.msg
    assert 'report("weekly") (@weekly UTC)' in message.msg
    uncounted = {CALL: {"name": "report", "schedule": None}}
    told = ids(*entries, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=uncounted)
    assert "W013" not in told


def test_w013_one_name_for_several_targets() -> None:
    """W013 finds what is left when W001 is silenced."""
    entries = [(WEEKDAYS, CALL, ["report"]), (SATURDAYS, f"{JOBS}.plain")]
    written = {CALL: {"name": "a"}, f"{JOBS}.plain": {"name": "a"}}
    told = ids(*entries, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=written)
    assert told == ["W001", "W013"]


def test_w013_not_where_the_hint_was_followed() -> None:
    """With a name for each call, or no ticks, nothing is missed."""
    entries = [(WEEKDAYS, CALL, ["report"]), (SATURDAYS, CALL, ["report", "eu"])]
    no_ticks = {CALL: {"name": "report", "schedule": None}}
    assert ids(*entries, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=no_ticks) == []
    assert ids(*entries, INSTALLED_APPS=ZERO_EDIT) == []
    calls = [(WEEKDAYS, f"{JOBS}.plain"), (SATURDAYS, f"{JOBS}.coroutine")]
    assert ids(*calls, INSTALLED_APPS=ZERO_EDIT) == []


def test_w013_not_for_a_schedule_of_the_job() -> None:
    """A job with its own schedule has that one, so W012 tells of the entries."""
    entries = [("5 * * * *", f"{JOBS}.hourly"), (SATURDAYS, f"{JOBS}.hourly")]
    assert ids(*entries, INSTALLED_APPS=ZERO_EDIT) == ["W012", "W012"]


def test_w010_app_that_comes_too_late() -> None:
    """W010 finds an app whose command Django does not take."""
    [message] = messages(("@daily", f"{JOBS}.plain"), INSTALLED_APPS=TOO_LATE)
    assert message.id == "shedlock.W010"
    assert "So it locks no entry of CRONJOBS." in message.msg
    assert message.hint == (
        "Put 'django_shedlock.contrib.crontab' before 'django_crontab' in "
        "INSTALLED_APPS."
    )


def test_w011_not_for_the_names_of_a_command() -> None:
    """Options may stand by the command, by its call, or by the call as written."""
    entries = [("@daily", CALL, ["report", "eu"]), ("@daily", CALL, ["report"])]
    keys = ["report", 'report("eu")', f'{CALL}("report", "eu")', f'{CALL}("report")']
    written = {key: {"lock_at_most_for": "1h"} for key in [CALL, *keys]}
    assert ids(*entries, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=written) == []
    unknown = {'report("us")': {}, f'{CALL}("report", "us")': {}, "reports": {}}
    told = ids(*entries, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=unknown)
    assert told == ["W011"] * 3


def test_w011_options_of_no_entry() -> None:
    """W011 finds options that were left behind, or are spelt wrongly."""
    options = {f"{JOBS}.plain": {}, f"{JOBS}.plian": {}, f"{JOBS}.plain(1)": {}}
    entries = [("@daily", f"{JOBS}.plain"), ("@daily", f"{JOBS}.plain", [1])]
    [message] = messages(*entries, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=options)
    assert message.id == "shedlock.W011"
    assert message.msg == (
        f"SHEDLOCK_CRONTAB['{JOBS}.plian'] has no effect: no entry of CRONJOBS has "
        "this path, this command, or this call."
    )
    assert message.hint == (
        "Write arguments as in the lock's name, and options where the lock is defined."
    )


@pytest.mark.parametrize(
    ("target", "options", "in_vain"),
    [
        ("plain", {"lock_at_most_for": "10m", "keep_alive": False}, []),
        ("plain", {"schedule": None}, []),
        ("sound", {"schedule": "@daily"}, []),
        ("sound", {"lock_at_most_for": "10m", "name": "other"}, ["W011", "W011"]),
        ("sound", {"locked": False}, ["W011"]),
        ("sound", {"lock_at_mots_for": "10m"}, ["W011"]),
    ],
)
def test_w011_options_in_vain(
    target: str, options: dict[str, Any], in_vain: list[str]
) -> None:
    """W011 finds options that the target's own lock leaves no room for."""
    entry = ("@hourly" if target == "hourly" else "@daily", f"{JOBS}.{target}")
    written = {f"{JOBS}.{target}": options}
    assert ids(entry, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=written) == in_vain
    assert "W011" not in ids(entry, SHEDLOCK_CRONTAB=written)


def test_settings_of_a_wrong_type_are_left_to_e001() -> None:
    """What the check of the settings tells is not told again."""
    entry = ("@daily", f"{JOBS}.plain")
    assert ids(entry, INSTALLED_APPS=ZERO_EDIT, SHEDLOCK_CRONTAB=[]) == []


def test_typical_mistakes_are_found() -> None:
    """A project with eight mistakes hears of all from one ``manage.py check``."""
    mistakes = [
        ("*/5 * * *", f"{JOBS}.sound"),
        ("@daily", f"{JOBS}.renamed"),
        ("@daily", f"{JOBS}.remind", "gold"),
        ("@daily", f"{JOBS}.coroutine"),
        ("*/5 * * * *", f"{JOBS}.sound", "> log-$(date +%F)"),
        ("@daily", f"{JOBS}.plain"),
        ("*/10 * * * *", f"{JOBS}.greedy"),
        ("@daily", CALL, ["digest"]),
    ]
    expected = "W025 W025 W025 W025 W026 W006 W007 W008 W009"
    report = StringIO()
    with cronjobs(*mistakes):
        call_command("check", stderr=report)  # one wrong job stops no command
    for number in expected.split():
        told = report.getvalue().count(f"(shedlock.{number})")
        assert told == expected.count(number), number


def test_typical_mistakes_of_zero_edit_are_found() -> None:
    """With the app a project hears of all its mistakes at once, too."""
    mistakes = [
        ("*/5 * * *", f"{JOBS}.sound"),
        ("@daily", f"{JOBS}.renamed"),
        ("@daily", f"{JOBS}.remind", "gold"),
        ("*/5 * * * *", f"{JOBS}.sound", "> log-$(date +%F)"),
        ("@daily", CALL, ["report"]),
        ("*/10 * * * *", f"{JOBS}.greedy"),
        ("@daily", f"{JOBS}.plain"),
        ("@daily", f"{JOBS}.coroutine"),
        ("*/30 * * * *", f"{JOBS}.hourly"),
    ]
    options = {
        CALL: {"provider": "redis"},
        f"{JOBS}.plain": {"schedule": None, "lock_at_least_for": 0},
        f"{JOBS}.coroutine": {"name": f"cron:{JOBS}.plain"},
    }
    expected = "E003 W025 W026 W001 W007 W008 W009 W012"
    with (
        cronjobs(
            *mistakes,
            INSTALLED_APPS=[*settings.INSTALLED_APPS[:-1], *ZERO_EDIT[1:]],
            SHEDLOCK_CRONTAB=options,
        ),
        pytest.raises(SystemCheckError) as refusal,
    ):
        call_command("check", stderr=StringIO())
    for number in expected.split():
        assert f"(shedlock.{number})" in str(refusal.value), number


def test_w001_of_decorated_jobs_is_left_to_their_own_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """W001 tells of decorated jobs, wherever they are scheduled."""
    twin = scheduler_lock("sound", lock_at_most_for="4m", lock_at_least_for="30s")
    monkeypatch.setattr(crontabs, "twin", twin(crontabs.plain), raising=False)
    assert ids(("@daily", f"{JOBS}.twin"), ("@daily", f"{JOBS}.sound")) == []


PROJECT = """
from tests.support.lean_settings import *

INSTALLED_APPS = ["django_shedlock", "django_crontab", "shop"]
# Django's own checks connect to a server, and this is about none.
IN_MEMORY = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
DATABASES = dict.fromkeys(DATABASES, IN_MEMORY)
CRONJOBS = [("* * * * *", "shop.work.write"), ("* * * * *", "no.such.job")]
CRONTAB_DJANGO_MANAGE_PATH = __file__
"""
INVALID = """
from django_shedlock import scheduler_lock

@scheduler_lock("digest", lock_at_most_for="10 minuts")
def digest(): ...
"""
WORK = """
def write():
    print("written")
"""


@pytest.mark.once
def test_wrong_jobs_and_entries_stop_no_other_at_its_tick(tmp_path: Path) -> None:
    """What stops all commands of a deployment is no reason to stop all of cron."""
    (tmp_path / "project.py").write_text(PROJECT)
    shop = tmp_path / "shop"
    shop.mkdir()
    for name, code in (("__init__", ""), ("jobs", INVALID), ("work", WORK)):
        (shop / f"{name}.py").write_text(code)
    tick = Crontab()._Crontab__hash_job(("* * * * *", "shop.work.write"))

    def manage(*args: str) -> subprocess.CompletedProcess[str]:
        places = [str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "project",
            "PYTHONPATH": os.pathsep.join(filter(None, places)),
        }
        command = [sys.executable, "-m", "django", *args]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )

    checked = manage("check")
    assert checked.returncode == 1
    assert "(shedlock.E004) shop.jobs can't be imported" in checked.stderr
    assert "(shedlock.W025) The entry ('* * * * *', 'no.such.job')" in checked.stderr
    started = manage("crontab", "run", tick)
    assert (started.returncode, started.stdout) == (0, "written\n"), started.stderr
