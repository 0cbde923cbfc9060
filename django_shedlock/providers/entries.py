"""
Locks in a store that can compare a record and set it in one step.

Such a store reads and writes records, lists their names and tells the time. All else is
here: what a record is, and what each step makes of it.
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Self

from django.conf import settings
from django.core.checks import CheckMessage, Warning
from django.utils import timezone

from django_shedlock.clocks import EARLIEST, LATEST
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder, LockState, LockStatus, state_of
from django_shedlock.providers.base import ALL_LOCKS, LockProvider, LockQuery
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import from_text, to_text

Read = tuple["Entry | None", Any, float]
"""The entry of a lock, if it has one, its version, and the clock."""
Reads = Iterable[tuple[str, Callable[[], Read]]]
"""The names of locks, and what reads each."""
LARGEST = 2**63
"""What is not below it is neither an instant nor a token."""


def readable_number(value: float) -> float:
    """Return the number, if one can count with it; else raise ``ValueError``."""
    if not abs(value) < LARGEST:  # as if it is no number
        raise ValueError(f"the number {str(value)[:30]} is none of a lock")
    return value


@dataclass(frozen=True)
class Entry:
    """
    The record of a lock. Instants are seconds of the store's clock.

    ``ticks`` is the text of ``schedules.state``. ``extended_at`` is when the holder
    extended its lease last.
    """

    locked_by: str
    locked_at: float
    lock_until: float
    lock_at_least_until: float
    fencing_token: int = 0
    is_released: bool = False
    extended_at: float | None = None
    ticks: str = ""

    @classmethod
    def free(cls, now: float) -> Self:
        """Return the entry of a lock that nobody ever held."""
        return cls("", now, now, now, is_released=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the entry of ``to_json()``; ``ValueError`` if it is none."""
        try:
            entry = cls(**json.loads(text))
            for name, value in asdict(entry).items():
                if name in {"locked_by", "ticks"}:
                    value.encode()  # as whoever prints it does
                elif not (value is None and name == "extended_at"):
                    readable_number(value)
        except (AttributeError, RecursionError, TypeError) as error:
            flaw = f"{text[:80]!r} is no record of a lock: {error}"
            raise ValueError(flaw) from error
        return entry

    def to_json(self) -> str:
        """Return the entry as a text that other programs can read, too."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def belongs_to(self, lock: Lock) -> bool:
        """Return whether ``lock`` was acquired last, and is not released."""
        return self.locked_by == lock.locked_by and not self.is_released

    def state(self, now: float) -> LockState:
        """Return the lock's state at ``now``."""
        is_held = self.lock_until > now
        return state_of(self.locked_by, is_held=is_held, is_released=self.is_released)

    def acquired(
        self, locked_by: str, now: float, at_most: timedelta, at_least: timedelta = ZERO
    ) -> "Entry":
        """Return the entry of the acquisition that follows this one."""
        return Entry(
            locked_by=locked_by,
            locked_at=now,
            lock_until=now + at_most.total_seconds(),
            lock_at_least_until=now + at_least.total_seconds(),
            fencing_token=self.fencing_token + 1,
            ticks=self.ticks,
        )

    def status(self, name: str, now: float, clock: datetime) -> LockStatus:
        """
        Return the status at ``now``, when the wall clock was ``clock``.

        Raises ``ValueError`` for ticks that nobody can read.
        """

        def moment(seconds: float) -> datetime:
            try:
                then = clock + timedelta(seconds=seconds - now)
            except OverflowError:
                return LATEST if seconds > now else EARLIEST
            return min(max(then, EARLIEST), LATEST)

        beat = self.extended_at
        return LockStatus(
            name=name,
            state=self.state(now),
            locked_by=self.locked_by,
            locked_at=moment(self.locked_at),
            lock_until=moment(self.lock_until),
            remaining=max(moment(self.lock_until) - clock, ZERO),
            clock=clock,
            schedule_state=from_text(self.ticks),
            fencing_token=self.fencing_token,
            heartbeat_at=None if beat is None else moment(beat),
        )


