"""The time zone in which cron counts."""

from __future__ import annotations

import struct
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from django_shedlock import conf

UTC = "UTC"
LOCALTIME = Path("/etc/localtime")
TIMEZONE = Path("/etc/timezone")
"""Debian also keeps the name here."""


def cron_time_zone() -> str:
    """
    Return the name of cron's time zone.

    It is ``SHEDLOCK_CRONTAB_TIME_ZONE``, else this host's, else UTC. A wrong setting
    stops no job; a check reports it. The process's own zone is no help: Django has set
    it to the project's.
    """
    names = [conf.CRONTAB_TIME_ZONE.value, _linked(), _written()]
    return next(filter(is_time_zone, names), UTC)


def is_misnamed() -> bool:
    """Return whether cron uses another zone than the one that this host names."""
    if is_time_zone(conf.CRONTAB_TIME_ZONE.value):
        return False
    try:
        with LOCALTIME.open("rb") as file:
            of_cron = ZoneInfo.from_file(file)
    except (OSError, ValueError, struct.error):
        # cron can't read it either, and counts in UTC.
        of_cron = ZoneInfo(UTC)
    return _offsets(of_cron) != _offsets(ZoneInfo(cron_time_zone()))


def is_time_zone(name: str) -> bool:
    """Return whether there is a time zone of that name."""
    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        return False
    return True


def _offsets(zone: ZoneInfo) -> list[timedelta | None]:
    # In both halves of the year, in case the zone has daylight saving time.
    this_year = datetime.now(zone).year
    days = (datetime(this_year, month, 15, tzinfo=zone) for month in (1, 7))
    return [day.utcoffset() for day in days]


def _linked() -> str:
    try:
        name = str(LOCALTIME.readlink()).partition("zoneinfo/")[2]
    except OSError:
        return ""
    # These two folders repeat all zones, without and with leap seconds.
    return name.removeprefix("posix/").removeprefix("right/")


def _written() -> str:
    try:
        return TIMEZONE.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
