"""The default provider: locks in a table of the project's database."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import islice
from typing import Any, NoReturn, TypeVar

from django.core.checks import CheckMessage
from django.db import Error, IntegrityError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, Expression, F, When
from django.db.models.functions import Greatest, Least
from django.db.models.lookups import GreaterThan
from django.db.transaction import TransactionManagementError

from django_shedlock.exceptions import LockProviderError
from django_shedlock.fields import DatabaseNow
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import CONTENDED, LockHolder, LockState, LockStatus
from django_shedlock.models import LockRecord, LockRecordQuerySet
from django_shedlock.models.records import OVER, RELEASED
from django_shedlock.patterns import matches_any, may_match
from django_shedlock.providers.base import LockFilter, LockProvider, Place
from django_shedlock.providers.database import checks
from django_shedlock.providers.database.acquisition import (
    Acquisition,
    RecentNames,
    read,
    register,
    take_over,
)
from django_shedlock.providers.database.connections import Work, run
from django_shedlock.providers.database.errors import (
    MissingTable,
    NoAnswer,
    describe,
    is_conflict,
    is_lock_timeout,
    is_missing_table,
    migrate_command,
)
from django_shedlock.providers.database.statements import (
    Select,
    Update,
    asynchronous_commit,
    duration,
    instant,
    text,
)
from django_shedlock.providers.database.statuses import batches, read_statuses
from django_shedlock.schedules.cron import Schedule

T = TypeVar("T")

PAGE = 500
"""Locks that are read at once."""


class DatabaseLockProvider(LockProvider):
    """
    Keeps each lock as a row of the table ``shedlock``, by the database's clock.

    ``using`` is the alias of the database. One conditional UPDATE acquires a lock, and
    its row count is the answer.
    """

    keeps_ticks = True

    def __init__(self, alias: str, *, using: str = "default", keep_alive: bool = False):
        super().__init__(alias, keep_alive=keep_alive, history_database=using)
        self.using = using
        self._recent = RecentNames()

    def take(self, lock: Lock) -> LockHolder | None:
        """See LockProvider.take(). Others that stay in the way count as the holder."""
        try:
            return run(Acquisition(lock, self._recent, self._peek), self.using)
        except Error as error:
            is_refused = is_conflict(error) or is_lock_timeout(error)
            if is_refused and not isinstance(error, IntegrityError | NoAnswer):
                return CONTENDED
            self._fail("acquire", lock.name, error)

    def take_over(self, lock: Lock, locked_by: str) -> bool:
        """See LockProvider.take_over(). It is one statement."""
        work = partial(take_over, lock, locked_by)
        return self._do("acquire", lock.name, work)

    def extend(
        self,
        lock: Lock,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta | None = None,
    ) -> bool:
        """See LockProvider.extend()."""
        return self._extend(lock, lock_at_most_for, lock_at_least_for)

    def keep_alive(self, lock: Lock, lock_at_most_for: timedelta) -> bool:
        """See LockProvider.keep_alive()."""
        return self._extend(lock, lock_at_most_for, None, is_urgent=True)

    def _extend(
        self,
        lock: Lock,
        at_most: timedelta,
        at_least: timedelta | None,
        *,
        is_urgent: bool = False,
    ) -> bool:
        owner = {"name": lock.name, "locked_by": lock.locked_by}
        extend = extend_statement(has_both=at_least is not None)
        return bool(
            self._do(
                "extend",
                lock.name,
                lambda c, _: extend(c, **owner, at_most=at_most, at_least=at_least),
                is_urgent=is_urgent,
            )
        )

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See LockProvider.release()."""
        schedule, tick = lock.configuration.schedule, lock.tick
        due_at = None
        if succeeded and schedule is not None and tick is not None:
            due_at = next(schedule.ticks_after(tick))

        def work(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            has_success = due_at is not None
            is_again = is_again or lock.was_release_tried
            release = release_statement(is_again=is_again, has_success=has_success)
            owner = {"name": lock.name, "locked_by": lock.locked_by}
            at_least = lock.lock_at_least_for
            return bool(release(connection, **owner, at_least=at_least, due_at=due_at))

        # A busy SQLite is asked for longer: nobody else will release the lock. After a
        # loss nobody has to wait for a store that hangs.
        is_lost = lock.lost.is_set()
        return self._do(
            "release", lock.name, work, is_urgent=is_lost, patience=math.inf
        )

    def fencing_token(self, lock: Lock) -> int | None:
        """See LockProvider.fencing_token()."""
        status = self._of(lock)
        return status.fencing_token if status else None

    def fence(self, lock: Lock) -> bool:
        """See LockProvider.fence(). It writes the row, and changes nothing in it."""
        connection = connections[self.using]
        if not connection.in_atomic_block:
            raise TransactionManagementError(
                f"Lock {lock.name!r}: fence() works inside transaction.atomic(using="
                f"{self.using!r}), where it protects what that transaction writes."
            )
        try:
            owner = {"name": lock.name, "locked_by": lock.locked_by}
            return bool(FENCE(connection, **owner))
        except Error as error:
            self._fail("fence with", lock.name, error)

    def register(self, name: str, schedule: Schedule) -> None:
        """See LockProvider.register()."""
        self._do("register", name, lambda c, _: register(c, name, schedule))

    def now(self) -> datetime:
        """See LockProvider.now()."""
        records = LockRecord.objects.using(self.using)
        return self._do("read", None, lambda *_: records.clock(), stays_here=True)

    def statuses(self, name: str | None = None) -> Sequence[LockStatus]:
        """See LockProvider.statuses()."""
        records = self._records if name is None else self._records.filter(name=name)
        return self._statuses(records.order_by("name"), name)

    def statuses_of(self, names: Collection[str]) -> Sequence[LockStatus]:
        """See LockProvider.statuses_of(). One statement for each thousand."""
        found: list[LockStatus] = []
        for some in batches(names):
            records = self._records.filter(name__in=some)
            found += self._statuses(records.order_by("name"))
        return found

    def candidates(
        self,
        grace: timedelta,
        *,
        limit: int | None = None,
        ignored: Collection[str] = (),
    ) -> Sequence[LockStatus]:
        """See LockProvider.candidates(). The database reads each record once."""
        records = self._records.candidates(grace).by_urgency(grace)
        if not ignored:
            return self._statuses(records[:limit])
        # Patterns are Python's, so that the limit counts only what they leave.
        names = self._read_names(records)
        wanted = (name for name in names if not matches_any(name, ignored))
        kept = list(islice(wanted, limit))
        found = {status.name: status for status in self.statuses_of(kept)}
        return [found[name] for name in kept if name in found]

    def count(self) -> int:
        """See LockProvider.count()."""
        return self._do("read", None, lambda *_: self._records.count(), stays_here=True)

    def state_counts(self) -> dict[LockState, int]:
        """See LockProvider.state_counts()."""
        counts = self._do(
            "read", None, lambda *_: self._records.state_counts(), stays_here=True
        )
        return {state: counts.get(state.value, 0) for state in LockState}

    def late(
        self,
        grace: timedelta | None,
        held_for: timedelta | None = None,
        *,
        limit: int | None = None,
    ) -> Sequence[LockStatus]:
        """See LockProvider.late()."""
        records = self._records.late(grace, held_for).by_urgency(grace)
        return self._statuses(records[:limit])

    @property
    def _records(self) -> LockRecordQuerySet:
        return LockRecord.objects.using(self.using)

    def _statuses(
        self, records: LockRecordQuerySet, name: str | None = None
    ) -> list[LockStatus]:
        return self._do(
            "read", name, lambda *_: read_statuses(records), stays_here=True
        )

    def _read_names(self, records: LockRecordQuerySet) -> list[str]:
        names = records.values_list("name", flat=True)
        return self._do("read", None, lambda *_: list(names.all()), stays_here=True)

    def iter_statuses(self, wanted: LockFilter) -> Iterator[LockStatus]:
        """See LockProvider.iter_statuses(). It reads a page whenever it needs one."""
        records: Any = self._records.with_status().filter(may_match(wanted.patterns))
        if wanted.state is not None:
            records = records.filter(state=wanted.state)
        page = records = records.order_by("name")
        while read := self._statuses(page[:PAGE]):
            yield from filter(wanted.accepts, read)
            if len(read) < PAGE:
                return
            page = records.filter(name__gt=read[-1].name)

    def remaining(self, lock: Lock) -> timedelta:
        """See LockProvider.remaining()."""
        status = self._of(lock)
        return status.remaining if status and status.state.is_running else ZERO

    def force_release(
        self, name: str, *, running: bool = False, locked_by: str | None = None
    ) -> bool:
        """See LockProvider.force_release()."""
        records = _of_acquisition(name, locked_by)
        records = records.held_or_expired() if running else records.held_at_least()
        # With lock_at_least_until over, the holder's own release keeps nothing.
        over = dict.fromkeys(("lock_until", "lock_at_least_until"), F("locked_at"))
        release = Update(lambda: (records, {**over, "released_at": _released_now()}))
        released = _of_acquisition(name, locked_by).filter(RELEASED, OVER)

        def work(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            # Sent again after a lost reply, our own first try may have released it.
            was_released = is_again and locked_by is not None
            find = Select(lambda: released.values_list("pk"))
            return bool(release(connection) or (was_released and find(connection)))

        return self._do("release", name, work)

    def force_extend(
        self, name: str, lock_at_most_for: timedelta, *, locked_by: str | None = None
    ) -> bool:
        """See LockProvider.force_extend()."""
        records = _of_acquisition(name, locked_by).held()
        extend = Update(lambda: (records, _lengthened(lock_at_most_for)))
        return bool(self._do("extend", name, lambda c, _: extend(c)))

    def record_of(self, name: str) -> str:
        """See LockProvider.record_of()."""
        return f"its row in table {LockRecord._meta.db_table}"

    def place(self) -> Place | None:
        """See LockProvider.place()."""
        return checks.place_of(self.using)

    def check(self) -> list[CheckMessage]:
        """See LockProvider.check()."""
        return checks.check_alias(self.alias, self.using)

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """See LockProvider.check_store()."""
        return checks.check_database(self.using) if self.using in databases else []

    def _of(self, lock: Lock) -> LockStatus | None:
        status = self._read(lock.name)
        return status if status and status.locked_by == lock.locked_by else None

    def _peek(self, name: str) -> LockStatus | None:
        # Only describes a lock that was not acquired, so an error must not pass.
        try:
            return self._read(name)
        except LockProviderError:
            return None

    def _read(self, name: str) -> LockStatus | None:
        return self._do("read", name, lambda c, _: read(c, name))

    def _do(self, verb: str, name: str | None, work: Work[T], **how: Any) -> T:
        try:
            return run(work, self.using, **how)
        except Error as error:
            self._fail(verb, name, error)

    def _fail(self, verb: str, name: str | None, error: Error) -> NoReturn:
        what = "the locks" if name is None else f"lock {name!r}"
        where = f"database {self.using!r} (provider {self.alias!r})"
        if is_missing_table(error):
            # A traceback of the statement would only hide what to do.
            raise MissingTable(
                f"Could not {verb} {what} in {where}: its table is missing. Run "
                f"`{migrate_command(self.using)}`."
            ) from None
        failure = LockProviderError(
            f"Could not {verb} {what} in {where}: {describe(error)}"
        )
        failure.is_uncertain = isinstance(error, NoAnswer)
        raise failure from (error.__cause__ if failure.is_uncertain else error)


def _of_acquisition(name: Any, locked_by: Any) -> LockRecordQuerySet:
    records = LockRecord.objects.filter(name=name)
    return records if locked_by is None else records.filter(locked_by=locked_by)


def _ours() -> LockRecordQuerySet:
    records = _of_acquisition(text("name"), text("locked_by"))
    return records.held().filter(released_at=None)


def _lengthened(lock_at_most_for: Any) -> dict[str, Any]:
    lease_end = DatabaseNow() + lock_at_most_for
    return {"lock_until": Greatest(F("lock_until"), lease_end)}


def _extend(*, has_both: bool) -> tuple[LockRecordQuerySet, dict[str, Any]]:
    at_least = {"lock_at_least_until": DatabaseNow() + duration("at_least")}
    columns = {**_lengthened(duration("at_most")), "extended_at": DatabaseNow()}
    return _ours(), {**columns, **(at_least if has_both else {})}


def _released_now() -> Expression:
    # Never before it was acquired: that tells a released lock from a running one.
    return Greatest(DatabaseNow(), F("locked_at"))


def _release(
    *, is_again: bool, has_success: bool
) -> tuple[LockRecordQuerySet, dict[str, Any]]:
    # If the clock was set back, keep the lock no longer than if acquired now.
    longest = DatabaseNow() + duration("at_least")
    kept_until = Least(F("lock_at_least_until"), longest)
    is_kept = GreaterThan(kept_until, DatabaseNow())
    columns: dict[str, Any] = {
        # See Note [A clock that was set back].
        "lock_until": Case(When(is_kept, then=kept_until), default=F("locked_at")),
        "released_at": _released_now(),
    }
    records = _of_acquisition(text("name"), text("locked_by"))
    # Sent again after a lost reply, our own first try may have released it.
    records = records if is_again else records.filter(released_at=None)
    if has_success:
        return records, {**columns, "due_at": instant("due_at")}
    # If a crash of the server loses it, the lease ends by itself.
    return records.filter(asynchronous_commit()), columns


@cache
def extend_statement(*, has_both: bool) -> Update:
    """Return the statement that extends a lease, and perhaps lock_at_least_for."""
    return Update(partial(_extend, has_both=has_both))


@cache
def release_statement(*, is_again: bool, has_success: bool) -> Update:
    """Return the statement that releases a lock, the first time or again."""
    return Update(partial(_release, is_again=is_again, has_success=has_success))


FENCE = Update(lambda: (_ours(), {"locked_by": F("locked_by")}))
"""Writes the row as it is, so that nobody else can before the commit."""
