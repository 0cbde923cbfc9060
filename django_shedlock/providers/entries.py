"""
Locks in a store that can compare a record and set it in one step.

Such a store reads and writes records, lists their names and has a clock. This module
has the rest: what a record is, and how each step changes it.
"""

import json
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Generic, Self, TypeVar

from django.conf import settings
from django.core.checks import CheckMessage, Warning
from django.utils import timezone

from django_shedlock.clocks import EARLIEST_INSTANT, LATEST_INSTANT, aware
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import (
    CONTENDED,
    JOB_FIELDS,
    JOB_INSTANT_FIELDS,
    JOB_TEXT_FIELDS,
    AbandonedRun,
    JobAccount,
    JobState,
    LockHolder,
    LockState,
    LockStatus,
    RunOutcome,
    next_usual,
    state_of,
)
from django_shedlock.providers.base import ALL_LOCKS, LockProvider, LockQuery
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import from_text, to_text

Version = TypeVar("Version")
"""What a store compares, to know whether a record has changed since it was read."""
Stored = TypeVar("Stored")
"""What a store finds for one lock when it reads many records at once."""

RECORD_FORMAT = 1
"""The newest format of a record that this version reads."""

Read = tuple["Entry | None", Version, float]
"""The entry of a lock, if it has one, its version, and the clock."""
Found = Iterable[tuple[str, Stored | None]]
"""The names of locks, each with what ``parse()`` takes, or with ``None``."""


class NewerRecordError(ValueError):
    """Only a newer version can read a record."""


def reason_of(error: ValueError) -> str:
    """Return why a record can't be read, and what to do about that."""
    advice = "" if isinstance(error, NewerRecordError) else ". Correct or delete it"
    return f"{error}{advice}"


def check_format(least: object) -> None:
    """
    Raise ``NewerRecordError`` if a record's ``min_format`` is newer than ours.

    A newer version writes it if an older one would misunderstand the record. Without
    it, each version may read the record, and keeps the fields that it does not know.
    """
    if least is None:
        return
    if not (isinstance(least, int | float) and least <= RECORD_FORMAT):
        raise NewerRecordError(
            "a newer version of django-shedlock wrote it, in format "
            f"{str(least)[:30]}, and this one reads format {RECORD_FORMAT}. Leave it "
            "as it is, and upgrade this process"
        )


def readable_number(value: float) -> float:
    """Return the number if it can be an instant or token; else raise ``ValueError``."""
    if not abs(value) < 2**63:
        raise ValueError(f"the number {str(value)[:30]} is none of a lock")
    return value


def readable_duration(seconds: float) -> float:
    """Return the number if it can be a duration; else raise ``ValueError``."""
    try:
        timedelta(seconds=seconds)
    except OverflowError as error:
        raise ValueError(
            f"the duration {str(seconds)[:30]} is none of a job"
        ) from error
    return seconds


def instant_of(seconds: float) -> datetime:
    """
    Return the instant so many seconds after 1970.

    If Python can't show it, return the earliest or latest instant that it can show.
    """
    try:
        return aware(datetime.fromtimestamp(seconds, UTC))
    except (OSError, OverflowError, ValueError):
        return LATEST_INSTANT if seconds > 0 else EARLIEST_INSTANT


def optional_instant_of(seconds: float | None) -> datetime | None:
    """Return the instant so many seconds after 1970; ``None`` if it is unknown."""
    return None if seconds is None else instant_of(seconds)


