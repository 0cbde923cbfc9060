"""What the suffixes of ``CRONJOBS`` do to the files of their jobs, and to its hash."""

from __future__ import annotations

import ast
import os
import re
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
        *("> /proc/1/fd/1 2>&1", '> "/dev/null" 2>&1', "> '/dev/null'", "> dump.$$"),
    ],
)
def test_w024_not_for_what_keeps_the_file(suffix: str) -> None:
    """W024 ignores suffixes that append, discard, or write another command's output."""
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


def proposed_suffix(message: CheckMessage) -> str | None:
    """Return the suffix that the hint of W024 has to paste, if any."""
    written = re.search(r"you can also write (.*), which replaces", str(message.hint))
    return written and str(ast.literal_eval(written[1]))


@pytest.mark.parametrize(
    "suffix",
    ["> 'a b.json'", ">ab.json", "1> ab.json 2>&1", ">| ab.json 2>&1", "> ./ab.json"],
)
def test_w024_hint_keeps_the_file_of_a_skip(suffix: str, tmp_path: Path) -> None:
    """The suffix in W024's hint replaces the file only if the job prints something."""

    def shell(job: str, ending: str) -> int:
        return subprocess.run(
            ["sh", "-c", f"{job} {ending}"], cwd=tmp_path, check=False
        ).returncode

    [message] = found(suffix)
    fixed = proposed_suffix(message)
    assert fixed is not None
    assert found(fixed) == []
    skip, failure = "true", "sh -c 'echo 3; exit 7'"
    for job, status, content in (
        *(("echo 1", 0, "1\n"), (skip, 0, "1\n"), ("echo 2", 0, "2\n")),
        *((failure, 7, "3\n"), (skip, 0, "3\n"), ("false", 1, "3\n")),
    ):
        assert shell(job, fixed) == status
        [file] = tmp_path.iterdir()
        assert file.read_text() == content
    shell(skip, suffix)
    assert file.read_text() == ""


def test_w024_hint_keeps_the_traceback_of_a_failure(tmp_path: Path) -> None:
    """A job whose errors go into the same file has them there after it failed."""
    [message] = found("> last.log 2>&1")
    failure = "sh -c 'echo Traceback >&2; exit 1'"
    line = f"{failure} {proposed_suffix(message)}"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, check=False)
    assert done.returncode == 1
    [file] = tmp_path.iterdir()
    assert (file.name, file.read_text()) == ("last.log", "Traceback\n")


def test_w024_hint_loses_no_output_if_the_file_cannot_be_replaced(
    tmp_path: Path,
) -> None:
    """If ``mv`` fails, the job's output stays where it was written."""
    [message] = found("> last.log")
    fixed = str(proposed_suffix(message))
    mv = tmp_path / "mv"
    mv.write_text("#!/bin/sh\nexit 1\n")
    mv.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    subprocess.run(
        ["sh", "-c", f"echo 1 {fixed}"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        check=True,
    )
    [file] = tmp_path.glob("last.log*")
    assert file.read_text() == "1\n"


@pytest.mark.parametrize(
    "suffix",
    [
        *("| gzip > f.gz", "> f || mail x", "> f && echo ok", "> f; date", "> f &"),
        *("> ${OUT:-a b}", "> $(hostname)", "> `hostname`", '> "$HOME/f"', "> $F"),
        *("&> f", ">& f", "> f 2> errors", "2> errors > f", "> f < input", "> -f"),
        *("> a\\ b", "> f*"),
    ],
)
def test_w024_has_nothing_to_paste_for_other_lines(suffix: str) -> None:
    """A suffix that does more gets advice, since a changed one might not do it."""
    [message] = found(suffix)
    assert message.hint == "Append with >>, or let the job write the file itself."


def test_w024_names_the_whole_target() -> None:
    """A space within a shell's expansion does not end the file's name."""
    [message] = found("> ${OUT:-a b}")
    assert "its suffix writes to ${OUT:-a b} with >" in message.msg


def test_w024_has_nothing_to_paste_before_the_suffix_of_all_entries() -> None:
    """CRONTAB_COMMAND_SUFFIX would apply to the last command of the pasted line."""
    [message] = messages(f"{JOBS}.plain", "> last.log", CRONTAB_COMMAND_SUFFIX="2>&1")
    assert message.hint == "Append with >>, or let the job write the file itself."
    [message] = messages(f"{JOBS}.plain", CRONTAB_COMMAND_SUFFIX="> all.log 2>&1")
    assert proposed_suffix(message) is not None


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


@pytest.mark.parametrize("zone", [None, ""])
def test_w024_date_where_the_settings_have_no_time_zone(
    zone: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W024 finds the dates of other time zones if the settings have no TIME_ZONE."""
    monkeypatch.setattr(lines, "host_now", lambda: LATE)
    with override_settings(TIME_ZONE=zone):
        assert found(">> log") == []
        [message] = found(">> log_2026-03-05")
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
