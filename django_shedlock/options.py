"""The options of a lock, the same for the decorator, hold() and execute()."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypedDict

from django.conf import settings

from django_shedlock import conf
from django_shedlock.configuration import (
    ZERO,
    LockConfiguration,
    check_lock_at_least_for,
    check_name,
    parse_option,
)
from django_shedlock.durations import Duration
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.occasions import Occasion
from django_shedlock.schedules import Schedule
from django_shedlock.triggers import Trigger


class LockOptions(TypedDict, total=False):
    """
    What may be given by keyword.

    ``lock_at_most_for`` and ``lock_at_least_for`` come from the settings if missing.
    ``keep_alive`` extends the lease while the body runs; if missing, the provider
    decides. ``wait`` is how long to wait for a lock that somebody else holds.
    ``schedule`` runs each of its ticks once, see ``Schedule``; a text is in the time
    zone of the settings. ``history`` tells whether runs are recorded; if missing, the
    settings decide.
    """

    lock_at_most_for: Duration | None
    lock_at_least_for: Duration | None
    provider: str
    keep_alive: bool | None
    wait: Duration
    schedule: Schedule | str | None
    history: bool | None


@dataclass(frozen=True)
class LockRequest:
    """
    A name and options as they were written, checked as far as no setting is needed.

    ``trigger`` is no option, since it may differ from call to call.
    Raises ``InvalidLockConfiguration`` if they cannot work under any settings.
    """

    name: str
    lock_at_most_for: Duration | None = None
    lock_at_least_for: Duration | None = None
    provider: str = "default"
    keep_alive: bool | None = None
    wait: Duration = 0
    schedule: Schedule | str | None = None
    history: bool | None = None
    trigger: Trigger = Trigger.SCHEDULER

    def __post_init__(self) -> None:
        check_name(self.name)
        self._check_durations()
        if not isinstance(self.provider, str):
            raise InvalidLockConfiguration(
                f"Lock {self.name!r}: provider ({self.provider!r}) must be an alias "
                "of SHEDLOCK_PROVIDERS."
            )
        self._check_switch("keep_alive")
        self._check_switch("history")
        _ = self.parsed_schedule
        if self.wait_duration < timedelta(0):
            raise InvalidLockConfiguration(
                f"Lock {self.name!r}: wait ({self.wait!r}) must not be negative."
            )

    def _check_durations(self) -> None:
        at_most = self._given("lock_at_most_for")
        at_least = self._given("lock_at_least_for")
        if at_most is not None:
            LockConfiguration(self.name, at_most, at_least or 0)
        elif at_least is not None:
            check_lock_at_least_for(self.name, at_least)

    def _check_switch(self, option: str) -> None:
        value = getattr(self, option)
        if not isinstance(value, bool | None):
            raise InvalidLockConfiguration(
                f"Lock {self.name!r}: {option} ({value!r}) must be True or False."
            )

    def _given(self, option: str) -> timedelta | None:
        value = getattr(self, option)
        return None if value is None else parse_option(self.name, option, value)

    @property
    def wait_duration(self) -> timedelta:
        """How long to wait for a lock that somebody else holds."""
        return parse_option(self.name, "wait", self.wait)

    @property
    def parsed_schedule(self) -> Schedule | None:
        """The schedule, perhaps without a time zone."""
        if self.schedule is None or isinstance(self.schedule, Schedule):
            return self.schedule
        return parse_schedule(self.name, self.schedule)

    def configuration(self) -> LockConfiguration:
        """
        Return what to ask the provider for, with the settings' defaults.

        Raises ``InvalidLockConfiguration`` if the two do not go together.
        """
        at_most = self._given("lock_at_most_for")
        occasion = self._occasion()
        return LockConfiguration(
            full_name(self.name),
            default_duration(conf.LOCK_AT_MOST_FOR) if at_most is None else at_most,
            # Kept after a run out of turn, the lock would skip the tick that follows.
            ZERO if occasion.is_out_of_turn else self._at_least(),
            history=self.history,
            occasion=occasion,
        )

    def _at_least(self) -> timedelta:
        given = self._given("lock_at_least_for")
        return default_duration(conf.LOCK_AT_LEAST_FOR) if given is None else given

    def _occasion(self) -> Occasion:
        schedule = self.parsed_schedule
        if schedule is None:
            return Occasion(self.trigger)
        if schedule.time_zone is None:
            schedule = replace(schedule, time_zone=settings.TIME_ZONE)
        return Occasion(self.trigger, schedule, default_duration(conf.GRACE))


def make_request(name: str, options: Mapping[str, Any]) -> LockRequest:
    """Return the request, or raise ``InvalidLockConfiguration``."""
    known = LockOptions.__annotations__
    for option in options:
        if option not in known:
            raise InvalidLockConfiguration(
                f"Lock {name!r}: unknown option {option!r}; there are "
                f"{', '.join(known)}."
            )
    return LockRequest(name, **options)


def parse_schedule(
    name: str, expression: str, time_zone: str | None = None
) -> Schedule:
    """Return the schedule, or raise ``InvalidLockConfiguration`` naming the lock."""
    try:
        return Schedule(expression, time_zone)
    except (ImportError, ValueError) as error:
        raise InvalidLockConfiguration(f"Lock {name!r}: schedule: {error}.") from error


def full_name(name: str) -> str:
    """Return ``name`` as it stands in the store, with the namespace."""
    namespace = conf.NAMESPACE.value
    return f"{namespace}.{name}" if namespace else name


def default_duration(setting: conf.Setting[Duration]) -> timedelta:
    """Return the setting's duration, or raise ``InvalidLockConfiguration``."""
    return parse_option(setting.name, "default", setting.value)