@dataclass(frozen=True)
class Entry(JobAccount[float]):
    """
    The record of a lock. Instants are seconds of the store's clock.

    ``ticks`` is the text of ``schedules.state``. ``extended_at`` is when the holder
    last extended its lease. The instants of ``JobAccount`` are seconds since 1970,
    whatever clock ends the leases. ``others`` are the fields of a newer version. They
    are written back as they were read. See also ``check_format()``.
    """

    locked_by: str
    locked_at: float
    lock_until: float
    lock_at_least_until: float
    fencing_token: int = 0
    is_released: bool = False
    extended_at: float | None = None
    ticks: str = ""
    others: dict[str, object] = field(default_factory=dict)

    @classmethod
    def free(cls, now: float) -> Self:
        """Return the entry of a lock that nobody ever held."""
        return cls("", now, now, now, is_released=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the entry of a text by ``to_json()``; ``ValueError`` for another."""
        try:
            values = json.loads(text)
            check_format(values.get("min_format"))
            known = {name: values.pop(name) for name in ENTRY_FIELDS if name in values}
            entry = cls(**known, others=values)
            entry.check()
        except (AttributeError, RecursionError, TypeError) as error:
            flaw = f"{text[:80]!r} is no record of a lock: {error}"
            raise ValueError(flaw) from error
        return entry

    def to_json(self) -> str:
        """Return the entry as JSON, which other programs can read as well."""
        values = {name: getattr(self, name) for name in ENTRY_FIELDS}
        return json.dumps({**self.others, **values}, ensure_ascii=False)

    def check(self) -> None:
        """Raise an error if a value has the wrong type or is out of range."""
        for each in fields(self):
            value, name = getattr(self, each.name), each.name
            if name == "others" or (value is None and each.default is None):
                continue
            if name in JOB_TEXT_FIELDS or name in ("locked_by", "ticks"):
                value.encode()  # a surrogate fails here, and not when it is printed
            elif name == "usual":
                readable_duration(value)
            else:
                readable_number(value)

    def belongs_to(self, lock: Lock) -> bool:
        """Return whether ``lock`` is the last acquisition, and is not released."""
        return self.locked_by == lock.locked_by and not self.is_released

    def has_open_run_of(self, lock: Lock) -> bool:
        """Return whether ``lock`` is the last acquisition, with an open run."""
        return self.locked_by == self.open_run == lock.locked_by

    def is_in_use_since(self, moment: float) -> bool:
        """Return whether a lease ended since, or a run is open or requested."""
        is_wanted = self.open_run is not None or self.asked_at is not None
        return is_wanted or self.lock_until > moment

    def differs_only_in_its_job_from(self, other: "Entry") -> bool:
        """Return whether the entries differ, and agree on who holds the lock."""
        same = {name: getattr(self, name) for name in (*JOB_FIELDS, "ticks", "others")}
        return self != other and self == replace(other, **same)

    def state(self, now: float) -> LockState:
        """Return the lock's state at ``now``."""
        return state_of(
            self.locked_by,
            is_held=self.lock_until > now,
            is_released=self.is_released,
            has_open_run=self.open_run is not None,
        )

    # Each of these methods returns the next entry. An instant of the store's clock plus
    # ``epoch`` is the seconds since 1970.

    def acquired(
        self,
        locked_by: str,
        now: float,
        at_most: timedelta,
        at_least: timedelta = ZERO,
        *,
        token: int,
        epoch: float,
        opens_run: bool = False,
    ) -> "Entry":
        """Return the entry after an acquisition; its token is at least ``token``."""
        return replace(
            self.abandoned(self.lock_until + epoch, epoch),
            locked_by=locked_by,
            locked_at=now,
            lock_until=now + at_most.total_seconds(),
            lock_at_least_until=now + at_least.total_seconds(),
            fencing_token=max(self.fencing_token + 1, token),
            is_released=False,
            extended_at=None,
            open_run=locked_by if opens_run else None,
        )

    def abandoned(self, ended_at: float, epoch: float) -> "Entry":
        """Return the entry with its open run, if there is one, as an abandoned run."""
        if self.open_run is None:
            return self
        # If ShedLock has acquired the lock since, nobody knows when the run started.
        is_holder = self.open_run == self.locked_by
        return replace(
            self,
            last_run=self.open_run,
            outcome=RunOutcome.ABANDONED.value,
            failures=self.failures + 1,
            started_at=self.locked_at + epoch if is_holder else None,
            ended_at=ended_at,
            open_run=None,
        )

    def released(self, now: float, until: float) -> "Entry":
        """Return the entry of a released lock that is kept until ``until``."""
        return replace(self, lock_until=max(now, until), is_released=True)

    def with_run_over(
        self, now: float, took: float, epoch: float, *, outcome: RunOutcome
    ) -> "Entry":
        """Return the entry after the end of the open run, which ``took`` seconds."""
        ended_at = now + epoch
        over = replace(
            self,
            last_run=self.open_run,
            started_at=self.locked_at + epoch,
            ended_at=ended_at,
            open_run=None,
        )
        if outcome.is_bad:
            failures = self.failures + 1
            return replace(over, outcome=outcome.value, failures=failures)
        return replace(
            over,
            outcome=outcome.value,
            failures=0,
            succeeded_at=ended_at,
            usual=next_usual(self.usual, took),
        )

    def given_back(self, lock: Lock) -> "Entry":
        """Return the entry without the open run, whose body never began."""
        start, new = lock.configuration.start, replace(self, open_run=None)
        if lock.configuration.schedule is not None:
            ticks = to_text(from_text(self.ticks).given_back())
            new = replace(new, ticks=ticks)
        if start.request is None or self.asked_at is not None:
            return new
        return replace(
            new,
            asked_at=aware(start.request).timestamp(),
            asked_by=start.operator,
            asked_why=start.reason,
        )

    def lost(self, run: str, now: float, epoch: float, *, has_ended: bool) -> "Entry":
        """
        Return the entry after this run has lost its lock.

        ``has_ended`` says whether the body has ended as well.
        """
        at, new = now + epoch, self
        by_others = {RunOutcome.ABANDONED, RunOutcome.LOST}
        if self.open_run == run:
            new = replace(
                self.abandoned(at, epoch), outcome=RunOutcome.LOST.value, ended_at=None
            )
        elif self.last_run == run and self.outcome in by_others:
            # A lost run may have ended: this call may come late from another thread.
            was_lost = self.outcome == RunOutcome.LOST
            ended_at = self.ended_at if was_lost else None
            new = replace(self, outcome=RunOutcome.LOST.value, ended_at=ended_at)
        if new is not self and has_ended:
            new = replace(new, ended_at=at)
        # The first report counts: the end of the body is written later.
        lost_at = self.lost_at if self.lost_run == run else at
        return replace(new, lost_at=lost_at, lost_run=run)

    def force_released(self, now: float, epoch: float) -> "Entry":
        """Return the entry after an operator has released the lock."""
        over = self.abandoned(min(self.lock_until, now) + epoch, epoch)
        # Without ``lock_at_least_until``, the holder's own release keeps nothing.
        return replace(over.released(now, now), lock_at_least_until=now)

    def without_request(self) -> "Entry":
        """Return the entry without its request for a run."""
        return replace(self, asked_at=None, asked_by=None, asked_why=None)

    def job(self) -> JobState:
        """Return what the entry says about the runs of the job."""
        values = {name: getattr(self, name) for name in JOB_FIELDS}
        for name in JOB_INSTANT_FIELDS:
            values[name] = optional_instant_of(values[name])
        return JobState(**values)

    def last_abandoned(self) -> AbandonedRun | None:
        """Return the last run if somebody else accounted for it."""
        run, ended_at = self.last_run, self.ended_at
        if self.outcome != RunOutcome.ABANDONED or run is None or ended_at is None:
            return None
        started_at = optional_instant_of(self.started_at)
        return AbandonedRun(run, started_at, instant_of(ended_at))

    def status(self, name: str, now: float, clock: datetime) -> LockStatus:
        """
        Return the status at ``now``, when the wall clock was ``clock``.

        Raises ``ValueError`` if the ticks can't be read.
        """

        def moment(seconds: float) -> datetime:
            try:
                then = clock + timedelta(seconds=seconds - now)
            except OverflowError:
                return LATEST_INSTANT if seconds > now else EARLIEST_INSTANT
            return min(max(then, EARLIEST_INSTANT), LATEST_INSTANT)

        heartbeat = self.extended_at
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
            heartbeat_at=None if heartbeat is None else moment(heartbeat),
            job=self.job(),
        )


