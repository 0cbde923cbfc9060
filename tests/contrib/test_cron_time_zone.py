"""The time zone in which cron counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import override_settings

from django_shedlock.contrib.crontab import checks, entries
from django_shedlock.contrib.crontab.checks import check_crontab
from django_shedlock.contrib.crontab.entries import cron_time_zone, is_time_zone
from tests.support.zones import zone_file

APPS = ["django_shedlock", "django_shedlock.contrib.crontab", "django_crontab"]


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that does not tell its time zone yet."""
    monkeypatch.setattr(checks, "SYSTEM_ZONE_FILE", tmp_path / "localtime")
    monkeypatch.setattr(entries, "SYSTEM_ZONE_FILE", tmp_path / "localtime")
    return tmp_path


def is_misnamed() -> bool:
    with override_settings(INSTALLED_APPS=APPS, CRONJOBS=[]):
        return "shedlock.W014" in [message.id for message in check_crontab()]


def test_utc_if_nobody_knows() -> None:
    """A host that names no time zone counts in UTC, as its cron does."""
    assert cron_time_zone() == "UTC"


@pytest.mark.parametrize(
    ("link", "setting", "expected"),
    [
        ("/usr/share/zoneinfo/Europe/Berlin", "", "Europe/Berlin"),
        ("../usr/share/zoneinfo/Asia/Kolkata", "", "Asia/Kolkata"),
        ("/usr/share/zoneinfo/posix/Asia/Tokyo", "", "Asia/Tokyo"),
        ("/usr/share/zoneinfo/right/Asia/Tokyo", "", "Asia/Tokyo"),
        ("/elsewhere", "", "UTC"),
        ("/usr/share/zoneinfo/Europe/Atlantis", "", "UTC"),
        ("/usr/share/zoneinfo/Asia/Tokyo", "America/New_York", "America/New_York"),
        ("/usr/share/zoneinfo/Asia/Tokyo", "Europe/Berln", "Asia/Tokyo"),
    ],
)
def test_zone_of_cron(host: Path, link: str, setting: str, expected: str) -> None:
    """Cron counts in the zone of the settings, then of the host, then in UTC."""
    (host / "localtime").symlink_to(link)
    with override_settings(SHEDLOCK_CRONTAB_TIME_ZONE=setting):
        assert cron_time_zone() == expected


@pytest.mark.parametrize("name", ["", "Europe", "Europe/Berln", "/etc", "../x", "\0"])
def test_what_is_no_time_zone(name: str) -> None:
    """Nothing that files may contain is an error."""
    assert not is_time_zone(name)


@pytest.mark.parametrize(
    ("localtime", "is_wrong"),
    [
        ("Europe/Berlin", True),
        ("Africa/Lagos", True),
        ("Europe/London", True),
        ("Etc/UTC", False),
        ("Africa/Abidjan", False),
        (None, False),
    ],
)
def test_copy_of_another_time_zone(
    host: Path, localtime: str | None, is_wrong: bool
) -> None:
    """A container may have a copy of its host's ``/etc/localtime``."""
    if localtime:
        (host / "localtime").write_bytes(zone_file(localtime))
    assert is_misnamed() == is_wrong
    with override_settings(SHEDLOCK_CRONTAB_TIME_ZONE="America/New_York"):
        assert not is_misnamed()
    with override_settings(SHEDLOCK_CRONTAB_TIME_ZONE="Europe/Berln"):
        assert is_misnamed() == is_wrong


def test_file_that_is_no_time_zone(host: Path) -> None:
    """What cron can't read means UTC to it."""
    (host / "localtime").write_bytes(b"TZif2")
    assert not is_misnamed()
