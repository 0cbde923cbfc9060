"""The time zone in which cron counts."""

from __future__ import annotations

import zoneinfo
from importlib import resources
from pathlib import Path

import pytest
from django.test import override_settings

from django_shedlock.contrib.crontab import zones
from django_shedlock.contrib.crontab.zones import (
    cron_time_zone,
    is_misnamed,
    is_time_zone,
)


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that does not tell its time zone yet."""
    monkeypatch.setattr(zones, "LOCALTIME", tmp_path / "localtime")
    monkeypatch.setattr(zones, "TIMEZONE", tmp_path / "timezone")
    return tmp_path


def test_utc_if_nobody_knows() -> None:
    """A host that names no time zone counts in UTC, as its cron does."""
    assert cron_time_zone() == "UTC"


def test_debians_file(host: Path) -> None:
    """Where ``/etc/localtime`` is a copy, Debian's file has the name."""
    (host / "localtime").write_bytes(b"TZif2")
    (host / "timezone").write_text("Asia/Tokyo\n")
    assert cron_time_zone() == "Asia/Tokyo"


def test_file_that_is_no_text(host: Path) -> None:
    """What nobody can read names no time zone, and breaks neither checks nor ticks."""
    (host / "timezone").write_bytes(b"\xff\xfe")
    assert cron_time_zone() == "UTC"
    assert not is_misnamed()


def test_link_before_debians_file(host: Path) -> None:
    """What ``/etc/localtime`` leads to is the zone that counts."""
    (host / "localtime").symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    (host / "timezone").write_text("Asia/Tokyo\n")
    assert cron_time_zone() == "Europe/Berlin"


@pytest.mark.parametrize(
    ("setting", "zone"),
    [("America/New_York", "America/New_York"), ("Europe/Berln", "Asia/Tokyo")],
)
def test_setting_wins_if_there_is_such_a_zone(
    host: Path, setting: str, zone: str
) -> None:
    """A setting that is wrong stops no job: the host's zone is taken."""
    (host / "timezone").write_text("Asia/Tokyo\n")
    with override_settings(SHEDLOCK_CRONTAB_TIME_ZONE=setting):
        assert cron_time_zone() == zone


@pytest.mark.parametrize("name", ["", "Europe", "Europe/Berln", "/etc", "../x", "\0"])
def test_what_is_no_time_zone(name: str) -> None:
    """Nothing that files may contain is an error."""
    assert not is_time_zone(name)


def zone_file(name: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        if Path(folder, name).exists():
            return Path(folder, name).read_bytes()
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


@pytest.mark.parametrize(
    ("localtime", "timezone", "is_wrong"),
    [
        ("Europe/Berlin", "Europe/Berlin", False),
        ("Europe/Berlin", "Europe/Paris", False),
        ("Europe/Berlin", "Etc/UTC", True),
        ("Europe/Berlin", "Africa/Lagos", True),
        ("Europe/Berlin", "Africa/Cairo", True),
        ("Europe/Berlin", None, True),
        ("Etc/UTC", None, False),
        (None, None, False),
        (None, "Asia/Tokyo", True),
    ],
)
def test_copy_of_another_time_zone(
    host: Path, localtime: str | None, timezone: str | None, is_wrong: bool
) -> None:
    """A container may have its host's ``/etc/localtime``, and a name of its own."""
    if localtime:
        (host / "localtime").write_bytes(zone_file(localtime))
    if timezone:
        (host / "timezone").write_text(f"{timezone}\n")
    assert is_misnamed() == is_wrong
    with override_settings(SHEDLOCK_CRONTAB_TIME_ZONE="America/New_York"):
        assert not is_misnamed()
    with override_settings(SHEDLOCK_CRONTAB_TIME_ZONE="Europe/Berln"):
        assert is_misnamed() == is_wrong


def test_file_that_is_no_time_zone(host: Path) -> None:
    """What cron can't read means UTC to it."""
    (host / "localtime").write_bytes(b"TZif2")
    assert not is_misnamed()
    (host / "timezone").write_text("Asia/Tokyo\n")
    assert is_misnamed()
