"""The time zone in which cron counts."""

from __future__ import annotations

import struct
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from django_shedlock import conf
from django_shedlock.clocks import host_now

LOCALTIME = Path("/etc/localtime")


def cron_time_zone() -> str:
    """
    Return the name of cron's time zone.

    It is ``SHEDLOCK_CRONTAB_TIME_ZONE``, else what ``/etc/localtime`` links to, else
    UTC. A wrong setting stops no job; a check reports it. The process's own zone is no
    help: Django has set it to the project's.
    """
    names = [conf.CRONTAB_TIME_ZONE.value]
    with suppress(OSError):
        linked = str(LOCALTIME.readlink()).partition("zoneinfo/")[2]
        # These two folders repeat all zones, without and with leap seconds.
        names.append(linked.removeprefix("posix/").removeprefix("right/"))
    return next(filter(is_time_zone, names), "UTC")


def is_misnamed() -> bool:
    """Return whether cron uses another zone than ``cron_time_zone()``."""
    if is_time_zone(conf.CRONTAB_TIME_ZONE.value):
        return False
    try:
        with LOCALTIME.open("rb") as file:
            actual = ZoneInfo.from_file(file)
    except (OSError, ValueError, struct.error):
        actual = ZoneInfo("UTC")  # cron can't read it either, and counts in UTC
    # Compared in both halves of the year, because of daylight saving time.
    year, named = host_now().year, ZoneInfo(cron_time_zone())
    return any(
        datetime(year, month, 15, tzinfo=actual).utcoffset()
        != datetime(year, month, 15, tzinfo=named).utcoffset()
        for month in (1, 7)
    )


def is_time_zone(name: str) -> bool:
    """Return whether there is a time zone of that name."""
    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        return False
    return True
