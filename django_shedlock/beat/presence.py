"""The lock of a beat itself, whose record says that the beat lives."""

from datetime import timedelta

from django_shedlock.clocks import aware, uptime
from django_shedlock.exceptions import LockProviderError, message_of
from django_shedlock.execution.keep_alive import release_later
from django_shedlock.locks.configuration import ZERO, LockConfiguration, full_name
from django_shedlock.locks.lock import Lock, own_host
from django_shedlock.locks.own import BEAT_LOCK_PREFIX
from django_shedlock.locks.status import LockState
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.signals import logger

PRESENCE_LEASE = timedelta(seconds=30)
DEAD_BEAT_AGE = timedelta(days=1)
"""After this time a starting beat deletes the record of a beat that was killed."""


class BeatPresence:
    """
    The lock ``shedlock.beat:HOST``, which the loop of the beat extends.

    No beat needs it: a second beat on a host works without one, and so does a beat
    whose lock can't be had. Each of them tries again when a lease could be over.
    """

    def __init__(self, provider: LockProvider):
        self._provider = provider
        self.configuration = LockConfiguration(
            full_name(f"{BEAT_LOCK_PREFIX}{own_host()}"), PRESENCE_LEASE, history=False
        )
        self._lock: Lock | None = None
        self._due = 0.0
        self._has_tidied = False

    def show(self) -> None:
        """
        Acquire or extend the lock if that is due.

        Raises ``LockProviderError`` if the store failed.
        """
        if uptime() < self._due:
            return
        if not self._has_tidied:
            self._tidy()
            self._has_tidied = True
        if self._lock is not None and not self._provider.extend(
            self._lock, PRESENCE_LEASE
        ):
            self._lock = None
        if self._lock is None:
            self._acquire()
        fraction = 1 if self._lock is None else 3
        self._due = uptime() + PRESENCE_LEASE.total_seconds() / fraction

    def _acquire(self) -> None:
        lock = Lock(
            self._provider, self.configuration, opens_run=False, has_deadline=True
        )
        try:
            if self._provider.acquire(lock) is None:
                self._lock = lock
        except LockProviderError as error:
            if error.is_uncertain:  # it may have been executed
                release_later(lock, was_acquired=False)
            raise

    def _tidy(self) -> None:
        pattern = f"{full_name(BEAT_LOCK_PREFIX)}*"
        for status in list(self._provider.statuses(LockQuery(patterns=(pattern,)))):
            age = aware(status.clock) - aware(status.lock_until)
            if status.state is LockState.FREE and age > DEAD_BEAT_AGE:
                self._provider.delete_unused(status.name, DEAD_BEAT_AGE)

    def end(self) -> None:
        """Delete the lock's record; if the store fails, log it."""
        if self._lock is None:
            return
        try:
            self._provider.release(self._lock)
            self._provider.delete_unused(self.configuration.name, ZERO)
        except LockProviderError as error:
            text = "The beat's own lock %r could not be deleted: %s"
            logger.warning(text, self.configuration.name, message_of(error))
        self._lock = None