ENTRY_FIELDS = (
    *("locked_by", "locked_at", "lock_until", "lock_at_least_until", "fencing_token"),
    *("is_released", "extended_at", "ticks"),
    *JOB_FIELDS,
)


class WriteAttempts(Generic[Version]):
    """The attempts of one step to change a record before somebody else does."""

    limit: ClassVar[int] = 100

    def __init__(self, provider: "EntryLockProvider[Version, Any]", name: str):
        self._provider = provider
        self._name = name
        self._count = 0

    def read(self) -> Read[Version]:
        """
        Return what the store has now.

        Raises ``LockProviderError`` after too many attempts: a lock does not change so
        often, so the store refuses writes without saying so.
        """
        self._count += 1
        if self._count > self.limit:
            raise LockProviderError(
                f"Could not change lock {self._name!r} in the provider "
                f"{self._provider.alias!r}: its record seemed to change before each of "
                f"{self.limit} attempts to write it. See whether the store can write."
            )
        return self._provider.read(self._name)


class EntryLockProvider(LockProvider, Generic[Version, Stored]):
    """
    Keeps each lock as one ``Entry``, and changes it by compare-and-set.

    A store needs only ``read()``, ``write()``, ``names()`` and ``clock()``. Each may
    raise ``LockProviderError``. ``read()`` may also raise ``ValueError``, for a record
    that is no ``Entry``. A store that can read many records at once overrides
    ``read_all()`` and ``parse()``.

    For type checkers, ``Version`` is the type of a record's version, and ``Stored``
    that of what ``read_all()`` finds for one lock.
    """

    keeps_ticks = True

    @abstractmethod
    def read(self, name: str) -> Read[Version]:
        """Return the lock's entry, if it has one, its version, and the clock."""

    @abstractmethod
    def write(self, name: str, entry: Entry, version: Version) -> bool:
        """
        Write the entry if ``version`` is still the newest; return whether it was.

        This is one step: of two callers with one version, only one may get ``True``.
        """

    @abstractmethod
    def names(self) -> Iterable[str]:
        """Return the names of all locks, in any order."""

    @abstractmethod
    def clock(self) -> float:
        """Return the seconds since 1970, by the one clock that all hosts read."""

    # No store has to override the methods below. It may, if it needs fewer steps.

    def wall_clock(self, now: float) -> datetime:
        """Return the instant of ``clock()`` as a ``datetime``; aware, in UTC."""
        return datetime.fromtimestamp(now, UTC)

    def read_all(self, names: Collection[str] | None) -> Found[Stored]:
        """
        Return the names of these locks, or of all locks, each with its stored record.

        ``parse()`` makes an entry of the record. If it is ``None``, ``read()`` reads
        that lock.
        """
        for name in self.names() if names is None else names:
            yield name, None

    def parse(self, found: Stored) -> Read[Version]:
        """Return, from what ``read_all()`` found, what ``read()`` does; raise as it."""
        raise NotImplementedError

    def least_token(self, version: Version, clock: datetime) -> int:
        """
        Return the least token that an acquisition may have.

        It must also grow if the record was deleted. So it is the clock in milliseconds,
        or a number of the store that only grows.
        """
        return int(clock.timestamp() * 1000)

    def delete(self, name: str, version: Version) -> bool:
        """
        Delete the entry if ``version`` is still the newest; return whether it was.

        A store that can do so in one step sets ``deletes_records``.
        """
        raise NotImplementedError

    # If somebody else wrote first, each change below reads again and is computed anew,
    # up to the limit of ``WriteAttempts``.

    def acquire(self, lock: Lock) -> LockHolder | None:
        wanted, start = lock.configuration, lock.configuration.start
        with self._readable(lock.name) as attempts:
            while True:
                found, version, now = attempts.read()
                entry = found or Entry.free(now)
                # It is ours if the store wrote it, and its answer was lost.
                if entry.belongs_to(lock):
                    lock.known_token = entry.fencing_token
                    lock.abandoned = entry.last_abandoned()
                    break
                clock, decision = self.wall_clock(now), None
                status = entry.status(lock.name, now, clock)
                if wanted.schedule is not None:
                    decision = status.decide(start, wanted.schedule, wanted.grace)
                refusal = status.refusal(start, decision)
                if refusal is not None:
                    return refusal
                new = entry.acquired(
                    lock.locked_by,
                    now,
                    wanted.lock_at_most_for,
                    lock.lock_at_least_for,
                    token=self.least_token(version, clock),
                    epoch=clock.timestamp() - now,
                    opens_run=lock.opens_run,
                )
                if start.request is not None:
                    if status.job.asked_at != aware(start.request):
                        return CONTENDED  # somebody has carried it out already
                    new = new.without_request()
                if decision is not None:
                    lock.tick = decision.tick
                    lock.former_tick = status.schedule_state.tick
                    new = replace(new, ticks=to_text(decision.state))
                if self.write(lock.name, new, version):
                    lock.known_token = new.fencing_token
                    if entry.open_run is not None:
                        lock.abandoned = new.last_abandoned()
                    break
        return None

    def extend(self, lock: Lock, *durations: timedelta) -> bool:
        with self._readable(lock.name) as attempts:
            while True:
                entry, version, now = attempts.read()
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
        if not lock.opens_run or lock.lost.is_set():
            return self._release_no_run(lock)
        was_tried = lock.was_release_tried
        outcome = RunOutcome.SUCCEEDED if succeeded else lock.failed_outcome
        with self._readable(lock.name) as attempts:
            while True:
                entry, version, now = attempts.read()
                if entry is None:
                    return False
                if not entry.has_open_run_of(lock):
                    # After a lost reply, our own first try may have released it.
                    return was_tried and entry.was_released_by(lock.locked_by)
                was_tried = True
                epoch = self.wall_clock(now).timestamp() - now
                took = lock.took
                # If the clock was set back, keep it no longer than after an acquisition
                # now.
                longest = now + lock.lock_at_least_for.total_seconds()
                if lock.never_began:
                    over = entry.given_back(lock).released(now, now)
                else:
                    over = entry.with_run_over(now, took, epoch, outcome=outcome)
                    over = over.released(now, min(entry.lock_at_least_until, longest))
                if lock.never_began:
                    pass
                elif succeeded and lock.tick is not None:
                    ticks = to_text(from_text(entry.ticks).after_success())
                    over = replace(over, ticks=ticks)
                elif lock.gives_tick_back:
                    ticks = to_text(from_text(entry.ticks).given_back_once())
                    over = replace(over, ticks=ticks)
                if self.write(lock.name, over, version):
                    return True

    def _release_no_run(self, lock: Lock) -> bool:
        """Release an acquisition without an open run, such as a lost one."""
        was_tried = lock.was_release_tried
        with self._readable(lock.name) as attempts:
            while True:
                entry, version, now = attempts.read()
                if entry is None or not entry.belongs_to(lock):
                    is_ours = entry is not None and entry.locked_by == lock.locked_by
                    return was_tried and is_ours
                was_tried = True
                if self.write(lock.name, entry.released(now, now), version):
                    return True

    def account_for_loss(self, lock: Lock, *, has_ended: bool) -> None:
        with self._readable(lock.name) as attempts:
            while True:
                entry, version, now = attempts.read()
                if entry is None:
                    return
                epoch = self.wall_clock(now).timestamp() - now
                new = entry.lost(lock.locked_by, now, epoch, has_ended=has_ended)
                if new == entry or self.write(lock.name, new, version):
                    return

    def replace(
        self, status: LockStatus, lasting: timedelta, *, locked_by: str | None = None
    ) -> bool:
        name = status.name
        with self._readable(name) as attempts:
            while True:
                entry, version, now = attempts.read()
                if entry is None or entry.locked_by != status.locked_by:
                    return False
                clock, is_held = self.wall_clock(now), entry.lock_until > now
                epoch = clock.timestamp() - now
                if not lasting:
                    if not is_held and entry.open_run != status.locked_by:
                        return False
                    new = entry.force_released(now, epoch)
                elif not is_held:
                    return False
                elif locked_by is not None:
                    token = self.least_token(version, clock)
                    new = entry.acquired(
                        locked_by, now, lasting, token=token, epoch=epoch
                    )
                else:
                    until = max(entry.lock_until, now + lasting.total_seconds())
                    new = replace(entry, lock_until=until)
                if self.write(name, new, version):
                    return True

    def request_run(self, name: str, by: str, why: str) -> None:
        with self._readable(name) as attempts:
            while True:
                found, version, now = attempts.read()
                entry, at = found or Entry.free(now), self.wall_clock(now).timestamp()
                new = replace(entry, asked_at=at, asked_by=by, asked_why=why)
                if new == entry or self.write(name, new, version):
                    return

    def withdraw_request(self, name: str, asked_at: datetime) -> bool:
        with self._readable(name) as attempts:
            while True:
                entry, version, _ = attempts.read()
                if entry is None or entry.job().asked_at != aware(asked_at):
                    return False
                if self.write(name, entry.without_request(), version):
                    return True

    def note_unrecorded(self, name: str) -> None:
        with self._readable(name) as attempts:
            while True:
                entry, version, now = attempts.read()
                if entry is None:
                    return
                new = replace(entry, unrecorded_at=self.wall_clock(now).timestamp())
                if new == entry or self.write(name, new, version):
                    return

    def register(
        self, name: str, schedule: Schedule, since: datetime | None = None
    ) -> None:
        with self._readable(name) as attempts:
            while True:
                found, version, now = attempts.read()
                entry = found or Entry.free(now)
                if entry.state(now).is_in_use:
                    return
                status = entry.status(name, now, self.wall_clock(now))
                new = replace(entry, ticks=to_text(status.registered(schedule, since)))
                if new == entry or self.write(name, new, version):
                    return

    def delete_unused(self, name: str, unused_for: timedelta) -> bool:
        if not self.deletes_records:
            return False
        was_tried = False
        with self._readable(name) as attempts:
            while True:
                entry, version, now = attempts.read()
                if entry is None:
                    return was_tried  # after a lost reply, by our own first try
                if entry.is_in_use_since(now - unused_for.total_seconds()):
                    return False
                was_tried = True
                if self.delete(name, version):
                    return True

    @contextmanager
    def _readable(self, name: str) -> Iterator["WriteAttempts[Version]"]:
        try:
            yield WriteAttempts(self, name)
        except ValueError as error:
            raise LockProviderError(
                f"The record of lock {name!r} in the provider {self.alias!r} can't be "
                f"read: {reason_of(error)}."
            ) from error

    def now(self) -> datetime:
        moment = self.wall_clock(self.clock())
        return moment if settings.USE_TZ else timezone.make_naive(moment)

    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        # A name that is not UTF-8 is shown as "\xff". Only a read of all finds it.
        is_odd = any("\\x" in name for name in query.names or ())
        found = self.read_all(None if is_odd else query.names)
        return iter(query.select(self._parsed(found)))

    def _parsed(self, found: Found[Stored]) -> Iterator[LockStatus]:
        for name, each in found:
            try:
                read = self.read(name) if each is None else self.parse(each)
                status = self._status_of(name, read)
            except ValueError as error:
                status = self._unreadable(name, error)
            if status is not None:
                yield status

    def status(self, name: str) -> LockStatus | None:
        try:
            return self._status_of(name, self.read(name))
        except ValueError as error:
            return self._unreadable(name, error)

    def _status_of(self, name: str, read: Read[Version]) -> LockStatus | None:
        entry, _, now = read
        return entry.status(name, now, self.wall_clock(now)) if entry else None

    def _unreadable(self, name: str, error: ValueError) -> LockStatus:
        free, clock = LockState.FREE, self.wall_clock(self.clock())
        unknown = LockStatus(name, free, "", clock, clock, ZERO, clock)
        return unknown.as_unreadable(reason_of(error))

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        try:
            self.clock()
        except LockProviderError as error:
            hint = self.advice(error)
            return [Warning(str(error), hint=hint, id="shedlock.W005")]
        return []

    def advice(self, error: LockProviderError) -> str:
        """Return what to do about a store whose clock could not be read."""
        return "No job with a lock runs while its store is unreachable."
