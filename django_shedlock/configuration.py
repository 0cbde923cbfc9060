"""A lock's configuration, and what is refused in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django_shedlock.durations import Duration, format_duration, parse_duration
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.occasions import Occasion

LONGEST_NAME = 255
ZERO = timedelta(0)


@dataclass(frozen=True, init=False)
class LockConfiguration:
    """
    One lock's parameters: its full name, and any durations.

    ``history`` tells whether its runs are recorded; with ``None`` the settings decide.
    ``occasion`` tells for which tick of a schedule the lock is asked for, if for any.
    Raises ``InvalidLockConfiguration`` if nobody could hold such a lock.
    """

    name: str
    lock_at_most_for: timedelta
    lock_at_least_for: timedelta
    history: bool | None
    occasion: Occasion

    def __init__(
        self,
        name: str,
        lock_at_most_for: Duration,
        lock_at_least_for: Duration = ZERO,
        *,
        history: bool | None = None,
        occasion: Occasion = Occasion(),  # noqa: B008
    ):
        check_name(name)
        at_most = parse_option(name, "lock_at_most_for", lock_at_most_for)
        at_least = parse_option(name, "lock_at_least_for", lock_at_least_for)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "lock_at_most_for", at_most)
        object.__setattr__(self, "lock_at_least_for", at_least)
        object.__setattr__(self, "history", history)
        object.__setattr__(self, "occasion", occasion)
        self._check()

    @property
    def lease(self) -> str:
        """``lock_at_most_for`` as people write it."""
        return format_duration(self.lock_at_most_for)

    def _check(self) -> None:
        check_lease(self.name, self.lock_at_most_for)
        check_lock_at_least_for(self.name, self.lock_at_least_for)
        if self.lock_at_least_for > self.lock_at_most_for:
            raise InvalidLockConfiguration(
                f"Lock {self.name!r}: lock_at_least_for "
                f"({format_duration(self.lock_at_least_for)}) is longer than "
                f"lock_at_most_for ({format_duration(self.lock_at_most_for)}). "
                "Shorten the first, or lengthen the second."
            )


def check_name(name: object) -> None:
    """Raise ``InvalidLockConfiguration`` unless every store can keep ``name``."""
    if not isinstance(name, str):
        problem = f"is a {type(name).__name__}, not a str"
    elif not name.strip():
        problem = "is blank"
    elif name != name.strip():
        # MySQL and MariaDB ignore spaces at the end when they compare keys.
        problem = "begins or ends with white space"
    elif not name.isprintable():
        problem = "contains characters that cannot be printed"
    elif len(name) > LONGEST_NAME:
        problem = f"has {len(name)} characters; at most {LONGEST_NAME} are allowed"
    else:
        return
    raise InvalidLockConfiguration(f"Lock name {name!r} {problem}.")


def check_lease(name: str, lock_at_most_for: timedelta) -> None:
    """Raise ``InvalidLockConfiguration`` unless the lease is a positive time."""
    if lock_at_most_for <= ZERO:
        raise InvalidLockConfiguration(
            f"Lock {name!r}: lock_at_most_for ({format_duration(lock_at_most_for)}) "
            "must be positive: it ends the lease of a holder that died."
        )


def check_lock_at_least_for(name: str, lock_at_least_for: timedelta) -> None:
    """Raise ``InvalidLockConfiguration`` if ``lock_at_least_for`` is negative."""
    if lock_at_least_for < ZERO:
        raise InvalidLockConfiguration(
            f"Lock {name!r}: lock_at_least_for "
            f"({format_duration(lock_at_least_for)}) must not be negative."
        )


def parse_option(name: str, option: str, value: Duration) -> timedelta:
    """Return the duration, or raise ``InvalidLockConfiguration`` naming the lock."""
    try:
        return parse_duration(value)
    except ValueError as error:
        raise InvalidLockConfiguration(f"Lock {name!r}: {option}: {error}.") from error
