"""Locks in this process's memory: for tests, and for projects of one process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from weakref import WeakSet

from django.utils import timezone

from django_shedlock.clocks import host_now
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder, LockState, LockStatus, state_of
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState


@dataclass
class _Entry:
    locked_by: str
    locked_at: float
    lock_until: float
    lock_at_least_until: float
    fencing_token: int
    is_released: bool = False
    ticks: ScheduleState = field(default_factory=ScheduleState)

    @classmethod
    def free(cls, now: float) -> _Entry:
        """Return the entry of a lock that nobody ever held."""
        return cls("", now, now, now, fencing_token=0, is_released=True)

    def next(self, lock: Lock, now: float, ticks: ScheduleState) -> _Entry:
        """Return the entry of the acquisition that follows this one."""
        configuration = lock.configuration
        return _Entry(
            locked_by=lock.locked_by,
            locked_at=now,
            lock_until=now + configuration.lock_at_most_for.total_seconds(),
            lock_at_least_until=now + configuration.lock_at_least_for.total_seconds(),
            fencing_token=self.fencing_token + 1,
            ticks=ticks,
        )


class MemoryLockProvider(LockProvider):
    """
    Excludes the threads and tasks of one process, by its monotonic clock.

    Other processes have their own locks, so it guards nothing between pods. A forked
    child begins with none. Ticks are chosen by its wall clock.
    """

    keeps_ticks = True

    def __init__(self, alias: str, *, keep_alive: bool = False):
        super().__init__(alias, keep_alive=keep_alive)
        self.forget()
        _instances.add(self)

    def forget(self) -> None:
        """Forget the locks: a forked child is another process, and has its own."""
        self._entries: dict[str, _Entry] = {}
        self._mutex = threading.Lock()

    def take(self, lock: Lock) -> LockHolder | None:
        """See LockProvider.take()."""
        start = lock.configuration.start
        with self._mutex:
            now = time.monotonic()
            entry = self._entries.setdefault(lock.name, _Entry.free(now))
            has_ticks = start.schedule is not None
            decision = entry.ticks.decide(start, host_now()) if has_ticks else None
            refusal = _status(lock.name, entry).refusal(start, decision)
            if refusal is not None:
                return refusal
            lock.tick = decision.tick if decision else None
            ticks = decision.state if decision else entry.ticks
            self._entries[lock.name] = entry.next(lock, now, ticks)
            return None

    def take_over(self, lock: Lock, locked_by: str) -> bool:
        """See LockProvider.take_over()."""
        with self._mutex:
            entry = self._held(lock.name, locked_by)
            if entry is None:
                return False
            now = time.monotonic()
            self._entries[lock.name] = entry.next(lock, now, entry.ticks)
            return True

    def extend(
        self,
        lock: Lock,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta | None = None,
    ) -> bool:
        """See LockProvider.extend()."""
        with self._mutex:
            entry = self._held(lock.name, lock.locked_by)
            if entry is None or entry.is_released:
                return False
            if lock_at_least_for is not None:
                at_least = lock_at_least_for.total_seconds()
                entry.lock_at_least_until = time.monotonic() + at_least
            return _extend(entry, lock_at_most_for)

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See LockProvider.release()."""
        with self._mutex:
            entry = self._entries.get(lock.name)
            if entry is None or entry.locked_by != lock.locked_by or entry.is_released:
                return False
            entry.lock_until = max(time.monotonic(), entry.lock_at_least_until)
            entry.is_released = True
            if succeeded and lock.tick is not None:
                entry.ticks = entry.ticks.after_success()
            return True

    def fencing_token(self, lock: Lock) -> int | None:
        """See LockProvider.fencing_token()."""
        with self._mutex:
            entry = self._entries.get(lock.name)
            if entry is None or entry.locked_by != lock.locked_by:
                return None
            return entry.fencing_token

    def register(self, name: str, schedule: Schedule) -> None:
        """See LockProvider.register()."""
        with self._mutex:
            now = time.monotonic()
            entry = self._entries.setdefault(name, _Entry.free(now))
            if entry.is_released or entry.lock_until <= now:
                entry.ticks = _status(name, entry).registered(schedule)

    def now(self) -> datetime:
        """See LockProvider.now(). It is this process's clock."""
        return timezone.now()

    def statuses(self, name: str | None = None) -> Sequence[LockStatus]:
        """See LockProvider.statuses()."""
        with self._mutex:
            return [
                _status(key, entry)
                for key, entry in sorted(self._entries.items())
                if name in {None, key}
            ]

    def force_release(
        self, name: str, *, running: bool = False, locked_by: str | None = None
    ) -> bool:
        """See LockProvider.force_release()."""
        with self._mutex:
            entry = self._entries.get(name)
            if entry is None or locked_by not in {None, entry.locked_by}:
                return False
            state = _status(name, entry).state
            is_kept_only = state is LockState.HELD_AT_LEAST
            if state is LockState.FREE or not (is_kept_only or running):
                return False
            entry.lock_until = entry.lock_at_least_until = time.monotonic()
            entry.is_released = True
            return True

    def force_extend(
        self, name: str, lock_at_most_for: timedelta, *, locked_by: str | None = None
    ) -> bool:
        """See LockProvider.force_extend()."""
        with self._mutex:
            entry = self._held(name, locked_by)
            return entry is not None and _extend(entry, lock_at_most_for)

    def _held(self, name: str, locked_by: str | None) -> _Entry | None:
        entry = self._entries.get(name)
        if entry is None or entry.lock_until <= time.monotonic():
            return None
        return entry if locked_by in {None, entry.locked_by} else None


_instances: WeakSet[MemoryLockProvider] = WeakSet()


def _forget_all() -> None:
    for provider in list(_instances):
        provider.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _extend(entry: _Entry, lock_at_most_for: timedelta) -> bool:
    lease_end = time.monotonic() + lock_at_most_for.total_seconds()
    entry.lock_until = max(entry.lock_until, lease_end)
    return True


def _status(name: str, entry: _Entry) -> LockStatus:
    now = time.monotonic()
    remaining = timedelta(seconds=max(0.0, entry.lock_until - now))
    return LockStatus(
        name=name,
        state=state_of(
            entry.locked_by,
            is_held=remaining > ZERO,
            is_released=entry.is_released,
        ),
        locked_by=entry.locked_by,
        locked_at=_wall_time(entry.locked_at - now),
        lock_until=_wall_time(entry.lock_until - now),
        remaining=remaining,
        clock=host_now(),
        schedule_state=entry.ticks,
        fencing_token=entry.fencing_token,
    )


def _wall_time(seconds_from_now: float) -> datetime:
    return datetime.fromtimestamp(time.time() + seconds_from_now, UTC)
