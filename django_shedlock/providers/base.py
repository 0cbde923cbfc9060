"""The contract of every provider."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
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
    Which locks are wanted, in which order, and how many at the most.

    A name must be one of ``names``, match one of ``patterns``, and none of ``ignored``.
    The lock must be in one of ``states``, be overdue by ``overdue_by`` (what can't be
    read may be), have a job that ``needs_look``, or be ``requested``; without these,
    all are wanted. The order is that of the names or, ``by_urgency``, that of
    ``LockStatus.urgency()``; of equally urgent locks the oldest come first.
    """

    names: Collection[str] | None = None
    patterns: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    states: Collection[LockState] = ()
    overdue_by: timedelta | None = None
    needs_look: bool = False
    """Is something to see but the state? See ``LockStatus.needs_look``."""
    requested: bool = False
    """Did an operator ask for a run?"""
    by_urgency: bool = False
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
        if self.requested:
            wanted.append(status.job.asked_at is not None)
        is_wanted = any(wanted) or not wanted
        return is_wanted and self.accepts_name(status.name)

    def select(self, statuses: Iterable[LockStatus]) -> list[LockStatus]:
        """Return the wanted ones of these, in their order: for small stores."""
        key = self._urgency if self.by_urgency else attrgetter("name")
        return sorted(filter(self.accepts, statuses), key=key)[: self.limit]

    def _urgency(self, status: LockStatus) -> tuple[int, datetime, str]:
        urgency = status.urgency(self.overdue_by)
        return urgency, aware(status.locked_at), status.name


ALL_LOCKS = LockQuery()


@dataclass(frozen=True)
class Place:
    """Where one provider alone may keep its locks; ``text`` says it to people."""

    key: tuple[str, ...]
    text: str = field(compare=False)


class LockProvider(ABC):
    """
    A store of locks.

    One instance serves all threads of a process, so it keeps no state of a run. All
    times are by the store's clock. Every method raises ``LockProviderError`` if the
    store fails. The class attributes say what the store can do, also to its tests.
    ``keep_alive`` is that option's default, ``history_database`` where its runs are.
    """

    keeps_ticks: bool = False
    """Does it give a lock with a schedule once for each tick?"""
    can_fence: bool = False
    """Can it hold up the caller's transaction? Only the caller's own database can."""
    is_shared: bool = True
    """Do other processes and hosts find the locks of this one?"""
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
        self.heartbeats: Timetable = Timetable("keep alive")
        self.questions: Timetable = Timetable("questions")
        self.history: Timetable = Timetable("history", retries=False)

    @abstractmethod
    def acquire(self, lock: Lock) -> LockHolder | None:
        """
        Acquire the lock if its lease is over; return ``None``, or the holder.

        Of all callers at once, one gets ``None``, and a greater fencing token than the
        one before. A provider that keeps ticks lets ``ScheduleState`` decide by
        ``lock.configuration``, and sets ``lock.tick``.
        """

    @abstractmethod
    def extend(self, lock: Lock, *durations: timedelta) -> bool:
        """
        Extend a lease that is valid and still of ``lock``, from now; never shorten it.

        ``durations`` are ``lock_at_most_for``, and ``lock_at_least_for`` if that
        changes: it also counts from now. Return whether the lease was still of
        ``lock``.
        """

    @abstractmethod
    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """
        Release the lock if it is ours, or keep it until ``lock_at_least_for`` is over.

        The run is accounted for with that, unless the body ``never_began``. If its job
        ``succeeded``, so has its tick. Return whether ``lock`` held it.
        """

    @abstractmethod
    def account_for_loss(self, lock: Lock, *, has_ended: bool) -> None:
        """
        Account for the run of a lock that was lost, unless its last run is another one.

        A run that was accounted for as abandoned becomes a lost one. When and by whom
        the lock was lost first is written in any case, if there is a record. It is
        called when the loss is noticed, with ``ended_at`` unknown, and again when the
        body ``has_ended``.
        """

    @abstractmethod
    def now(self) -> datetime:
        """Return the store's clock; aware with ``USE_TZ``, as Django's own is."""

    @abstractmethod
    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        """Return the wanted locks; read more of them as the caller comes to them."""

    @abstractmethod
    def replace(
        self, status: LockStatus, lasting: timedelta, *, locked_by: str | None = None
    ) -> bool:
        """
        Give the lock another lease, for an operator; return whether that was done.

        Change nothing unless the lock is still of the acquisition that was read:
        ``status.locked_by``. ``ZERO`` releases it, held or expired; its job goes on.
        Any other lease counts from now, and only for a held lock. It is never shorter,
        unless ``locked_by`` makes it another acquisition: a pause replaces a pause. A
        run that is open when the lock is released is accounted for as abandoned.
        """

    @abstractmethod
    def request_run(self, name: str, by: str, why: str) -> None:
        """Write onto the record, made if needed, that somebody asks for a run now."""

    @abstractmethod
    def withdraw_request(self, name: str, asked_at: datetime) -> bool:
        """Close this request, if it is still open; return whether it was."""

    @abstractmethod
    def note_unrecorded(self, name: str) -> None:
        """Write onto the record that a run could not be written to the history."""

    # What follows needs no override, unless the store can do better.

    def heartbeat(self, lock: Lock) -> bool:
        """Extend the lease as ``extend()`` does. It never waits long: others wait."""
        return self.extend(lock, lock.configuration.lock_at_most_for)

    def status(self, name: str) -> LockStatus | None:
        """Return the lock of this name; ``None`` without a record."""
        return next(iter(self.statuses(LockQuery(names=(name,)))), None)

    def lease_of(self, lock: Lock) -> LockStatus | None:
        """Return the status, as far as its holder can rely on it after a fail-over."""
        return self.status(lock.name)

    def count(self, query: LockQuery = ALL_LOCKS) -> int:
        """Return the number of the wanted locks."""
        return sum(1 for _ in self.statuses(query))

    def register(self, name: str, schedule: Schedule) -> None:
        """Register a new schedule unless the job runs; see LockStatus.registered()."""
        return

    def is_seen_here_only(self) -> bool:
        """Return whether no other thread sees the records, as in a ``TestCase``."""
        return False

    def fence(self, lock: Lock) -> bool:
        """Return whether it is still ours; if so, it is until the caller commits."""
        raise LockProviderError(
            f"Lock {lock.name!r}: the provider {self.alias!r} keeps its locks outside "
            "the transaction and can't fence it. Use fencing_token."
        )

    def stand_in(self, name: str) -> AbstractContextManager[bool | None]:
        """
        Hold another lock for this one in the body, if its table is not made yet.

        Give ``True`` if it is held, ``False`` if another process holds it, ``None`` if
        the lock itself can be acquired.
        """
        return nullcontext(None)

    def record_of(self, name: str) -> str:
        """Return where the lock's record is, for people who have to correct it."""
        return f"its record in the store of provider {self.alias!r}"

    def place(self) -> Place | None:
        """Return where the locks are; ``None`` if no other provider's can be there."""
        return None

    def check(self) -> list[CheckMessage]:
        """Return what is wrong with the options, without a look at the store."""
        return []

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """Return what is wrong with the store; ``databases`` may be asked."""
        return []

    def check_configuration(self, configuration: LockConfiguration) -> None:
        """Raise ``InvalidLockConfiguration`` for what the store can't do."""
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
