"""What the suffixes of ``CRONJOBS`` do to the files of their jobs, and to its hash."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.test import override_settings
from django_crontab.crontab import Crontab

from django_shedlock.contrib.crontab import lines
from django_shedlock.contrib.crontab.checks import check_crontab

JOBS = "tests.support.crontabs"
APPS = ["django_shedlock", "django_shedlock.contrib.crontab", "django_crontab"]
LATE = datetime(2026, 3, 5, 23, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def project() -> Iterator[None]:
    """Install the apps, on a host whose time zone does not matter."""
    zones = {"SHEDLOCK_CRONTAB_TIME_ZONE": "UTC", "TIME_ZONE": "UTC"}
    with override_settings(INSTALLED_APPS=APPS, **zones):
        yield


def messages(*entry: Any, **others: Any) -> list[CheckMessage]:
    with override_settings(CRONJOBS=[("@daily", *entry)], **others):
        return check_crontab()


def found(suffix: str) -> list[CheckMessage]:
    """Return what is said of an entry with this suffix."""
    return messages(f"{JOBS}.plain", suffix)


@pytest.mark.parametrize(
    "suffix",
    [
        *("> backup.json", ">backup.json", "1> backup.json", ">| backup.json"),
        *(
            "&> backup.json",
            ">& backup.json",
            "> backup.json 2>&1",
            "2>&1 > backup.json",
        ),
        *("| gzip > backup.json", "> backup.json; date >> log", "2>> log >backup.json"),
        *("> backup.json && echo ok > /dev/null", "2> /dev/null 1>backup.json &"),
    ],
)
def test_w024_suffix_that_empties_a_file(suffix: str) -> None:
    """W024 finds a file that the shell empties although the job is skipped."""
    [message] = found(suffix)
    assert message.id == "shedlock.W024"
    assert message.msg == (
        f"The entry {JOBS}.plain (@daily) of CRONJOBS: its suffix writes to "
        "backup.json with >: the shell empties that file before the job starts, so a "
        "skip leaves it empty."
    )


@pytest.mark.parametrize(
    "suffix",
    [
        *(">> log", "1>>log", "&>> log", "2> errors", ">> log 2>&1", "2>errors >> log"),
        *("> /dev/null", "> /dev/null 2>&1", "&> /dev/null", ">/dev/stderr", ">&2"),
        *(">&-", "> /dev/fd/3", "; date > done", "&& date > done", "|| date > failed"),
        *('| mail -s "a > b" root', "| grep '>'", "| grep \\> x", "<> file", ""),
        *("| tee -a $(hostname > x)", "3> other", "> >(logger)", "& date > started"),
    ],
)
def test_w024_not_for_what_keeps_the_file(suffix: str) -> None:
    """It may append, discard, or write what another command prints."""
    assert found(suffix) == []


def test_w024_only_where_a_lock_may_skip_the_job() -> None:
    """A job without a lock runs each time that the file is emptied."""
    unlocked = {f"{JOBS}.plain": {"locked": False}}
    suffix = "> backup.json"
    told = messages(f"{JOBS}.plain", suffix, SHEDLOCK_CRONTAB=unlocked)
    told += messages(
        f"{JOBS}.plain",
        SHEDLOCK_CRONTAB=unlocked,
        CRONTAB_COMMAND_SUFFIX=suffix,
    )
    assert told == []
    only_decorated = ["django_shedlock", "django_crontab"]
    [message] = messages(f"{JOBS}.sound", suffix, INSTALLED_APPS=only_decorated)
    assert message.id == "shedlock.W024"


def test_w024_suffix_of_all_entries() -> None:
    """W024 names the setting if that empties the file of all entries."""
    [message] = messages(f"{JOBS}.plain", CRONTAB_COMMAND_SUFFIX="> all.log")
    assert message.id == "shedlock.W024"
    assert message.msg.startswith("CRONTAB_COMMAND_SUFFIX writes to all.log with >")


@pytest.mark.parametrize("suffix", ["> 'a b.json'", "> ab.json 2>&1; true"])
def test_w024_hint_keeps_the_file_of_a_skip(suffix: str, tmp_path: Path) -> None:
    """What it says to write replaces the file after a run, and not after a skip."""

    def shell(job: str, ending: str) -> None:
        subprocess.run(["sh", "-c", f"{job} {ending}"], cwd=tmp_path, check=True)

    [message] = found(suffix)
    written = str(message.hint).removeprefix("Write ").partition(", which")[0]
    fixed = ast.literal_eval(written)
    for job, content in (("echo 1", "1\n"), ("true", "1\n"), ("echo 2", "2\n")):
        shell(job, fixed)
        [file] = tmp_path.iterdir()
        assert file.read_text() == content
    shell("true", suffix)
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("suffix", "fixed"),
    [
        (">> log_05_03_2026.log", ">> log_$(date +\\%d_\\%m_\\%Y).log"),
        (">> 2026-03-05.log 2>&1", ">> $(date +\\%Y-\\%m-\\%d).log 2>&1"),
        (">> log.20260305", ">> log.$(date +\\%Y\\%m\\%d)"),
        (">> log-260305", ">> log-$(date +\\%y\\%m\\%d)"),
        (">> 05.Mar.2026", ">> $(date +\\%d.\\%b.\\%Y)"),
    ],
)
@pytest.mark.parametrize("apps", [APPS, ["django_shedlock", "django_crontab"]])
def test_w024_date_in_a_suffix(
    suffix: str, fixed: str, apps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """W024 finds a date that the settings wrote, and has the shell's way for it."""
    monkeypatch.setattr(lines, "host_now", lambda: LATE)
    [message] = messages(f"{JOBS}.sound", suffix, INSTALLED_APPS=apps)
    assert message.id == "shedlock.W024"
    assert message.msg.startswith(f"The entry {JOBS}.sound (@daily) of CRONJOBS has")
    assert message.msg.endswith("so from tomorrow on, cron's line starts nothing.")
    assert message.hint == f"Let the shell write the date: {fixed!r}."
    assert messages(f"{JOBS}.sound", fixed, INSTALLED_APPS=apps) == []


def test_w024_date_in_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument is a part of the hash as well, and no shell can write it."""
    monkeypatch.setattr(lines, "host_now", lambda: LATE)
    [message] = messages(f"{JOBS}.plain", [], {"day": "2026-03-05"})
    assert message.id == "shedlock.W024"
    assert message.hint == "Let the job find the date out itself."


def test_w024_date_of_another_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings may have read a clock in which it is tomorrow."""
    monkeypatch.setattr(lines, "host_now", lambda: LATE)
    assert found(">> log_2026-03-06") == []
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        [message] = found(">> log_2026-03-06")
    assert message.id == "shedlock.W024"


@pytest.mark.parametrize("suffix", [">> 2026-03-04", ">> 1120260305", ">> v5.3.20261"])
def test_w024_not_for_other_numbers(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A date that stays, or digits that are a part of others, change no hash."""
    monkeypatch.setattr(lines, "host_now", lambda: LATE)
    assert found(suffix) == []


def test_date_changes_the_hash_of_an_entry() -> None:
    """django-crontab knows an entry by all its parts, which is why W024 warns."""
    hashes = {
        Crontab()._Crontab__hash_job(("@daily", f"{JOBS}.plain", f">> {day}.log"))
        for day in ("2026-03-05", "2026-03-06")
    }
    assert len(hashes) == 2
