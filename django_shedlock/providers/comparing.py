"""The base of providers whose store can compare a record and set it in one step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.core.checks import CheckMessage, Warning
from django.utils import timezone

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder, LockState, LockStatus
from django_shedlock.providers.base import ALL_LOCKS, LockProvider, LockQuery
from django_shedlock.providers.entries import Entry, unreadable_status, wall_clock
from django_shedlock.schedules.cron import Schedule

R = TypeVar("R")


class EntryLockProvider(LockProvider):
    """
    Keeps each lock as one ``Entry``, and changes it by compare-and-set.

    A store needs only ``read()``, ``write()``, ``names()`` and ``clock()``. Each may
    raise ``LockProviderError``; ``read()`` also ``ValueError``, for a record that is no
    ``Entry``.
    """

    keeps_ticks = True

    @abstractmethod
    def read(self, name: str) -> tuple[Entry | None, Any]:
        """Return the entry of a lock and its version; without an entry, ``None``."""

    @abstractmethod
    def write(self, name: str, entry: Entry, version: Any) -> bool:
        """
        Write the entry if that version is still the newest; return whether it was.

        It is one step: of two callers with one version only one may get ``True``.
        """

    @abstractmethod
    def names(self) -> Iterable[str]:
        """Return the names of all locks, in whatever order."""

    @abstractmethod
    def clock(self) -> float:
        """Return the seconds since 1970 by the one clock that all hosts ask."""

    def observe(self, name: str) -> tuple[Entry | None, Any, float]:
        """Return what ``read()`` does, and the clock after it, perhaps in one go."""
        entry, version = self.read(name)
        return entry, version, self.clock()

    def wall_clock(self, now: float) -> datetime:
        """Return the instant of ``clock()`` as a ``datetime``; aware, in UTC."""
        return wall_clock(now)

    def acquire(self, lock: Lock) -> LockHolder | None:
        def change(entry: Entry, now: float) -> Entry | LockHolder | None:
            # Our own, if the store did not tell that it had written it.
            if entry.belongs_to(lock) and entry.is_held(now):
                return None
            return entry.taken(lock, now, self.wall_clock(now))

        return self._change(lock.name, change)

    def extend(
        self,
        lock: Lock,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta | None = None,
        *,
        is_beat: bool = False,
    ) -> bool:
        def change(entry: Entry, now: float) -> Entry | bool:
            is_ours = entry.belongs_to(lock) and entry.is_held(now)
            return is_ours and entry.extended(now, lock_at_most_for, lock_at_least_for)

        return self._change(lock.name, change) is None

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        was_tried = lock.was_release_tried

        def change(entry: Entry, now: float) -> Entry | bool:
            nonlocal was_tried
            if entry.belongs_to(lock):
                was_tried = True
                return entry.released(lock, now, succeeded=succeeded)
            # Sent again after a lost reply, our own first try may have released it.
            return was_tried and entry.locked_by == lock.locked_by

        return self._change(lock.name, change) in {None, True}

    def register(self, name: str, schedule: Schedule) -> None:
        def change(entry: Entry, now: float) -> Entry:
            return entry.registered(name, schedule, now, self.wall_clock(now))

        self._change(name, change)

    def now(self) -> datetime:
        moment = self.wall_clock(self.clock())
        return moment if settings.USE_TZ else timezone.make_naive(moment)

    def status(self, name: str) -> LockStatus | None:
        return self._status(name)

    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        return iter(query.select(self.read_all(query.names)))

    def read_all(self, names: Collection[str] | None) -> Iterable[LockStatus]:
        """
        Return the locks of these names, or all of them, in whatever order.

        Override it where many can be read in one go.
        """
        found = map(self._status, self.names() if names is None else names)
        return [status for status in found if status is not None]

    def replace(
        self, status: LockStatus, lasting: timedelta, *, locked_by: str | None = None
    ) -> bool:
        def change(entry: Entry, now: float) -> Entry | bool:
            if entry.locked_by != status.locked_by:
                return False
            if not lasting:
                is_free = entry.state(now) is LockState.FREE
                return not is_free and entry.force_released(now)
            if not entry.is_held(now):
                return False
            if locked_by is None:
                return entry.lengthened(now, lasting)
            return entry.acquired(locked_by, now, lasting)

        return self._change(status.name, change) is None

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """See LockProvider.check_store(). It asks the store for its clock."""
        try:
            self.clock()
        except LockProviderError as error:
            hint = "No job with a lock runs while its store is unreachable."
            return [Warning(str(error), hint=hint, id="shedlock.W005")]
        return []

    def unreadable(self, name: str, error: ValueError) -> LockProviderError:
        """Return the error of a record that is no ``Entry``."""
        return LockProviderError(
            f"The record of lock {name!r} in the provider {self.alias!r} can't be "
            f"read: {error}. Correct or delete it."
        )

    def _change(
        self, name: str, change: Callable[[Entry, float], Entry | R]
    ) -> R | None:
        """
        Write what ``change`` makes of the entry, and return ``None``.

        It is asked again if somebody else wrote first. Anything but an entry is the
        answer, and nothing is written.
        """
        while True:
            entry, version, now = self._readable(name)
            before = entry or Entry.free(now)
            after = change(before, now)
            if not isinstance(after, Entry):
                return after
            if after is before or self.write(name, after, version):
                return None

    def _readable(self, name: str) -> tuple[Entry | None, Any, float]:
        try:
            return self.observe(name)
        except ValueError as error:
            raise self.unreadable(name, error) from error

    def _status(self, name: str) -> LockStatus | None:
        try:
            entry, _, now = self.observe(name)
        except ValueError as error:
            return unreadable_status(name, str(error), self.wall_clock(self.clock()))
        if entry is None:
            return None
        return entry.status(name, now, self.wall_clock(now))
