"""Locks in a table of the project's database: the default provider."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any, TypeVar

from django.core.checks import CheckMessage
from django.db import Error, IntegrityError, connections
from django.db.models import F
from django.db.models.functions import Greatest
from django.db.transaction import TransactionManagementError

from django_shedlock.configuration import ZERO
from django_shedlock.exceptions import LockProviderError
from django_shedlock.functions import DatabaseNow
from django_shedlock.holders import CONTENDED, LockHolder
from django_shedlock.locks import Lock
from django_shedlock.models import LockRecord, LockRecordQuerySet
from django_shedlock.providers import database_checks
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database_errors import (
    describe,
    is_conflict,
    is_lock_timeout,
)
from django_shedlock.providers.statements import run, savepoint
from django_shedlock.states import LockState, LockStatus

T = TypeVar("T")


class DatabaseLockProvider(LockProvider):
    """
    Keeps each lock as a row of the table ``shedlock``, by the database's clock.

    ``using`` is the alias of the database. One conditional UPDATE takes a lock, and
    its row count is the answer.
    """

    def __init__(self, alias: str, *, using: str = "default", keep_alive: bool = False):
        super().__init__(alias, keep_alive=keep_alive)
        self.using = using
        self.history_database = using

    def take(self, lock: Lock) -> LockHolder | None:
        """See LockProvider.take(). Where others are in the way for long, they hold."""
        try:
            return run(lambda: self._take(lock), self.using)
        except Error as error:
            if is_conflict(error) or is_lock_timeout(error):
                return CONTENDED
            raise self._failure("take", lock.name, error) from error

    def extend(self, lock: Lock, lock_at_most_for: timedelta) -> bool:
        """See LockProvider.extend()."""
        ours = self._ours(lock)
        return self._run("extend", lock.name, lambda: _extend(ours, lock_at_most_for))

    def keep_alive(self, lock: Lock, lock_at_most_for: timedelta) -> bool:
        """See LockProvider.keep_alive()."""
        ours = self._ours(lock)
        return self._run(
            "extend",
            lock.name,
            lambda: _extend(ours, lock_at_most_for),
            is_urgent=True,
        )

    def release(self, lock: Lock) -> bool:
        """See LockProvider.release()."""
        tries = count()
        return self._run(
            "release", lock.name, lambda: self._release(lock, again=next(tries) > 0)
        )

    def fencing_token(self, lock: Lock) -> int | None:
        """See LockProvider.fencing_token()."""
        ours = self._records(lock.name).filter(locked_by=lock.locked_by)
        tokens = ours.values_list("fencing_token", flat=True)
        return self._run("read", lock.name, lambda: next(iter(tokens), None))

    def fence(self, lock: Lock) -> bool:
        """See LockProvider.fence(). It takes the row, and changes nothing in it."""
        if not connections[self.using].in_atomic_block:
            raise TransactionManagementError(
                f"Lock {lock.name!r}: fence() works inside transaction.atomic(using="
                f"{self.using!r}), where it protects what that transaction writes."
            )
        try:
            return bool(self._ours(lock).update(locked_by=F("locked_by")))
        except Error as error:
            raise self._failure("fence with", lock.name, error) from error

    def now(self) -> datetime:
        """See LockProvider.now()."""
        records = LockRecord.objects.using(self.using)
        return self._run("read", None, records.clock)

    def statuses(self, name: str | None = None) -> Sequence[LockStatus]:
        """See LockProvider.statuses()."""
        records = (
            LockRecord.objects.using(self.using)
            if name is None
            else self._records(name)
        )
        records = records.with_status().order_by("name")
        return self._run("read", name, lambda: [_status(record) for record in records])

    def force_release(
        self, name: str, *, running: bool = False, locked_by: str | None = None
    ) -> bool:
        """See LockProvider.force_release()."""
        records = _of_acquisition(self._records(name), locked_by)
        records = records.held() if running else records.held_at_least()
        # With lock_at_least_until over, the holder's own release keeps nothing.
        over = {"lock_until": DatabaseNow(), "lock_at_least_until": DatabaseNow()}
        return self._run(
            "release",
            name,
            lambda: bool(records.update(**over, released_at=DatabaseNow())),
        )

    def force_extend(
        self, name: str, lock_at_most_for: timedelta, *, locked_by: str | None = None
    ) -> bool:
        """See LockProvider.force_extend()."""
        held = _of_acquisition(self._records(name), locked_by).held()
        return self._run("extend", name, lambda: _extend(held, lock_at_most_for))

    def check(self) -> list[CheckMessage]:
        """See LockProvider.check()."""
        return database_checks.check_alias(self.alias, self.using)

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """See LockProvider.check_store()."""
        return (
            database_checks.check_database(self.using)
            if self.using in databases
            else []
        )

    def _ours(self, lock: Lock) -> LockRecordQuerySet:
        return self._records(lock.name).held().held_by(lock.locked_by)

    def _records(self, name: str) -> LockRecordQuerySet:
        return LockRecord.objects.using(self.using).filter(name=name)

    def _take(self, lock: Lock) -> LockHolder | None:
        taken = (
            self._records(lock.name)
            .acquirable()
            .update(**_columns(lock), fencing_token=F("fencing_token") + 1)
        )
        if taken:
            return None
        holder = self._holder(lock.name) or self._create(lock)
        # If the reply to our own UPDATE or INSERT was lost, the holder is us.
        return None if holder is None or holder.locked_by == lock.locked_by else holder

    def _holder(self, name: str) -> LockHolder | None:
        holders: Iterable[Any] = (
            self._records(name).with_status().values_list("locked_by", "remaining")  # type: ignore[misc]
        )
        return next((LockHolder(by, max(left, ZERO)) for by, left in holders), None)

    def _create(self, lock: Lock, *, again: bool = False) -> LockHolder | None:
        try:
            with savepoint(self.using):
                LockRecord.objects.using(self.using).create(
                    name=lock.name, **_columns(lock), fencing_token=1
                )
        except IntegrityError:
            # Somebody was first, and it may be that the record is gone already; or
            # else the table does not take our row at all.
            holder = self._holder(lock.name)
            if holder is None and again:
                raise
            return holder or self._create(lock, again=True)
        return None

    def _release(self, lock: Lock, *, again: bool) -> bool:
        ours = self._records(lock.name).filter(locked_by=lock.locked_by)
        # Sent again after a lost reply, our own first try may have released it.
        ours = ours if again else ours.filter(released_at=None)
        free_from = Greatest(DatabaseNow(), F("lock_at_least_until"))
        return bool(ours.update(lock_until=free_from, released_at=DatabaseNow()))

    def _run(
        self,
        verb: str,
        name: str | None,
        statement: Callable[[], T],
        *,
        is_urgent: bool = False,
    ) -> T:
        try:
            return run(statement, self.using, is_urgent=is_urgent)
        except Error as error:
            raise self._failure(verb, name, error) from error

    def _failure(self, verb: str, name: str | None, error: Error) -> LockProviderError:
        what = "the locks" if name is None else f"lock {name!r}"
        where = f"database {self.using!r} (provider {self.alias!r})"
        return LockProviderError(
            f"Could not {verb} {what} in {where}: {describe(error)}"
        )


def _columns(lock: Lock) -> dict[str, Any]:
    configuration = lock.configuration
    return {
        "lock_until": DatabaseNow() + configuration.lock_at_most_for,
        "lock_at_least_until": DatabaseNow() + configuration.lock_at_least_for,
        "locked_at": DatabaseNow(),
        "locked_by": lock.locked_by,
        "released_at": None,
    }


def _extend(records: LockRecordQuerySet, lock_at_most_for: timedelta) -> bool:
    lock_until = Greatest(F("lock_until"), DatabaseNow() + lock_at_most_for)
    return bool(records.update(lock_until=lock_until))


def _of_acquisition(
    records: LockRecordQuerySet, locked_by: str | None
) -> LockRecordQuerySet:
    return records if locked_by is None else records.filter(locked_by=locked_by)


def _status(record: Any) -> LockStatus:
    return LockStatus(
        name=record.name,
        state=LockState(record.state),
        locked_by=record.locked_by,
        locked_at=record.locked_at,
        lock_until=record.lock_until,
        remaining=max(record.remaining, ZERO),
    )
