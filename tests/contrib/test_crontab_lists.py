"""``CRONJOBS`` as real projects have them: they run, list and check as one expects."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands
from django.test import override_settings
from django_crontab.crontab import Crontab

from tests.support.beats import KEPT
from tests.support.clocks import store_clock
from tests.support.crontab_hosts import PATH, ended
from tests.support.warm import Command

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

CALL = "django.core.management.call_command"
TODAY = f"{datetime.now(UTC):%d_%m_%Y}"
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""What the store's clock shows, so that no tick comes while processes start."""

CLUB_OF_RACERS = {
    "CRONTAB_LOCK_JOBS": True,
    "CRONJOBS": [
        ("15 6 * * *", "club.cron.read_entries"),
        ("0 10 * * *", "club.cron.read_entries"),
        ("*/5 11-23 * * *", "club.cron.follow_races"),
        ("*/2 11-23 * * *", "club.cron.follow_next_race"),
        ("30 23 * * *", "club.cron.read_results"),
        ("0 1 * * 0", "club.cron.read_tracks"),
    ],
}
HOUSE_OF_DESKS = {
    "CRONTAB_COMMAND_PREFIX": "",
    "CRONTAB_COMMAND_SUFFIX": "",
    "CRONJOBS": [
        ("30 8 * * *", CALL, ["greet_after_a_year"]),
        ("30 8 * * *", CALL, ["greet_leavers"]),
        ("30 8 * * *", CALL, ["ask_absentees"]),
        ("55 17 * * *", CALL, ["ask_newcomers"]),
        ("0 * * * *", CALL, ["look_for_alerts"]),
        ("*/5 * * * *", CALL, ["read_neighbours"]),
        ("*/5 * * * *", CALL, ["send_news"]),
        ("0 1 * * *", CALL, ["copy_files"]),
    ],
}
SMALL_ADS = {
    "CRONJOBS": [
        ("0 3 * * *", CALL, ["renew_ads", "--status", "active", "--days", "30"]),
        ("0 2 * * 0", CALL, ["renew_ads", "--status", "all", "--days", "60"]),
        ("0 6,12,18,0 * * *", CALL, ["send_news", "--type=low_stock"]),
        ("0   0 * * 0", CALL, ["dump", "auth"], {"days": 4}, "> /tmp/sunday.json"),
        ("00 23 * * *", CALL, ["forget_sessions"]),
    ],
}
SURGERY = {
    "CRONTAB_COMMAND_PREFIX": "TZ=America/Bogota",
    "CRONJOBS": (
        ("0 7 * * 1-5", "club.cron.mail_late", f">> /tmp/log_{TODAY}.log"),
        ("0 7 * * 1-5", "club.cron.mail_early", ">> /tmp/log_$(date +%d_%m).log"),
        ("*/1 * * * *", "club.cron.pull", ">> /tmp/cron_debug.log 2>&1 "),
    ),
}
BILLS = {
    "CRONJOBS": [
        ("*/10 * * * *", "club.cron.charge", ["EUR", 5], {"is_test": False}),
        ("*/10 * * * *", "club.cron.charge", ["USD", 5], {"is_test": False}),
        ("0 */1 * * *", "club.cron.report", [], {}, ""),
        ("@daily", "club.cron.close_day"),
        ("@reboot", "club.cron.warm_up"),
    ],
}
LISTS = {
    "racers": CLUB_OF_RACERS,
    "desks": HOUSE_OF_DESKS,
    "ads": SMALL_ADS,
    "surgery": SURGERY,
    "bills": BILLS,
}
each_list = pytest.mark.parametrize("name", LISTS)

NOTE = """
from pathlib import Path

def note(*call):
    with Path(__file__).with_name("runs").open("a") as runs:
        print(*call, file=runs)
"""
FUNCTION = """
def {name}(*args, **kwargs):
    note("{name}", *args, *kwargs.values())
"""
COMMAND = """
from django.core.management.base import BaseCommand
from club.cron import note

class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("words", nargs="*")
        for option in ("--status", "--days", "--type"):
            parser.add_argument(option)

    def handle(self, *args, words, status, days, type, **options):
        given = filter(None, [*words, status, days, type])
        note("{name}", *given)
"""


class Club:
    """A project with one of the lists, whose functions and commands note their runs."""

    def __init__(self, folder: Path, name: str, stack: ExitStack):
        self.folder, self.settings, self.stack = folder, LISTS[name], stack
        commands = folder / "club" / "management" / "commands"
        commands.mkdir(parents=True)
        (folder / "club" / "__init__.py").touch()
        code = NOTE
        for _, path, *rest in self.settings["CRONJOBS"]:
            if path == CALL:
                command = rest[0][0]
                (commands / f"{command}.py").write_text(COMMAND.format(name=command))
            else:
                code += FUNCTION.format(name=path.rpartition(".")[2])
        (folder / "club" / "cron.py").write_text(code)

    def start(self, *args: str) -> Command:
        """Start ``manage.py`` with these arguments in a process of its own."""
        prepare = partial(become_club, str(self.folder), self.settings)
        started = Command(*args, prepare=[prepare])
        self.stack.callback(started.end)
        return started

    def start_entries(self) -> Iterator[Command]:
        """Start what cron starts for each entry."""
        with override_settings(**PATH):
            hashes = map(Crontab()._Crontab__hash_job, self.settings["CRONJOBS"])
        for entry in hashes:
            yield self.start("crontab", "run", entry)

    @property
    def runs(self) -> list[str]:
        return sorted((self.folder / "club" / "runs").read_text().splitlines())


