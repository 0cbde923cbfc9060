"""The contract that every provider fulfils."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter

from django.core.checks import CheckMessage

from django_shedlock.background import Timetable
from django_shedlock.clocks import aware
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import InvalidLockConfiguration, LockProviderError
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.patterns import matches_any
from django_shedlock.locks.status import LockHolder, LockState, LockStatus
from django_shedlock.schedules.cron import Schedule


@dataclass(frozen=True)
class LockQuery:
    """
    Which locks are wanted, in which order, and how many at most.

    A name must be one of ``names``, match one of ``patterns``, and match none of
    ``ignored``. The lock must be in one of ``states``, be overdue by ``overdue_by``,
    have a job that ``needs_look``, have ``passed_over`` ticks, or be ``requested``.
    Without these five, all locks are wanted. A record that can't be read may be
    overdue, so it is wanted then.

    The order is that of the names. With ``by_urgency``, it is that of
    ``LockStatus.urgency()``, and of equally urgent locks the oldest come first. With
    ``by_newest_start``, only locks with a schedule are wanted, and the one that was
    acquired last comes first.
    """

    names: Collection[str] | None = None
    patterns: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    states: Collection[LockState] = ()
    overdue_by: timedelta | None = None
    needs_look: bool = False
    """Does the job need a look, whatever its state? See ``LockStatus.needs_look``."""
    passed_over: bool = False
    """Did the newest acquisition pass over ticks? See ``LockStatus.passed_over``."""
    requested: bool = False
    """Did an operator ask for a run?"""
    by_urgency: bool = False
    by_newest_start: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.names is not None:
            object.__setattr__(self, "names", frozenset(self.names))

    def accepts_name(self, name: str) -> bool:
        """Return whether a lock of this name may be wanted."""
        is_named = self.names is None or name in self.names
        is_matched = not self.patterns or matches_any(name, self.patterns)
        return is_named and is_matched and not matches_any(name, self.ignored)

    def accepts(self, status: LockStatus) -> bool:
        """Return whether this lock is wanted."""
        wanted: list[object] = [status.state in self.states] if self.states else []
        if self.overdue_by is not None:
            wanted.append(status.unreadable or status.overdue_since(self.overdue_by))
        if self.needs_look:
            wanted.append(status.unreadable or status.needs_look)
        if self.passed_over:
            wanted.append(status.unreadable or status.passed_over)
        if self.requested:
            wanted.append(status.job.asked_at is not None)
        is_wanted = any(wanted) or not wanted
        if self.by_newest_start and status.schedule is None:
            return False
        return is_wanted and self.accepts_name(status.name)

    def select(self, statuses: Iterable[LockStatus]) -> list[LockStatus]:
        """Return the wanted locks of these, in the query's order: for small stores."""
        found = sorted(filter(self.accepts, statuses), key=attrgetter("name"))
        if self.by_urgency:
            found.sort(key=self._urgency)
        elif self.by_newest_start:
            found.sort(key=lambda status: aware(status.locked_at), reverse=True)
        return found[: self.limit]

    def _urgency(self, status: LockStatus) -> tuple[int, datetime]:
        return status.urgency(self.overdue_by), aware(status.locked_at)


ALL_LOCKS = LockQuery()


@dataclass(frozen=True)
class Place:
    """Where only one provider may keep its locks; ``text`` names it for people."""

    key: tuple[str, ...]
    text: str = field(compare=False)


