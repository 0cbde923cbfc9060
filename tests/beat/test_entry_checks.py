"""The system check of ``SHEDLOCK_SCHEDULE``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.management import get_commands
from django.test import override_settings

from django_shedlock import Schedule, scheduler_lock
from django_shedlock.beat.apps import check_schedule
from django_shedlock.checks import check_settings
from django_shedlock.registry import commands
from tests.support import entries
from tests.support.crontabs import command
from tests.support.entries import Tidy
from tests.support.jobs import DAILY, only_jobs_of

# Django's own checks ask each MySQL or MariaDB for its version.
pytestmark = pytest.mark.django_db(databases=["default", "other"])

HERE = "tests.support.entries"
DAY = {"schedule": DAILY["schedule"]}
POLL = {**DAY, "call": f"{HERE}.poll"}


@pytest.fixture(autouse=True)
def project() -> Iterator[None]:
    """Let there be a command, and no jobs of other tests."""
    with only_jobs_of(HERE), command("tidy", Tidy()):
        yield


def messages(setting: Any) -> list[CheckMessage]:
    with override_settings(SHEDLOCK_SCHEDULE=setting):
        return check_schedule()


def message(**given: Any) -> tuple[str, str]:
    """Return the id and the text of the one message about an entry."""
    [found] = messages({"sound": POLL, "entry": given})
    assert "SHEDLOCK_SCHEDULE['entry']" in found.msg
    return str(found.id), found.msg


@pytest.mark.parametrize(
    ("grace", "ids"),
    [
        ("5s", ["shedlock.W028"]),
        (1, ["shedlock.W028"]),
        ("5001ms", []),
        ("wrong", []),
        (None, []),
    ],
)
def test_grace_is_longer_than_the_time_between_two_looks(
    grace: Any, ids: list[str]
) -> None:
    """W028: a beat would miss ticks; another check reports a value that is wrong."""
    with override_settings(SHEDLOCK_GRACE=grace):
        found = messages({})
    assert [each.id for each in found] == ids
    assert all("a beat looks every 5s" in each.msg for each in found)


def test_sound_entries_have_nothing_to_say() -> None:
    """Each kind of entry, with all options, is accepted."""
    setting = {
        "charge": {
            **POLL,
            "call": f"{HERE}.charge",
            "args": ["EUR"],
            "kwargs": {"limit": 5},
            "schedule": ["15 6 * * *", "0 10 * * *"],
            "time_zone": "Asia/Tokyo",
            "lock_at_most_for": "10m",
            "lock_at_least_for": "1m",
            "wait": "5s",
            "keep_alive": True,
            "history": False,
            "provider": "default",
            "description": "Charges",
            "runbook": "https://wiki.example.com/a",
            "on_skip": "fail",
            "rerun": True,
            "time_limit": "30m",
        },
        "poll": {**POLL, "schedule": "every 20s", "lock_at_most_for": "15s"},
        "tidy": {**DAY, "command": "tidy", "args": ["attic", "--days", "3"]},
        "send": {**DAY, "task": f"{HERE}.send", "args": ["gold"]},
        "asend": {**DAY, "task": f"{HERE}.asend", "kwargs": {"group": "gold"}},
        "entries.locked": {**DAY, "call": f"{HERE}.locked"},
        "entries.report:acme": {**DAY, "call": f"{HERE}.report", "args": ["acme"]},
    }
    assert messages(setting) == []


def test_check_is_registered() -> None:
    """manage.py check runs it, as long as the app is installed."""
    with override_settings(SHEDLOCK_SCHEDULE={"entry": {}}):
        found = [each for each in run_checks() if "SHEDLOCK_SCHEDULE" in each.msg]
    assert [each.id for each in found] == ["shedlock.W025"]


def test_e001_schedule_is_no_dict() -> None:
    """E001 names the setting; its own check has nothing to add."""
    with override_settings(SHEDLOCK_SCHEDULE=["poll"]):
        [found] = check_settings()
        assert check_schedule() == []
    assert found.id == "shedlock.E001"
    assert found.msg.startswith("SHEDLOCK_SCHEDULE = ['poll']: it must be dict")


def test_e001_schedule_without_its_app() -> None:
    """E001 says which app is missing, since nothing would start the entries."""
    given = {"INSTALLED_APPS": ["django_shedlock"], "SHEDLOCK_SCHEDULE": {"a": POLL}}
    with override_settings(**given):
        [found] = check_settings()
    assert (found.id, found.msg) == (
        "shedlock.E001",
        "SHEDLOCK_SCHEDULE has no effect: put 'django_shedlock.beat' into "
        "INSTALLED_APPS.",
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (DAY, 'it must have one of "call", "command" and "task"'),
        ({**POLL, "command": "tidy"}, 'it must have one of "call", "command"'),
        ({"call": f"{HERE}.poll"}, 'it has no "schedule"'),
        ({**POLL, "schedule": None}, 'it has no "schedule"'),
        ({**POLL, "call": 5}, '"call" (5) must be a text'),
        ({**POLL, "args": "EUR"}, "\"args\" ('EUR') must be a list"),
        ({**POLL, "kwargs": ["EUR"]}, "\"kwargs\" (['EUR']) must be a dict"),
        ({**POLL, "kwargs": {5: "EUR"}}, '"kwargs" ({5: '),
    ],
)
def test_w025_malformed_entry(given: Any, text: str) -> None:
    """W025 says what the entry has too little or too much of."""
    identity, told = message(**given)
    assert identity == "shedlock.W025"
    assert text in told


def test_w025_entry_is_no_dict() -> None:
    """W025 shows what an entry looks like."""
    [found] = messages({"entry": "shop.jobs.tidy"})
    assert found.id == "shedlock.W025"
    assert 'must be a dict, as {"call": "shop.jobs.tidy"' in found.msg


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"call": "no.such.job"}, "No module named 'no'"),
        ({"call": f"{HERE}.missing"}, f"{HERE} has no 'missing'"),
        ({"call": f"{HERE}.Shop.missing"}, "there is no 'missing'"),
        ({"call": ""}, "is no function"),
        ({"call": ".poll"}, "there is no 'poll'"),
        ({"call": "tests.apps.broken.jobs.job"}, "Error"),
        ({"call": f"{HERE}.NUMBER"}, "NUMBER is no function"),
        ({"call": f"{HERE}.generate"}, "is a generator"),
        ({"call": f"{HERE}.Tidy"}, 'is a command: write its name as "command"'),
        ({"call": f"{HERE}.send"}, 'is a task: write "task" in place of "call"'),
        ({"task": f"{HERE}.poll"}, "is no task of django.tasks"),
        ({"command": "tidi"}, "no command 'tidi'. Did you mean 'tidy'?"),
        ({"command": "nothing at all"}, "no command 'nothing at all'"),
        ({"command": "foreign"}, "the command 'foreign' is no BaseCommand"),
    ],
)
def test_w025_target_that_cannot_be_started(
    given: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W025 says why the path or the name leads nowhere."""
    known = commands._load_unlocked
    monkeypatch.setitem(get_commands(), "foreign", "shop")
    monkeypatch.setattr(
        commands,
        "_load_unlocked",
        lambda app, name: object() if name == "foreign" else known(app, name),
    )
    identity, told = message(**DAY, **given)
    assert identity == "shedlock.W025"
    assert text in told