class EntryLockProvider(LockProvider):
    """
    Keeps each lock as one ``Entry``, and changes it by compare-and-set.

    A store needs only ``read()``, ``write()``, ``names()`` and ``clock()``. Each may
    raise ``LockProviderError``; ``read()`` also ``ValueError``, for a record that is no
    ``Entry``.
    """

    keeps_ticks = True

    @abstractmethod
    def read(self, name: str) -> Read:
        """Return what the store has of a lock."""

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

    # What follows needs no override, unless the store can do it in fewer steps.

    def wall_clock(self, now: float) -> datetime:
        """Return the instant of ``clock()`` as a ``datetime``; aware, in UTC."""
        return datetime.fromtimestamp(now, UTC)

    def read_all(self, names: Collection[str] | None) -> Reads:
        """Return the names of these locks, or of all of them, and what reads each."""
        for name in self.names() if names is None else names:
            yield name, partial(self.read, name)

    # Each change is computed anew if somebody else wrote first.

    def acquire(self, lock: Lock) -> LockHolder | None:
        wanted = lock.configuration
        at_most, at_least = wanted.lock_at_most_for, lock.lock_at_least_for
        with self._readable(lock.name):
            while True:
                found, version, now = self.read(lock.name)
                entry = found or Entry.free(now)
                # Our own, if the store did not tell that it had written it.
                if entry.belongs_to(lock) and entry.lock_until > now:
                    break
                clock, decision = self.wall_clock(now), None
                status = entry.status(lock.name, now, clock)
                if wanted.schedule is not None:
                    decision = status.schedule_state.decide(
                        wanted.start, wanted.schedule, wanted.grace, clock
                    )
                refusal = status.refusal(wanted.start, decision)
                if refusal is not None:
                    return refusal
                new = entry.acquired(lock.locked_by, now, at_most, at_least)
                if decision is not None:
                    lock.tick, lock.former_ticks = decision.tick, entry.ticks
                    new = replace(new, ticks=to_text(decision.state))
                if self.write(lock.name, new, version):
                    break
        lock.former_ticks = None
        return None

    def extend(self, lock: Lock, *durations: timedelta, is_beat: bool = False) -> bool:
        with self._readable(lock.name):
            while True:
                entry, version, now = self.read(lock.name)
                if not entry or not entry.belongs_to(lock) or entry.lock_until <= now:
                    return False
                ends, *kept = (now + each.total_seconds() for each in durations)
                until = max(entry.lock_until, ends)
                longer = replace(entry, lock_until=until, extended_at=now)
                if kept:
                    longer = replace(longer, lock_at_least_until=kept[0])
                if self.write(lock.name, longer, version):
                    return True

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        was_tried = lock.was_release_tried
        with self._readable(lock.name):
            while True:
                entry, version, now = self.read(lock.name)
                if entry is None or not entry.belongs_to(lock):
                    # After a lost reply, our own first try may have released it.
                    is_ours = entry is not None and entry.locked_by == lock.locked_by
                    return was_tried and is_ours
                was_tried = True
                # If the clock was set back, keep it no longer than if acquired now.
                longest = now + lock.lock_at_least_for.total_seconds()
                until = max(now, min(entry.lock_at_least_until, longest))
                over = replace(entry, lock_until=until, is_released=True)
                if lock.former_ticks is not None:
                    over = replace(over, ticks=lock.former_ticks)
                elif succeeded and lock.tick is not None:
                    ticks = to_text(from_text(entry.ticks).after_success())
                    over = replace(over, ticks=ticks)
                if self.write(lock.name, over, version):
                    return True

    def replace(
        self, status: LockStatus, lasting: timedelta, *, locked_by: str | None = None
    ) -> bool:
        name = status.name
        with self._readable(name):
            while True:
                entry, version, now = self.read(name)
                if entry is None or entry.locked_by != status.locked_by:
                    return False
                if not lasting:
                    if entry.state(now) is LockState.FREE:
                        return False
                    over = replace(entry, lock_until=now, lock_at_least_until=now)
                    new = replace(over, is_released=True)
                elif entry.lock_until <= now:
                    return False
                elif locked_by is not None:
                    new = entry.acquired(locked_by, now, lasting)
                else:
                    until = max(entry.lock_until, now + lasting.total_seconds())
                    new = replace(entry, lock_until=until)
                if self.write(name, new, version):
                    return True

    def register(self, name: str, schedule: Schedule) -> None:
        with self._readable(name):
            while True:
                found, version, now = self.read(name)
                entry = found or Entry.free(now)
                if entry.lock_until > now and not entry.is_released:
                    return
                status = entry.status(name, now, self.wall_clock(now))
                new = replace(entry, ticks=to_text(status.registered(schedule)))
                if new == entry or self.write(name, new, version):
                    return

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise LockProviderError(
                f"The record of lock {name!r} in the provider {self.alias!r} can't be "
                f"read: {error}. Correct or delete it."
            ) from error

    def now(self) -> datetime:
        moment = self.wall_clock(self.clock())
        return moment if settings.USE_TZ else timezone.make_naive(moment)

    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        # A name that is no UTF-8 is shown as "\xff", and found only among all.
        is_odd = any("\\x" in name for name in query.names or ())
        reads = self.read_all(None if is_odd else query.names)
        found = (self._status(*each) for each in reads)
        return iter(query.select(each for each in found if each is not None))

    def status(self, name: str) -> LockStatus | None:
        return self._status(name, partial(self.read, name))

    def _status(self, name: str, read: Callable[[], Read]) -> LockStatus | None:
        try:
            entry, _, now = read()
            clock = self.wall_clock(now)
            return entry.status(name, now, clock).checked() if entry else None
        except ValueError as error:
            free, clock = LockState.FREE, self.wall_clock(self.clock())
            unknown = LockStatus(name, free, "", clock, clock, ZERO, clock)
            return unknown.as_unreadable(str(error))

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        try:
            self.clock()
        except LockProviderError as error:
            hint = "No job with a lock runs while its store is unreachable."
            return [Warning(str(error), hint=hint, id="shedlock.W005")]
        return []
