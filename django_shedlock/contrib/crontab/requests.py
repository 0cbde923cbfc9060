"""The locks of entries whose targets bring none."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

from django_shedlock import conf
from django_shedlock.calls import scheduled
from django_shedlock.configuration import LONGEST_NAME, parse_option
from django_shedlock.contrib.crontab.entries import Entry
from django_shedlock.contrib.crontab.zones import cron_time_zone
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.options import (
    LockRequest,
    default_duration,
    full_name,
    make_request,
)
from django_shedlock.schedules import Schedule

LONGEST_AT_LEAST = timedelta(minutes=1)
"""Hosts whose clocks raise no warning start a tick within this time."""
DIGITS = 16


def request_for(entry: Entry) -> LockRequest | None:
    """
    Return the lock of the entry, or ``None`` if it is to have none.

    What ``SHEDLOCK_CRONTAB`` does not say comes from the entry itself: the name from
    its path and arguments, the durations from its schedule. Raises
    ``InvalidLockConfiguration`` if they do not go together.
    """
    options = written_options(entry)
    if not options.pop("locked", True):
        return None
    name = options.pop("name", None)
    if name is None:
        name = derived_name(entry)
    options.pop("schedule", None)
    request = make_request(name, {**_derived(name, entry, options), **options})
    return scheduled(request, schedule_of(entry))


def schedule_of(entry: Entry) -> Schedule | str | None:
    """
    Return the schedule whose ticks the entry runs, once each.

    It is the entry's own, unless ``SHEDLOCK_CRONTAB`` says otherwise. ``None`` if that
    has no interval, as ``"@reboot"``.
    """
    options = written_options(entry)
    if "schedule" in options:
        given: Schedule | str | None = options["schedule"]
        return given
    try:
        schedule = Schedule(entry.time, cron_time_zone())
        _ = schedule.interval
    except ValueError:
        # The job can't wait for the one that mends the entry, which a check reports.
        return None
    return schedule


def written_options(entry: Entry) -> dict[str, Any]:
    """Return what ``SHEDLOCK_CRONTAB`` says of the path, and of this very call."""
    written = conf.CRONTAB.value
    options: dict[str, Any] = {}
    for key in (entry.path, entry.call):
        of_key = written.get(key, {})
        if not isinstance(of_key, dict):
            raise InvalidLockConfiguration(
                f"SHEDLOCK_CRONTAB[{key!r}] = {of_key!r}: it must be a dict of options."
            )
        options |= of_key
    return options


def derived_name(entry: Entry) -> str:
    """Return a name that stays as long as the path and the arguments do."""
    name = f"cron:{entry.call}"
    room = LONGEST_NAME - len(full_name(""))
    if len(name) <= room:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:DIGITS]
    return f"{name[: room - DIGITS - 1].rstrip()}~{digest}"


def _derived(name: str, entry: Entry, options: dict[str, Any]) -> dict[str, Any]:
    at_most = _given(name, "lock_at_most_for", options)
    at_least = _given(name, "lock_at_least_for", options)
    interval = _interval(entry)
    if at_most is None:
        default = default_duration(conf.LOCK_AT_MOST_FOR)
        at_most = max(min(interval * 0.9, default), at_least or timedelta(0))
    if at_least is None:
        at_least = min(interval / 2, LONGEST_AT_LEAST, at_most)
    return {
        "lock_at_most_for": at_most,
        "lock_at_least_for": at_least,
        "keep_alive": True,
    }


def _given(name: str, option: str, options: dict[str, Any]) -> timedelta | None:
    value = options.pop(option, None)
    return None if value is None else parse_option(name, option, value)


def _interval(entry: Entry) -> timedelta:
    try:
        return Schedule(entry.time).interval
    except ValueError:
        # The job can't wait for the one that mends the entry, which a check reports.
        return timedelta(days=1)
