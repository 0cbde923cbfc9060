"""The attempts to acquire locks while a test's block runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.signals import lock_acquired, lock_not_acquired


@dataclass
class Attempts:
    """The locks that were acquired, and the locks that were not, in order."""

    acquired: list[LockConfiguration] = field(default_factory=list)
    skipped: list[LockConfiguration] = field(default_factory=list)


@contextmanager
def attempts_here() -> Iterator[Attempts]:
    """Collect the attempts during the body, in all threads of this process."""
    attempts = Attempts()

    def add_acquired(lock: Lock, **kwargs: object) -> None:
        attempts.acquired.append(lock.configuration)

    def add_skipped(configuration: LockConfiguration, **kwargs: object) -> None:
        attempts.skipped.append(configuration)

    lock_acquired.connect(add_acquired)
    lock_not_acquired.connect(add_skipped)
    try:
        yield attempts
    finally:
        lock_acquired.disconnect(add_acquired)
        lock_not_acquired.disconnect(add_skipped)
