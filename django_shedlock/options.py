"""The options of a lock, the same for the decorator, hold() and execute()."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

from django_shedlock import conf
from django_shedlock.configuration import (
    LockConfiguration,
    check_lock_at_least_for,
    check_name,
    parse_option,
)
from django_shedlock.durations import Duration
from django_shedlock.exceptions import InvalidLockConfiguration


class LockOptions(TypedDict, total=False):
    """
    What may be given by keyword.

    ``lock_at_most_for`` and ``lock_at_least_for`` come from the settings if missing.
    ``keep_alive`` extends the lease while the body runs; if missing, the provider
    decides. ``wait`` is how long to wait for a lock that somebody else holds.
    ``history`` tells whether runs are recorded; if missing, the settings decide.
    """

    lock_at_most_for: Duration | None
    lock_at_least_for: Duration | None
    provider: str
    keep_alive: bool | None
    wait: Duration
    history: bool | None


@dataclass(frozen=True)
class LockRequest:
    """
    A name and options as they were written, checked as far as no setting is needed.

    Raises ``InvalidLockConfiguration`` if they cannot work under any settings.
    """

    name: str
    lock_at_most_for: Duration | None = None
    lock_at_least_for: Duration | None = None
    provider: str = "default"
    keep_alive: bool | None = None
    wait: Duration = 0
    history: bool | None = None

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

    def configuration(self) -> LockConfiguration:
        """
        Return what to ask the provider for, with the settings' defaults.

        Raises ``InvalidLockConfiguration`` if the two do not go together.
        """
        at_most = self._given("lock_at_most_for")
        at_least = self._given("lock_at_least_for")
        return LockConfiguration(
            full_name(self.name),
            default_duration(conf.LOCK_AT_MOST_FOR) if at_most is None else at_most,
            default_duration(conf.LOCK_AT_LEAST_FOR) if at_least is None else at_least,
            history=self.history,
        )


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


def full_name(name: str) -> str:
    """Return ``name`` as it stands in the store, with the namespace."""
    namespace = conf.NAMESPACE.value
    return f"{namespace}.{name}" if namespace else name


def default_duration(setting: conf.Setting[Duration]) -> timedelta:
    """Return the setting's duration, or raise ``InvalidLockConfiguration``."""
    return parse_option(setting.name, "default", setting.value)