class LockProvider(ABC):
    """
    A store of locks.

    One instance serves all threads of a process, so it keeps no state of a run. All
    times are by the store's clock. Every method raises ``LockProviderError`` if the
    store fails. The class attributes say what the store can do; its tests read them as
    well. ``keep_alive`` is the default of that option. ``history_database`` is the
    alias of the database with the runs, or ``None`` without a history.
    """

    keeps_ticks: bool = False
    """Does it give a lock with a schedule once for each tick?"""
    can_fence: bool = False
    """Can it hold up the caller's transaction? Only the caller's own database can."""
    deletes_records: bool = False
    """Can it delete a record, unless somebody has changed it since?"""
    is_shared: bool = True
    """Do other processes and hosts find the locks of this one?"""
    shortest_lease: timedelta = ZERO
    """How soon can the store end a lease?"""
    record_database: str | None = None
    """In which database are the records rows of ``LockRecord``? In none if ``None``."""

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
        self.heartbeats: Timetable = Timetable("keep alive")
        self.questions: Timetable = Timetable("questions")
        self.history: Timetable = Timetable("history", retries=False)

    @abstractmethod
    def acquire(self, lock: Lock) -> LockHolder | None:
        """
        Acquire the lock if its lease is over; return ``None``, or else the holder.

        If several callers try at once, one of them gets ``None``, and a greater fencing
        token than the acquisition before. A provider that keeps ticks lets
        ``ScheduleState`` decide by ``lock.configuration``, and sets ``lock.tick`` and
        ``lock.former_tick``.
        """

    @abstractmethod
    def extend(self, lock: Lock, *durations: timedelta) -> bool:
        """
        Extend the lease from now if ``lock`` still holds it; never shorten it.

        ``durations`` are ``lock_at_most_for`` and, if it changes,
        ``lock_at_least_for``, which also counts from now. Return whether ``lock`` still
        held a valid lease.
        """

    @abstractmethod
    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """
        Release the lock if ``lock`` holds it, or keep it for ``lock_at_least_for``.

        The release also accounts for the run. If the job ``succeeded``, its tick has
        succeeded as well; else the run counts as ``lock.failed_outcome``. If the body
        ``never_began``, there was no run: nothing is kept, and the tick and the request
        are open again. If ``lock.gives_tick_back``, the run has failed, and its tick is
        open again, once. A provider that keeps ticks lets ``ScheduleState`` decide
        that. Return whether ``lock`` was the holder.
        """

    @abstractmethod
    def account_for_loss(self, lock: Lock, *, has_ended: bool) -> None:
        """
        Account for a run that lost its lock, unless the record's last run is another.

        If the run was accounted for as abandoned, it becomes a lost one. If there is a
        record, this also writes which run lost the lock, and when it first did. It is
        called when the loss is noticed, and again when the body ``has_ended``. Until
        then nobody knows when the run ended.
        """

    @abstractmethod
    def now(self) -> datetime:
        """Return the store's clock; aware with ``USE_TZ``, as in Django."""

    @abstractmethod
    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        """Return the wanted locks. The store may be read as the caller iterates."""

    @abstractmethod
    def replace(
        self, status: LockStatus, lasting: timedelta, *, locked_by: str | None = None
    ) -> bool:
        """
        Give the lock another lease for an operator; return whether that was done.

        Change nothing unless ``status.locked_by``, the acquisition that was read, still
        has the lock. If ``lasting`` is ``ZERO``, release the lock, whether it is held
        or expired. Its job goes on, but an open run is accounted for as abandoned. Any
        other lease counts from now, needs a held lock, and never shortens the lease.
        With ``locked_by``, the lease belongs to that new acquisition and may be
        shorter: a pause replaces a pause.
        """

    @abstractmethod
    def request_run(self, name: str, by: str, why: str) -> None:
        """
        Write to the record that ``by`` asks for a run now, and ``why``.

        If there is no record, create it.
        """

    @abstractmethod
    def withdraw_request(self, name: str, asked_at: datetime) -> bool:
        """Close the request of ``asked_at`` if it is open; return whether it was."""

    @abstractmethod
    def note_unrecorded(self, name: str) -> None:
        """Write to the record that a run could not be written to the history."""

    # No store has to override the methods below. It may, if it can do better.

    def heartbeat(self, lock: Lock) -> bool:
        """Extend the lease as ``extend()`` does, but never wait long: others wait."""
        return self.extend(lock, lock.configuration.lock_at_most_for)

    def status(self, name: str) -> LockStatus | None:
        """Return the lock of this name; ``None`` without a record."""
        return next(iter(self.statuses(LockQuery(names=(name,)))), None)

    def lease_of(self, lock: Lock) -> LockStatus | None:
        """Return the status as far as the holder can rely on it after a fail-over."""
        return self.status(lock.name)

    def count(self, query: LockQuery = ALL_LOCKS) -> int:
        """Return the number of the wanted locks."""
        return sum(1 for _ in self.statuses(query))

    def register(
        self, name: str, schedule: Schedule, since: datetime | None = None
    ) -> None:
        """
        Register a new schedule for the lock, unless its job is running.

        It owes the ticks after ``since``, by default from now on.
        ``LockStatus.registered()`` says what becomes of its ticks.
        """
        return

    def delete_unused(self, name: str, unused_for: timedelta) -> bool:
        """
        Delete the record if nobody has used it for so long; return whether it did.

        A record is in use while a run is open or requested, and until ``unused_for``
        after the end of the last lease. Without ``deletes_records`` this does
        nothing.
        """
        return False

    def is_seen_here_only(self) -> bool:
        """Return whether no other thread sees the records, as in a ``TestCase``."""
        return False

    def fence(self, lock: Lock) -> bool:
        """
        Return whether ``lock`` holds it. If so, it does until the caller commits.

        Raises ``LockProviderError`` if the store can't do that: see ``can_fence``.
        """
        raise LockProviderError(
            f"Lock {lock.name!r}: the provider {self.alias!r} keeps its locks outside "
            "the transaction and can't fence it. Use fencing_token."
        )

    def record_of(self, name: str) -> str:
        """Return the place of the lock's record, for people who have to correct it."""
        return f"its record in the store of provider {self.alias!r}"

    def place(self) -> Place | None:
        """Return where the locks are; ``None`` if no other provider can use it."""
        return None

    def check(self) -> list[CheckMessage]:
        """Return what is wrong with the options; do not connect to the store."""
        return []

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """Return what is wrong with the store; only ``databases`` may be queried."""
        return []

    def check_configuration(self, configuration: LockConfiguration) -> None:
        """Raise ``InvalidLockConfiguration`` if the store can't have such a lock."""
        if configuration.schedule is not None and not self.keeps_ticks:
            raise InvalidLockConfiguration(
                f"Lock {configuration.name!r}: the provider {self.alias!r} keeps no "
                "ticks, so it can't run a schedule's once each. Leave `schedule` out."
            )
        if configuration.lock_at_most_for < self.shortest_lease:
            shortest = format_duration(self.shortest_lease)
            raise InvalidLockConfiguration(
                f"Lock {configuration.name!r}: {configuration.lease!r} is too short "
                f"for the provider {self.alias!r}, whose shortest lease is {shortest}."
            )
