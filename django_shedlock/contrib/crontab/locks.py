"""The locks of the entries of ``CRONJOBS``."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.core.management import call_command

from django_shedlock import conf
from django_shedlock.contrib.crontab.commands import (
    command_options,
    command_request,
    fitting,
    locked_command,
)
from django_shedlock.contrib.crontab.entries import Entry, find_job, locks_all_entries
from django_shedlock.contrib.crontab.zones import cron_time_zone
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.jobs.registry import with_schedule
from django_shedlock.locks.configuration import (
    ZERO,
    LockRequest,
    default_duration,
    make_request,
)
from django_shedlock.schedules.cron import Schedule

LONGEST_AT_LEAST = timedelta(minutes=1)
"""Hosts whose clocks raise no warning start a tick within this time."""


def request_for(entry: Entry) -> LockRequest | None:
    """
    Return the lock of the entry, or ``None`` if it has none.

    ``SHEDLOCK_CRONTAB`` has the options. By default the name comes from the path and
    the arguments, the durations from the schedule. Raises ``InvalidLockConfiguration``
    if the options contradict each other.
    """
    options = {"keep_alive": True, **written_options(entry)}
    if not options.pop("locked", True):
        return None
    name = options.pop("name", None)
    if name is None:
        name = fitting(f"cron:{entry.call}")
    options.pop("schedule", None)
    request = with_schedule(make_request(name, options), schedule_of(entry))
    at_most = request.lock_at_most_for
    if at_most is None:
        at_most = min(_interval(entry) * 0.9, default_duration(conf.LOCK_AT_MOST_FOR))
        at_most = max(at_most, request.lock_at_least_for or ZERO)
        request = replace(request, lock_at_most_for=at_most)
    # Without ticks, the lock must be held until all other hosts have tried to start.
    if request.schedule is None and "lock_at_least_for" not in options:
        at_least = min(_interval(entry) / 2, LONGEST_AT_LEAST, at_most)
        request = replace(request, lock_at_least_for=at_least)
    return request


def schedule_of(entry: Entry) -> Schedule | str | None:
    """Return the schedule whose ticks run once each: by default the entry's own."""
    options = written_options(entry)
    if "schedule" in options:
        given: Schedule | str | None = options["schedule"]
        return given
    return _own_schedule(entry)


def written_options(entry: Entry) -> dict[str, Any]:
    """Return what ``SHEDLOCK_CRONTAB`` says about the path, and about this call."""
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


def _own_schedule(entry: Entry) -> Schedule | None:
    try:
        schedule = Schedule(entry.time, cron_time_zone())
        _ = schedule.interval
    except ValueError:
        # "@reboot", or a wrong time: a check reports it, the job runs anyway.
        return None
    return schedule


def _interval(entry: Entry) -> timedelta:
    schedule = _own_schedule(entry)
    return timedelta(days=1) if schedule is None else schedule.interval


class Plan:
    """
    An entry whose target can be imported, and its lock, if it has one.

    ``job`` is the decorated job that runs, ``own_request`` is for a target that brings
    its own lock, ``request`` and ``configuration`` are for each tick. Raises
    ``InvalidLockConfiguration`` if nobody can hold that lock.
    """

    def __init__(self, entry: Entry):
        self.entry = entry
        self.job = find_job(entry)
        self.own_request = self._own_request()
        self.request = request = self._request()
        if request is not None and request.provider not in conf.PROVIDERS.value:
            raise InvalidLockConfiguration(
                f"Lock {request.name!r}: {request.provider!r} is not in "
                "SHEDLOCK_PROVIDERS."
            )
        self.configuration = None if request is None else request.configuration()

    @property
    def call(self) -> str:
        """What runs, with its arguments, but without the options of its lock."""
        entry = self.entry
        if entry.function is locked_command:
            entry = replace(entry, kwargs=command_options(entry.kwargs))
        return entry.call

    @property
    def target(self) -> str:
        """What runs: the path of a function, or the name of a command."""
        if self.entry.function in (locked_command, call_command):
            return f"manage.py {self.entry.args[0]}"
        return self.entry.path if self.job is None else self.job.path

    def _own_request(self) -> LockRequest | None:
        entry = self.entry
        if entry.function is locked_command:
            return command_request(*entry.args, **entry.kwargs)
        if self.job is None:
            return None
        if entry.function is call_command:
            return self.job.request
        return self.job.request_for(tuple(entry.args), entry.kwargs)

    def _request(self) -> LockRequest | None:
        if not locks_all_entries():
            return self.own_request
        if self.own_request is None:
            return request_for(self.entry)
        return with_schedule(self.own_request, schedule_of(self.entry))