@pytest.mark.parametrize(
    "given",
    [
        {"call": f"{HERE}.charge"},
        {"call": f"{HERE}.charge", "args": ["EUR"], "kwargs": {"limits": 5}},
        {"call": f"{HERE}.poll", "args": [1]},
        {"command": "tidy"},
        {"command": "tidy", "args": ["attic", "--day"]},
        {"command": "tidy", "args": ["attic"], "kwargs": {"dayz": 3}},
        {"command": "tidy", "args": ["--help"]},
        {"command": "tidy", "args": ["attic", "--dry-run"]},
        {"task": f"{HERE}.send"},
        {"task": f"{HERE}.send", "args": ["gold", 5]},
        {"task": f"{HERE}.asend"},
        {"task": f"{HERE}.send", "args": [object()]},
        {"task": f"{HERE}.send", "args": ["gold"], "kwargs": {"limit": {1}}},
    ],
)
def test_w025_arguments_that_do_not_fit(given: Any, capsys: Any) -> None:
    """W025 finds arguments that the target refuses, or that no task can have."""
    identity, _ = message(**DAY, **given)
    assert identity == "shedlock.W025"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"time_limits": "5m"}, "'time_limits'; there are call, command, task, args"),
        ({"time_limits": "5m"}, "Did you mean time_limit?"),
        ({"time_zone": "Europe/Berlim"}, "there is no time zone 'Europe/Berlim'"),
        ({"time_limit": "10 minuts"}, "time_limit: "),
        ({"time_limit": 0}, "time_limit (0) must be positive"),
        ({"rerun": "yes"}, "rerun ('yes') must be True or False"),
        ({"on_skip": "raise"}, 'must be "skip" or "fail"'),
        ({"runbook": "wiki"}, "runbook ('wiki') must be a link"),
        ({"schedule": "61 * * * *"}, "schedule: '61 * * * *'"),
        ({"schedule": ["0 5 1 1 *", "0 6 2 2 *"] * 30}, ""),
        ({"schedule": [f"{n} 6 * * *" for n in range(40)]}, "at most 200 are allowed"),
        ({"schedule": "@reboot"}, "schedule: '@reboot'"),
        ({"schedule": "every 0s"}, "'every 0s'"),
        ({"schedule": timedelta(milliseconds=500)}, "schedule: "),
        ({"schedule": 20}, "schedule: 20"),
        ({"lock_at_most_for": "1m", "lock_at_least_for": "2m"}, "is longer than"),
        ({"lock_at_least_for": "2h"}, "is longer than lock_at_most_for"),
        ({"provider": "no"}, "'no'"),
        ({"keep_alive": "yes"}, "keep_alive ('yes') must be True or False"),
    ],
)
def test_e003_lock_that_cannot_work(given: Any, text: str) -> None:
    """E003 names the option and its value."""
    if not text:  # the same expression twice is one
        assert messages({"entry": {**POLL, **given}}) == []
        return
    identity, told = message(**{**POLL, **given})
    assert identity == "shedlock.E003"
    assert text in told


