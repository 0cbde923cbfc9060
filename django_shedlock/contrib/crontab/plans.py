"""Which lock an entry will run under, and how often it ticks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from django.core.management import call_command

from django_shedlock import conf
from django_shedlock.calls import scheduled
from django_shedlock.configuration import LockConfiguration
from django_shedlock.contrib.crontab.apps import locks_all_entries
from django_shedlock.contrib.crontab.commands import command_request, locked_command
from django_shedlock.contrib.crontab.entries import Entry
from django_shedlock.contrib.crontab.requests import request_for, schedule_of
from django_shedlock.contrib.crontab.targets import find_job
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.jobs import Job
from django_shedlock.options import LockRequest
from django_shedlock.schedules import Schedule


@dataclass(frozen=True)
class Plan:
    """
    An entry whose target can be imported and its lock, if it has one.

    Raises ``InvalidLockConfiguration`` if that is no lock that anybody could hold.
    """

    entry: Entry

    def __post_init__(self) -> None:
        if (
            self.request is not None
            and self.request.provider not in conf.PROVIDERS.value
        ):
            raise InvalidLockConfiguration(
                f"Lock {self.request.name!r}: {self.request.provider!r} is not in "
                "SHEDLOCK_PROVIDERS."
            )
        _ = self.configuration

    @cached_property
    def job(self) -> Job | None:
        """The decorated job that is run."""
        return find_job(self.entry)

    @cached_property
    def request(self) -> LockRequest | None:
        """What is asked for at each tick."""
        own = self.own_request
        if own is None:
            return request_for(self.entry) if locks_all_entries() else None
        return scheduled(own, schedule_of(self.entry)) if locks_all_entries() else own

    @cached_property
    def own_request(self) -> LockRequest | None:
        """What the target asks for, if it brings its own lock."""
        if self.entry.function is locked_command:
            return command_request(*self.entry.args, **self.entry.kwargs)
        return None if self.job is None else self._request_of(self.job)

    @cached_property
    def configuration(self) -> LockConfiguration | None:
        """The full name and the durations."""
        return None if self.request is None else self.request.configuration()

    @cached_property
    def interval(self) -> timedelta:
        """The shortest time between two ticks."""
        return Schedule(self.entry.time).interval

    @property
    def target(self) -> str:
        """What runs: the path of a function, or the name of a command."""
        if self.entry.function in (locked_command, call_command):
            return f"manage.py {self.entry.args[0]}"
        return self.entry.path if self.job is None else self.job.path

    def _request_of(self, job: Job) -> LockRequest:
        if self.entry.function is call_command:
            return job.request
        return job.request_for(tuple(self.entry.args), self.entry.kwargs)
