"""The default provider: locks in a table of the project's database."""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NoReturn, TypeVar

from django.core.checks import CheckMessage
from django.db import Error, IntegrityError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from django_shedlock.clocks import aware
from django_shedlock.exceptions import LockProviderError
from django_shedlock.in_tests import is_only_connection
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import CONTENDED, JobState, LockHolder, LockStatus
from django_shedlock.models import LockRecord
from django_shedlock.providers.base import ALL_LOCKS, LockProvider, LockQuery, Place
from django_shedlock.providers.database import (
    acquisition,
    checks,
    reading,
    statements,
)
from django_shedlock.schedules.cron import Schedule
from django_shedlock.sql import errors
from django_shedlock.sql.compiling import Update, on_connection
from django_shedlock.sql.connections import Work, run

T = TypeVar("T")


class DatabaseLockProvider(LockProvider):
    """
    Keeps each lock as a row of the table ``shedlock``, by the database's clock.

    ``using`` is the alias of the database. One conditional UPDATE acquires a lock, and
    its row count is the answer.
    """

    keeps_ticks = True
    can_fence = True
    deletes_records = True

    def __init__(self, alias: str, *, using: str = "default", keep_alive: bool = False):
        super().__init__(alias, keep_alive=keep_alive, history_database=using)
        self.using = self.record_database = using

    def acquire(self, lock: Lock) -> LockHolder | None:
        def acquire(
            connection: BaseDatabaseWrapper, is_again: bool
        ) -> LockHolder | None:
            return acquisition.acquire(lock, connection)

        try:
            return run(acquire, self.using, has_deadline=lock.has_deadline)
        except Error as error:
            is_known = not isinstance(error, IntegrityError | errors.NoAnswer)
            if is_known and (
                errors.is_conflict(error) or errors.is_lock_timeout(error)
            ):
                return CONTENDED  # who stays in the way is as good as the holder
            self._fail("acquire", lock.name, error)

    def extend(self, lock: Lock, *durations: timedelta) -> bool:
        values = dict(zip(("at_most", "at_least"), durations, strict=False))
        statement = statements.extend_both if len(values) == 2 else statements.extend
        return self._update(
            "extend",
            lock.name,
            statement,
            {**_owner(lock), **values},
            has_deadline=lock.has_deadline,
        )

    def heartbeat(self, lock: Lock) -> bool:
        values = {**_owner(lock), "at_most": lock.configuration.lock_at_most_for}

        def heartbeat(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            if statements.probe.is_needed_on(connection):
                statements.probe(connection, name=lock.name)
            return statements.heartbeat(connection, **values) > 0

        return self._do("extend", lock.name, heartbeat, is_urgent=True)

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        # Once, whatever the heartbeat notices meanwhile.
        ends_run = lock.ends_run
        gives_tick_back = not succeeded and lock.gives_tick_back
        statement, values = _releasing(lock, succeeded)
        repeatable = statements.release_repeatable_tick
        if lock.lock_at_least_for > ZERO:
            repeatable = statements.release_repeatable_tick_kept
        if lock.never_began:
            statement, values = _giving_back(lock)
        elif not ends_run:
            statement, values = statements.release_no_run, _owner(lock)

        def release(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            if gives_tick_back and repeatable(connection, **values) > 0:
                return True
            if statement(connection, **values) > 0:
                return True
            if not ends_run:
                return False
            # Sent again after a lost reply, our own first try may have released it.
            was_sent = is_again or lock.was_release_tried
            return was_sent and _is_accounted_for(connection, lock)

        # A busy SQLite is asked for longer: nobody else will release the lock. After a
        # loss nobody has to wait for a store that hangs.
        is_urgent, busy_timeout = lock.lost.is_set(), math.inf
        return self._do(
            "release",
            lock.name,
            release,
            is_urgent=is_urgent,
            has_deadline=lock.has_deadline,
            busy_timeout=busy_timeout,
        )

    def account_for_loss(self, lock: Lock, *, has_ended: bool) -> None:
        statement = statements.account_for_loss
        if has_ended:
            statement = statements.account_for_lost_end

        self._update("change", lock.name, statement, _owner(lock), is_urgent=True)

    def note_unrecorded(self, name: str) -> None:
        statement = statements.note_unrecorded
        self._update("change", name, statement, {"name": name}, is_urgent=True)

    def request_run(self, name: str, by: str, why: str) -> None:
        values = {"name": name, "asked_by": by, "asked_why": why}

        def request(connection: BaseDatabaseWrapper, is_again: bool) -> None:
            if not statements.request_run(connection, **values):
                statements.create_free(connection, name=name)
                statements.request_run(connection, **values)

        self._do("change", name, request)

    def withdraw_request(self, name: str, asked_at: datetime) -> bool:
        values = {"name": name, "asked_at": aware(asked_at)}
        statement = statements.withdraw_request
        return self._update("change", name, statement, values, has_deadline=True)

    def is_seen_here_only(self) -> bool:
        return is_only_connection(connections[self.using])

    def fence(self, lock: Lock) -> bool:
        connection = connections[self.using]
        if not connection.in_atomic_block:
            raise TransactionManagementError(
                f"Lock {lock.name!r}: fence() works inside transaction.atomic(using="
                f"{self.using!r}), where it protects what that transaction writes."
            )
        try:
            return statements.fence(connection, **_owner(lock)) > 0
        except Error as error:
            self._fail("fence with", lock.name, error)

    def replace(
        self, status: LockStatus, lasting: timedelta, *, locked_by: str | None = None
    ) -> bool:
        verb, statement = "release", statements.force_release
        if lasting and locked_by is None:
            verb, statement = "extend", statements.force_extend
        elif lasting:
            verb, statement = "acquire", statements.pause_again
        owner = {"name": status.name, "before": status.locked_by}
        new = {"locked_by": locked_by, "at_most": lasting, "at_least": ZERO}

        def replace(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            if statement(connection, **owner, **new, open_run=None):
                return True
            # Sent again after a lost reply, our own first try may have done it.
            after = reading.read(connection, status.name) if is_again else None
            if after is None or lasting:
                return after is not None and after.locked_by == locked_by
            is_over = after.lock_until == after.locked_at
            return is_over and after.locked_by == status.locked_by

        return self._do(verb, status.name, replace)

    def register(
        self, name: str, schedule: Schedule, since: datetime | None = None
    ) -> None:
        def register(connection: BaseDatabaseWrapper, is_again: bool) -> None:
            acquisition.register(connection, name, schedule, since)

        self._do("register", name, register, has_deadline=True)

    def delete_unused(self, name: str, unused_for: timedelta) -> bool:
        values = {"name": name, "unused_for": unused_for}

        def delete(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            was_deleted = statements.delete_unused(connection, **values) > 0
            # Sent again after a lost reply, our own first try may have done it.
            return was_deleted or (is_again and not reading.read(connection, name))

        return self._do("delete", name, delete, has_deadline=True)

    def now(self) -> datetime:
        def read(connection: BaseDatabaseWrapper, is_again: bool) -> datetime:
            records = LockRecord.objects.using(self.using)
            return on_connection(records, connection).clock()

        return self._do("read", None, read, has_deadline=True)

    def status(self, name: str) -> LockStatus | None:
        # Outside the caller's transaction, which may see an old snapshot.
        def read(connection: BaseDatabaseWrapper, is_again: bool) -> LockStatus | None:
            return reading.read(connection, name)

        return self._do("read", name, read, has_deadline=True)

    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        try:
            yield from reading.find(self.using, query)
        except Error as error:
            self._fail("read", None, error)

    def count(self, query: LockQuery = ALL_LOCKS) -> int:
        is_of_names = query.patterns or query.ignored or query.names is not None
        if is_of_names or query.limit or query.overdue_by is not None:
            return super().count(query)

        def count(connection: BaseDatabaseWrapper, is_again: bool) -> int:
            return reading.count(connection, query)

        return self._do("read", None, count, has_deadline=True)

    def record_of(self, name: str) -> str:
        return f"its row in table {LockRecord._meta.db_table}"

    def place(self) -> Place | None:
        return checks.place_of(self.using)

    def check(self) -> list[CheckMessage]:
        return checks.check_alias(self.alias, self.using)

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        return checks.check_database(self.using) if self.using in databases else []

    def _update(
        self,
        verb: str,
        name: str,
        statement: Update,
        values: dict[str, object],
        *,
        is_urgent: bool = False,
        has_deadline: bool = False,
    ) -> bool:
        """Execute the UPDATE of one record; return whether it matched."""

        def update(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            return statement(connection, **values) > 0

        return self._do(
            verb, name, update, is_urgent=is_urgent, has_deadline=has_deadline
        )

    def _do(
        self,
        verb: str,
        name: str | None,
        work: Work[T],
        *,
        is_urgent: bool = False,
        has_deadline: bool = False,
        busy_timeout: float | None = None,
    ) -> T:
        try:
            return run(
                work,
                self.using,
                is_urgent=is_urgent,
                has_deadline=has_deadline,
                busy_timeout=busy_timeout,
            )
        except Error as error:
            self._fail(verb, name, error)

    def _fail(self, verb: str, name: str | None, error: Error) -> NoReturn:
        what = "the locks" if name is None else f"lock {name!r}"
        where = f"database {self.using!r} (provider {self.alias!r})"
        if errors.is_missing_table(error):
            # A traceback of the statement would only hide what to do.
            raise errors.MissingTable(
                f"Could not {verb} {what} in {where}: its table is missing. Run "
                f"`{errors.migrate_command(self.using)}`."
            ) from None
        failure = LockProviderError(
            f"Could not {verb} {what} in {where}: {errors.describe(error)}"
        )
        failure.is_uncertain = isinstance(error, errors.NoAnswer)
        failure.is_blocked = errors.is_lock_timeout(error)
        raise failure from (error.__cause__ if failure.is_uncertain else error)


def _owner(lock: Lock) -> dict[str, object]:
    return {"name": lock.name, "locked_by": lock.locked_by}


def _releasing(lock: Lock, succeeded: bool) -> tuple[Update, dict[str, object]]:
    """Return the statement that releases the lock, and its values."""
    values: dict[str, object] = {
        "name": lock.name,
        "locked_by": lock.locked_by,
        "at_least": lock.lock_at_least_for,
        "took": lock.took,
    }
    may_keep = lock.lock_at_least_for > ZERO
    if not succeeded:
        values["outcome"] = lock.failed_outcome.value
        if may_keep:
            return statements.release_failed_kept, values
        return statements.release_failed, values
    schedule, tick = lock.configuration.schedule, lock.tick
    if schedule is None or tick is None:
        if may_keep:
            return statements.release_succeeded_kept, values
        return statements.release_succeeded, values
    _, values["due_at"] = schedule.around(tick)
    if may_keep:
        return statements.release_tick_kept, values
    return statements.release_tick, values


def _giving_back(lock: Lock) -> tuple[Update, dict[str, object]]:
    """Return the statement that releases a lock without a run, and its values."""
    has_tick = lock.configuration.schedule is not None
    start = lock.configuration.start
    values: dict[str, object] = {
        **_owner(lock),
        "asked_at": start.request,
        "asked_by": start.operator if start.request else None,
        "asked_why": start.reason if start.request else None,
    }
    return statements.give_tick_back if has_tick else statements.give_back, values


def _is_accounted_for(connection: BaseDatabaseWrapper, lock: Lock) -> bool:
    # By a release of its own: else it would be abandoned or lost.
    return any(
        JobState(last_run=run, outcome=outcome).was_released_by(lock.locked_by)
        for run, outcome, *_ in statements.last_run(connection, name=lock.name)
    )
