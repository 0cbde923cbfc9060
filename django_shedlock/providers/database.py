"""Locks in a table of the project's database: the default provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, TypeVar

from django.core.checks import CheckMessage
from django.db import Error, connections
from django.db.models import Expression, F
from django.db.models.functions import Greatest, Least
from django.db.transaction import TransactionManagementError

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
from django_shedlock.providers.registrations import register
from django_shedlock.providers.statements import run
from django_shedlock.providers.taking import Taking
from django_shedlock.schedules import Schedule
from django_shedlock.states import LockStatus

T = TypeVar("T")


class DatabaseLockProvider(LockProvider):
    """
    Keeps each lock as a row of the table ``shedlock``, by the database's clock.

    ``using`` is the alias of the database. One conditional UPDATE takes a lock, and
    its row count is the answer.
    """

    keeps_ticks = True

    def __init__(self, alias: str, *, using: str = "default", keep_alive: bool = False):
        super().__init__(alias, keep_alive=keep_alive)
        self.using = using
        self.history_database = using

    def take(self, lock: Lock) -> LockHolder | None:
        """See LockProvider.take(). Where others are in the way for long, they hold."""
        try:
            return run(Taking(lock, self.using).attempt, self.using)
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

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See LockProvider.release()."""
        columns = _columns_of_released(lock, succeeded=succeeded)
        tries = count()
        return self._run(
            "release",
            lock.name,
            lambda: self._release(lock, columns, again=next(tries) > 0),
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

    def register(self, name: str, schedule: Schedule) -> None:
        """See LockProvider.register()."""
        self._run("register", name, partial(register, name, schedule, self.using))

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
        records = records.with_status().with_clock().order_by("name")
        return self._run("read", name, lambda: [record.status for record in records])

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
            lambda: bool(records.update(**over, released_at=_released_now())),
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

    def _release(self, lock: Lock, columns: dict[str, Any], *, again: bool) -> bool:
        ours = self._records(lock.name).filter(locked_by=lock.locked_by)
        # Sent again after a lost reply, our own first try may have released it.
        ours = ours if again else ours.filter(released_at=None)
        return bool(ours.update(**columns))

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


def _columns_of_released(lock: Lock, *, succeeded: bool) -> dict[str, Any]:
    # If the clock was set back, the lock is kept no longer than it would be, taken now.
    longest = DatabaseNow() + lock.configuration.lock_at_least_for
    kept_until = Least(F("lock_at_least_until"), longest)
    columns: dict[str, Any] = {
        "lock_until": Greatest(DatabaseNow(), kept_until),
        "released_at": _released_now(),
    }
    if succeeded and lock.configuration.occasion.schedule is not None:
        columns["succeeded_tick"] = F("tick")
    return columns


def _released_now() -> Expression:
    # Never before it was taken: released_at tells a released lock from a running one.
    return Greatest(DatabaseNow(), F("locked_at"))


def _extend(records: LockRecordQuerySet, lock_at_most_for: timedelta) -> bool:
    lock_until = Greatest(F("lock_until"), DatabaseNow() + lock_at_most_for)
    return bool(records.update(lock_until=lock_until))


def _of_acquisition(
    records: LockRecordQuerySet, locked_by: str | None
) -> LockRecordQuerySet:
    return records if locked_by is None else records.filter(locked_by=locked_by)
