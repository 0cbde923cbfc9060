"""The contract of every provider."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage

from django_shedlock.clocks import aware
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import InvalidLockConfiguration, LockProviderError
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder, LockState, LockStatus
from django_shedlock.schedules.cron import Schedule


@dataclass(frozen=True)
class LockFilter:
    """Only locks whose names match a pattern, as in ``"import:*"``, and in a state."""

    patterns: tuple[str, ...] = ()
    state: LockState | None = None

    def accepts(self, status: LockStatus) -> bool:
        """Return whether this is such a lock."""
        from django_shedlock.patterns import matches  # which a job does not need

        is_in_state = self.state in {None, status.state}
        return is_in_state and matches(status.name, self.patterns)


@dataclass(frozen=True)
class Place:
    """Where a provider keeps its locks; ``text`` says it to people."""

    key: tuple[str, ...]
    text: str = field(compare=False)


class LockProvider(ABC):
    """
    A store of locks.

    One instance serves all threads of a process, so it keeps no state of a run. All
    times are by the store's own clock. Every method raises ``LockProviderError`` if the
    store fails. ``keep_alive`` is the default of the option of the same name.
    ``history_database`` is the alias of the database that gets a row for each run;
    ``None`` is nowhere.

    The class attributes say what the store can do. ``LockProviderContract`` in
    ``django_shedlock.test`` goes by them, too.
    """

    keeps_ticks: bool = False
    """Does it give a lock with a schedule once for each tick?"""
    is_shared: bool = True
    """Do other processes and hosts find the locks of this one?"""
    is_async: bool = False
    """Are ``atake()``, ``aextend()`` and ``arelease()`` the store's own coroutines?"""
    shortest_lease: timedelta = ZERO
    """The store can't end a lease sooner."""

    def __init__(
        self,
        alias: str,
        *,
        keep_alive: bool = False,
        history_database: str | None = None,
    ):
        self.alias = alias
        self.keeps_alive = keep_alive
        self.history_database = history_database

    def check_configuration(self, configuration: LockConfiguration) -> None:
        """
        Refuse what the store can't do.

        Raises ``InvalidLockConfiguration`` for a schedule, if it keeps no ticks, and
        for a ``lock_at_most_for`` below ``shortest_lease``.
        """
        if configuration.schedule is not None and not self.keeps_ticks:
            raise InvalidLockConfiguration(
                f"Lock {configuration.name!r}: the provider {self.alias!r} keeps no "
                "ticks, so it can't run a schedule's once each. Leave `schedule` out."
            )
        if configuration.lock_at_most_for < self.shortest_lease:
            raise InvalidLockConfiguration(
                f"Lock {configuration.name!r}: lock_at_most_for="
                f"{configuration.lease!r} is too short for the provider "
                f"{self.alias!r}, whose shortest lease is "
                f"{format_duration(self.shortest_lease)}."
            )

    def acquire(self, configuration: LockConfiguration) -> Lock | LockHolder:
        """
        Return the lock, or its holder. Never wait for it.

        Raises ``InvalidLockConfiguration``, see check_configuration().
        """
        self.check_configuration(configuration)
        lock = Lock(self, configuration)
        return self.take(lock) or lock

    @abstractmethod
    def take(self, lock: Lock) -> LockHolder | None:
        """
        Acquire the lock if its lease is over; return ``None``, or the holder.

        Of all callers that ask for one name at once, one gets ``None``. A provider that
        keeps ticks lets ``ScheduleState`` decide by ``lock.configuration.start``, and
        sets ``lock.tick``.
        """

    async def atake(self, lock: Lock) -> LockHolder | None:
        """See take()."""
        return await sync_to_async(self.take)(lock)

    def take_over(self, lock: Lock, locked_by: str) -> bool:
        """
        Acquire the lock that ``locked_by`` holds; return whether it was so.

        Override it where that can be one step: between these two a job may come.
        """
        was_held = self.force_release(lock.name, running=True, locked_by=locked_by)
        return was_held and self.take(lock) is None

    @abstractmethod
    def extend(
        self,
        lock: Lock,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta | None = None,
    ) -> bool:
        """
        Extend a lease that is valid and still of ``lock``, from now; never shorten it.

        ``lock_at_least_for`` counts from now, too; with ``None`` it stays as it was.
        Return whether the lease was still of ``lock``.
        """

    async def aextend(
        self,
        lock: Lock,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta | None = None,
    ) -> bool:
        """See extend()."""
        extend = sync_to_async(self.extend)
        return await extend(lock, lock_at_most_for, lock_at_least_for)

    def keep_alive(self, lock: Lock, lock_at_most_for: timedelta) -> bool:
        """See extend(). Never wait long: other locks wait for the same heartbeat."""
        return self.extend(lock, lock_at_most_for)

    @abstractmethod
    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """
        Release the lock, or keep it until ``lock_at_least_for`` is over.

        If its job ``succeeded``, so has its tick. Change nothing if ``lock`` does not
        hold it any more; return whether it did.
        """

    async def arelease(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See release()."""
        return await sync_to_async(self.release)(lock, succeeded=succeeded)

    @abstractmethod
    def fencing_token(self, lock: Lock) -> int | None:
        """
        Return the number of this acquisition, or ``None`` if another one followed.

        It grows with each acquisition of a name.
        """

    def fence(self, lock: Lock) -> bool:
        """
        Let the caller's transaction commit only if the lock is still of ``lock``.

        Return whether it is. Only a store that is the caller's own database can.
        """
        raise LockProviderError(
            f"Lock {lock.name!r}: the provider {self.alias!r} keeps its locks outside "
            f"the transaction and can't fence it. Use fencing_token."
        )

    @abstractmethod
    def now(self) -> datetime:
        """Return the store's clock; aware with ``USE_TZ``, as Django's own is."""

    @abstractmethod
    def statuses(self, name: str | None = None) -> Sequence[LockStatus]:
        """Return all locks, or the one of this name, in the order of their names."""

    def statuses_of(self, names: Collection[str]) -> Sequence[LockStatus]:
        """Return the locks of these names, in the order of their names."""
        wanted = set(names)
        return [status for status in self.statuses() if status.name in wanted]

    def candidates(
        self,
        grace: timedelta,
        *,
        limit: int | None = None,
        ignored: Collection[str] = (),
    ) -> Sequence[LockStatus]:
        """
        Return only the locks that are held, expired, unreadable, overdue by ``grace``.

        The overdue ones come first, then the expired ones, then the running ones, and
        in each group those that were acquired longest ago. ``limit`` is their number at
        the most. Names that match a pattern in ``ignored`` are left out.
        """
        from django_shedlock.patterns import matches_any  # see LockFilter

        found = [
            status
            for status in self.statuses()
            if status.is_candidate(grace) and not matches_any(status.name, ignored)
        ]
        return most_urgent(found, grace, limit)

    def count(self) -> int:
        """Return the number of locks."""
        return len(self.statuses())

    def state_counts(self) -> dict[LockState, int]:
        """Return the number of locks in each state."""
        found = Counter(status.state for status in self.statuses())
        return {state: found[state] for state in LockState}

    def late(
        self,
        grace: timedelta | None,
        held_for: timedelta | None = None,
        *,
        limit: int | None = None,
    ) -> Sequence[LockStatus]:
        """
        Return only the locks that are overdue by ``grace`` or run for ``held_for``.

        ``None`` leaves those out. See candidates() for the order and the ``limit``.
        """
        found = [
            status for status in self.statuses() if status.is_late(grace, held_for)
        ]
        return most_urgent(found, grace, limit)

    def iter_statuses(self, wanted: LockFilter) -> Iterator[LockStatus]:
        """
        Return the wanted locks, in the order of their names.

        Override it where there may be more locks than one would read at once.
        """
        return filter(wanted.accepts, self.statuses())

    def register(self, name: str, schedule: Schedule) -> None:
        """
        Register the lock's schedule, which has a time zone.

        ``LockStatus.registered()`` decides what is due then. Nothing changes if the
        lock has this schedule, or if its job runs. A provider that keeps no ticks does
        nothing.
        """
        return

    def remaining(self, lock: Lock) -> timedelta:
        """Return what is left of the lease of ``lock``; zero if it is not held."""
        for status in self.statuses(lock.name):
            if status.locked_by == lock.locked_by and status.state.is_running:
                return status.remaining
        return ZERO

    @abstractmethod
    def force_release(
        self, name: str, *, running: bool = False, locked_by: str | None = None
    ) -> bool:
        """
        Release a lock that only ``lock_at_least_for`` keeps; return whether it was one.

        With ``running`` also one whose job runs, and one that has expired, whose job
        may run: the job is not stopped. With ``locked_by`` only if it is still that
        acquisition's.
        """

    @abstractmethod
    def force_extend(
        self, name: str, lock_at_most_for: timedelta, *, locked_by: str | None = None
    ) -> bool:
        """
        Extend the lease of a held lock from now; never shorten it.

        Return whether it was held (by ``locked_by``, if given).
        """

    def record_of(self, name: str) -> str:
        """Return where the lock's record is, for people who have to correct it."""
        return f"its record in the store of provider {self.alias!r}"

    def place(self) -> Place | None:
        """
        Return where the locks are; ``None`` if no other provider's can be there.

        A system check refuses two providers with equal places.
        """
        return None

    def check(self) -> list[CheckMessage]:
        """Return what is wrong with the options, without a look at the store."""
        return []

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """Return what is wrong with the store; ``databases`` may be asked."""
        return []


def most_urgent(
    statuses: Iterable[LockStatus], grace: timedelta | None, limit: int | None
) -> Sequence[LockStatus]:
    """Return these locks in the order of ``candidates()``, so many at the most."""
    ordered = sorted(statuses, key=partial(_urgency, grace))
    return list(islice(ordered, limit))


def _urgency(grace: timedelta | None, status: LockStatus) -> tuple[int, datetime, str]:
    ranks = {LockState.EXPIRED: 1, LockState.RUNNING: 2}
    is_overdue = grace is not None and status.overdue_since(grace) is not None
    rank = 0 if is_overdue else ranks.get(status.state, 3)
    return rank, aware(status.locked_at), status.name
