"""The default provider: locks in a table of the project's database."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache, partial
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
from django_shedlock.locks.states import CONTENDED, LockHolder, LockStatus
from django_shedlock.models import LockRecord, LockRecordQuerySet
from django_shedlock.providers.base import ALL_LOCKS, LockProvider, LockQuery, Place
from django_shedlock.providers.database import checks, reading
from django_shedlock.providers.database.acquisition import (
    Acquisition,
    RecentNames,
    acquired_columns,
    read,
    register,
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
    Update,
    asynchronous_commit,
    duration,
    instant,
    text,
)
from django_shedlock.schedules.cron import Schedule

T = TypeVar("T")


class DatabaseLockProvider(LockProvider):
    """
    Keeps each lock as a row of the table ``shedlock``, by the database's clock.

    ``using`` is the alias of the database. One conditional UPDATE acquires a lock, and
    its row count is the answer.
    """

    keeps_ticks = True
    can_fence = True

    def __init__(self, alias: str, *, using: str = "default", keep_alive: bool = False):
        super().__init__(alias, keep_alive=keep_alive, history_database=using)
        self.using = using
        self._recent = RecentNames()

    def acquire(self, lock: Lock) -> LockHolder | None:
        """See LockProvider.acquire(). What stays in the way counts as the holder."""
        try:
            return run(Acquisition(lock, self._recent, self._peek), self.using)
        except Error as error:
            is_refused = is_conflict(error) or is_lock_timeout(error)
            if is_refused and not isinstance(error, IntegrityError | NoAnswer):
                return CONTENDED
            self._fail("acquire", lock.name, error)

    def extend(
        self,
        lock: Lock,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta | None = None,
        *,
        is_beat: bool = False,
    ) -> bool:
        durations = {"at_most": lock_at_most_for, "at_least": lock_at_least_for}
        owner = {"name": lock.name, "locked_by": lock.locked_by}
        extend = extend_statement(has_both=lock_at_least_for is not None)

        def work(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            return bool(extend(connection, **owner, **durations))

        return self._do("extend", lock.name, work, is_urgent=is_beat)

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
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

    def fence(self, lock: Lock) -> bool:
        """See LockProvider.fence(). It writes the row, and changes nothing in it."""
        connection = connections[self.using]
        if not connection.in_atomic_block:
            raise TransactionManagementError(
                f"Lock {lock.name!r}: fence() works inside transaction.atomic(using="
                f"{self.using!r}), where it protects what that transaction writes."
            )
        with self._failing("fence with", lock.name):
            owner = {"name": lock.name, "locked_by": lock.locked_by}
            return bool(FENCE(connection, **owner))

    def register(self, name: str, schedule: Schedule) -> None:
        self._do("register", name, lambda c, _: register(c, name, schedule))

    def now(self) -> datetime:
        records = LockRecord.objects.using(self.using)
        return self._do("read", None, lambda *_: records.clock(), stays_here=True)

    def status(self, name: str) -> LockStatus | None:
        # Outside the caller's transaction, which may see an old snapshot.
        try:
            return self._do("read", name, lambda c, _: read(c, name, is_whole=True))
        except LockProviderError:
            raise
        except Exception:  # a value that somebody wrote can't be converted
            return super().status(name)

    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        with self._failing("read", None):
            yield from reading.find(self.using, query)

    def count(self, query: LockQuery = ALL_LOCKS) -> int:
        if query.patterns or query.ignored or query.names is not None or query.limit:
            return super().count(query)
        with self._failing("read", None):
            return reading.count(self.using, query)

    def replace(
        self, status: LockStatus, lasting: timedelta, *, locked_by: str | None = None
    ) -> bool:
        values = {
            "name": status.name,
            "before": status.locked_by,
            "locked_by": locked_by,
            "at_most": lasting,
            "at_least": ZERO,
        }
        verb, statement = "extend", FORCE_EXTEND
        if not lasting:
            verb, statement = "release", FORCE_RELEASE
        elif locked_by is not None:
            verb, statement = "acquire", TAKE_OVER

        def work(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            if statement(connection, **values):
                return True
            # Sent again after a lost reply, our own first try may have done it.
            after = read(connection, status.name) if is_again else None
            if after is None:
                return False
            if not lasting:
                is_over = after.lock_until == after.locked_at
                return is_over and after.locked_by == status.locked_by
            return locked_by is not None and after.locked_by == locked_by

        return self._do(verb, status.name, work)

    def record_of(self, name: str) -> str:
        return f"its row in table {LockRecord._meta.db_table}"

    def place(self) -> Place | None:
        return checks.place_of(self.using)

    def check(self) -> list[CheckMessage]:
        return checks.check_alias(self.alias, self.using)

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        return checks.check_database(self.using) if self.using in databases else []

    def _peek(self, name: str) -> LockStatus | None:
        # Only describes a lock that was not acquired, so an error must not pass.
        with suppress(LockProviderError):
            return self.status(name)
        return None

    def _do(self, verb: str, name: str | None, work: Work[T], **how: Any) -> T:
        with self._failing(verb, name):
            return run(work, self.using, **how)

    @contextmanager
    def _failing(self, verb: str, name: str | None) -> Iterator[None]:
        try:
            yield
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


def _of(locked_by: str) -> LockRecordQuerySet:
    return LockRecord.objects.filter(name=text("name"), locked_by=text(locked_by))


def _ours() -> LockRecordQuerySet:
    return _of("locked_by").held().filter(released_at=None)


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
    records = _of("locked_by")
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


def _force_release() -> tuple[LockRecordQuerySet, dict[str, Any]]:
    # With lock_at_least_until over, the holder's own release keeps nothing.
    over = dict.fromkeys(("lock_until", "lock_at_least_until"), F("locked_at"))
    return _of("before").held_or_expired(), {**over, "released_at": _released_now()}


def _take_over() -> tuple[LockRecordQuerySet, dict[str, Any]]:
    return _of("before").held(), acquired_columns()


FORCE_RELEASE = Update(_force_release)
FORCE_EXTEND = Update(lambda: (_of("before").held(), _lengthened(duration("at_most"))))
TAKE_OVER = Update(_take_over)
FENCE = Update(lambda: (_ours(), {"locked_by": F("locked_by")}))
"""Writes the row as it is, so that nobody else can before the commit."""