def test_e003_schedule_with_two_time_zones() -> None:
    """E003 asks for the time zone in one place."""
    given = {"schedule": Schedule("@daily", "Asia/Tokyo"), "time_zone": "Asia/Tokyo"}
    identity, told = message(**{**POLL, **given})
    assert identity == "shedlock.E003"
    assert "remove time_zone" in told


@pytest.mark.parametrize("name", ["", " poll", 5, "x" * 256])
def test_e003_key_that_is_no_name(name: Any) -> None:
    """E003 says why no lock can have the key as its name."""
    [found] = messages({name: POLL})
    assert found.id == "shedlock.E003"


def test_e003_name_that_its_arguments_can_not_make() -> None:
    """E003 finds arguments of which the decorator can't make a name."""
    identity, _ = message(**DAY, call=f"{HERE}.report", args=[" "])
    assert identity == "shedlock.E003"


def test_w007_and_w008_durations() -> None:
    """The durations are compared with the entry's own schedule."""
    given = {**POLL, "schedule": "* * * * *", "lock_at_least_for": "1m"}
    found = messages({"entry": given})
    assert [each.id for each in found] == ["shedlock.W007", "shedlock.W008"]
    assert all('"lock_at_' in str(each.hint) for each in found)


def test_w027_two_locks() -> None:
    """W027 names both locks, and the key that makes them one."""
    [found] = messages({"entry": {**DAY, "call": f"{HERE}.locked"}})
    assert found.id == "shedlock.W027"
    assert "its own, and 'entries.locked'" in found.msg
    assert "the key 'entries.locked'" in str(found.hint)


def test_w027_name_with_arguments() -> None:
    """W027 compares the name that the arguments make."""
    given = {**DAY, "call": f"{HERE}.report", "args": ["acme"]}
    [found] = messages({"entries.report:other": given})
    assert found.id == "shedlock.W027"
    assert "'entries.report:acme'" in found.msg


def test_w027_command_of_the_setting() -> None:
    """W027 also knows the locks of SHEDLOCK_COMMANDS."""
    given = {**DAY, "command": "clearsessions"}
    with override_settings(SHEDLOCK_COMMANDS={"clearsessions": {}}):
        [found] = messages({"nightly": given})
        assert messages({"clearsessions": given}) == []
    assert found.id == "shedlock.W027"


def test_w001_entry_and_another_job() -> None:
    """W001 names the entry and the decorated job that have one name."""
    [found] = messages({"entries.locked": POLL})
    assert found.id == "shedlock.W001"
    assert f"SHEDLOCK_SCHEDULE['entries.locked'], {HERE}.locked" in found.msg


def test_w001_entry_and_its_own_task() -> None:
    """W001 finds a task that needs the lock under which its entry enqueues it."""
    given = {**DAY, "task": f"{HERE}.locked_task"}
    [found] = messages({"entries.task": given})
    assert found.id == "shedlock.W001"
    assert messages({"enqueue": given}) == []


def test_w012_two_schedules() -> None:
    """W012 finds a schedule at the decorator beside that of the entry."""

    @scheduler_lock("twice", lock_at_most_for="5m", schedule="@daily")
    def twice() -> None:
        """Run."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "twice", twice, raising=False)
        [found] = messages({"twice": {**DAY, "call": f"{HERE}.twice"}})
    assert found.id == "shedlock.W012"
    assert "'@daily'" in found.msg