def become_club(folder: str, settings: dict[str, Any]) -> None:
    """Give this process the project's settings, and a clock that stands still."""
    sys.path.insert(0, folder)
    apps = ["django.contrib.auth", "django.contrib.contenttypes", "django_shedlock"]
    apps += ["django_shedlock.beat", "django_shedlock.contrib.crontab"]
    apps += ["django_crontab", "club"]
    zone = {"SHEDLOCK_CRONTAB_TIME_ZONE": "UTC", **PATH}
    urls = {"ROOT_URLCONF": "tests.support.lean_settings"}
    override_settings(INSTALLED_APPS=apps, **zone, **urls, **settings).enable()
    get_commands.cache_clear()
    KEPT.append(clock := store_clock(lambda: NOON))
    clock.__enter__()


@pytest.fixture
def club(tmp_path: Path, name: str) -> Iterator[Club]:
    with ExitStack() as stack:
        yield Club(tmp_path, name, stack)


RUNS = {
    "racers": [
        "follow_next_race",
        "follow_races",
        "read_entries",
        "read_results",
        "read_tracks",
    ],
    "desks": [
        *("ask_absentees", "ask_newcomers", "copy_files", "greet_after_a_year"),
        *("greet_leavers", "look_for_alerts", "read_neighbours", "send_news"),
    ],
    "ads": [
        "dump auth 4",
        "forget_sessions",
        "renew_ads active 30",
        "renew_ads all 60",
        "send_news low_stock",
    ],
    "surgery": ["mail_early", "mail_late", "pull"],
    "bills": [
        *("charge EUR 5 False", "charge USD 5 False", "close_day", "report", "warm_up"),
    ],
}


@each_list
def test_each_call_runs_once_when_it_is_started_twice(club: Club, name: str) -> None:
    """Two hosts start all entries at one tick, and each call has one run."""
    hosts = [host for _ in range(2) for host in club.start_entries()]
    assert {ended(host) for host in hosts} == {(0, "", "")}
    assert club.runs == RUNS[name]


NAMES = {
    "racers": {
        "cron:club.cron.read_entries": "15 6 * * * | 0 10 * * *",
        "cron:club.cron.follow_races": "*/5 11-23 * * *",
        "cron:club.cron.follow_next_race": "*/2 11-23 * * *",
        "cron:club.cron.read_results": "30 23 * * *",
        "cron:club.cron.read_tracks": "0 1 * * 0",
    },
    "desks": {
        "cron:greet_after_a_year": "30 8 * * *",
        "cron:greet_leavers": "30 8 * * *",
        "cron:ask_absentees": "30 8 * * *",
        "cron:ask_newcomers": "55 17 * * *",
        "cron:look_for_alerts": "0 * * * *",
        "cron:read_neighbours": "*/5 * * * *",
        "cron:send_news": "*/5 * * * *",
        "cron:copy_files": "0 1 * * *",
    },
    "ads": {
        'cron:renew_ads("--status", "active", "--days", "30")': "0 3 * * *",
        'cron:renew_ads("--status", "all", "--days", "60")': "0 2 * * 0",
        'cron:send_news("--type=low_stock")': "0 6,12,18,0 * * *",
        'cron:dump("auth", days=4)': "0 0 * * 0",
        "cron:forget_sessions": "00 23 * * *",
    },
    "surgery": {
        "cron:club.cron.mail_late": "0 7 * * 1-5",
        "cron:club.cron.mail_early": "0 7 * * 1-5",
        "cron:club.cron.pull": "*/1 * * * *",
    },
    "bills": {
        'cron:club.cron.charge("EUR", 5, is_test=false)': "*/10 * * * *",
        'cron:club.cron.charge("USD", 5, is_test=false)': "*/10 * * * *",
        "cron:club.cron.report": "0 */1 * * *",
        "cron:club.cron.close_day": "@daily",
    },
}


@each_list
def test_locks_are_listed_by_readable_names(club: Club, name: str) -> None:
    """``shedlock list`` shows each call that ran, and ``beat`` each that has ticks."""
    beat = club.start("shedlock", "beat", "--no-catch-up")
    beat.stdout.readline()
    told = dict(
        beat.stdout.readline().strip().partition(", next at ")[0].rsplit(": ", 1)
        for _ in NAMES[name]
    )
    assert told == {lock: f"{text} UTC" for lock, text in NAMES[name].items()}
    beat.terminate()
    for host in club.start_entries():
        host.wait()
    listed, errors = club.start("shedlock", "list", "--wide").communicate()
    assert errors == ""
    at_boot = ["cron:club.cron.warm_up"] * (name == "bills")
    for lock in (*NAMES[name], *at_boot):
        assert f"{lock} " in listed


CHECKS = {
    "racers": [],
    "desks": [],
    "ads": ["shedlock.W024"],
    "surgery": ["shedlock.W024", "shedlock.W026"],
    "bills": [],
}


@each_list
def test_check_finds_what_would_go_wrong_and_nothing_else(
    club: Club, name: str
) -> None:
    """A file that skips empty, a date that makes a line dead, and an open percent."""
    checked = club.start("check")
    _, errors = checked.communicate()
    found = re.findall(r"\((shedlock\.\w+)\)", errors)
    assert sorted(found) == sorted(CHECKS[name])
    assert checked.returncode == 0
