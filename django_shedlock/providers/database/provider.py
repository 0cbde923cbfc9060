"""The default provider: locks in a table of the project's database."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NoReturn, TypeVar

from django.core.checks import CheckMessage
from django.db import Error, IntegrityError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import CONTENDED, LockHolder, LockStatus
from django_shedlock.models import LockRecord
from django_shedlock.providers.base import ALL_LOCKS, LockProvider, LockQuery, Place
from django_shedlock.providers.database import (
    acquisition,
    checks,
    errors,
    leases,
    reading,
)
from django_shedlock.providers.database.compound import can_ride, together
from django_shedlock.providers.database.connections import Work, run
from django_shedlock.providers.database.statements import PROBED
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
        self._recent: dict[object, float] = {}

    def acquire(self, lock: Lock) -> LockHolder | None:
        acquire = partial(acquisition.acquire, lock, self._recent, self._look)
        try:
            return run(acquire, self.using, lock=lock)
        except Error as error:
            if _leaves_run_out(lock, error):
                return self.acquire(lock)
            is_known = not isinstance(error, IntegrityError | errors.NoAnswer)
            if is_known and (
                errors.is_conflict(error) or errors.is_lock_timeout(error)
            ):
                return CONTENDED  # who stays in the way is as good as the holder
            self._fail("acquire", lock.name, error)

    def extend(self, lock: Lock, *durations: timedelta, is_beat: bool = False) -> bool:
        values = dict(zip(("at_most", "at_least"), durations, strict=False))
        statement = leases.EXTEND[is_beat, "at_least" in values]

        def extend(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            if is_beat and connection.vendor in PROBED:
                leases.PROBE(connection, name=lock.name)
            return statement(connection, **_owner(lock), **values) > 0

        return self._do("extend", lock.name, extend, is_urgent=is_beat, lock=lock)

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        schedule, tick, due_at = lock.configuration.schedule, lock.tick, None
        if succeeded and schedule is not None and tick is not None:
            _, due_at = schedule.around(tick)
        values = {**_owner(lock), "at_least": lock.lock_at_least_for, "due_at": due_at}
        which = due_at is not None, lock.lock_at_least_for > ZERO

        def release(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            statement = leases.RELEASE[is_again or lock.was_release_tried, *which]
            # See Note [A run rides with its lock].
            run = lock.run if can_ride(connection) else None
            if run is None or (ending := run.ending()) is None:
                return statement(connection, **values) > 0
            update, columns = ending
            written = together(statement, update)(connection, **values | columns)
            run.has_ended = written is not None
            return written is not None

        # A busy SQLite is asked for longer: nobody else will release the lock. After a
        # loss nobody has to wait for a store that hangs.
        how: Any = {"is_urgent": lock.lost.is_set(), "patience": math.inf}
        try:
            return run(release, self.using, lock=lock, **how)
        except Error as error:
            if _leaves_run_out(lock, error):
                return self.release(lock, succeeded=succeeded)
            self._fail("release", lock.name, error)

    def fence(self, lock: Lock) -> bool:
        connection = connections[self.using]
        if not connection.in_atomic_block:
            raise TransactionManagementError(
                f"Lock {lock.name!r}: fence() works inside transaction.atomic(using="
                f"{self.using!r}), where it protects what that transaction writes."
            )
        try:
            return leases.FENCE(connection, **_owner(lock)) > 0
        except Error as error:
            self._fail("fence with", lock.name, error)

    def replace(
        self, status: LockStatus, lasting: timedelta, *, locked_by: str | None = None
    ) -> bool:
        verb, statement = "release", leases.FORCE_RELEASE
        if lasting and locked_by is None:
            verb, statement = "extend", leases.FORCE_EXTEND
        elif lasting:
            verb, statement = "acquire", leases.PAUSE_AGAIN
        owner = {"name": status.name, "before": status.locked_by}
        new = {"locked_by": locked_by, "at_most": lasting, "at_least": ZERO}

        def replace(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            if statement(connection, **owner, **new):
                return True
            # Sent again after a lost reply, our own first try may have done it.
            after = reading.read(connection, status.name) if is_again else None
            if after is None or lasting:
                return after is not None and after.locked_by == locked_by
            is_over = after.lock_until == after.locked_at
            return is_over and after.locked_by == status.locked_by

        return self._do(verb, status.name, replace)

    def register(self, name: str, schedule: Schedule) -> None:
        self._do("register", name, lambda c, _: acquisition.register(c, name, schedule))

    def now(self) -> datetime:
        clock = LockRecord.objects.using(self.using).clock
        return self._do("read", None, lambda *_: clock(), stays_here=True)

    def lease_of(self, lock: Lock) -> LockStatus | None:
        return self.status(lock.name, lock)

    def status(self, name: str, lock: Lock | None = None) -> LockStatus | None:
        # Outside the caller's transaction, which may see an old snapshot.
        read = partial(reading.read, name=name, is_whole=True)
        try:
            status = self._do("read", name, lambda c, _: read(c), lock=lock)
        except LockProviderError:
            raise
        except Exception:  # a value that somebody wrote can't be converted
            return super().status(name)
        return status and status.checked()

    def statuses(self, query: LockQuery = ALL_LOCKS) -> Iterator[LockStatus]:
        try:
            yield from reading.find(self.using, query)
        except Error as error:
            self._fail("read", None, error)

    def count(self, query: LockQuery = ALL_LOCKS) -> int:
        if query.patterns or query.ignored or query.names is not None or query.limit:
            return super().count(query)
        records = reading.wanted(self.using, query)
        return self._do("read", None, lambda *_: records.count(), stays_here=True)

    @contextmanager
    def stand_in(self, name: str) -> Iterator[bool | None]:
        # Only deploys need it, and every process would load it.
        from django_shedlock.providers.database.first_deploy import stand_in

        with ExitStack() as stack:
            try:
                is_ours = stack.enter_context(stand_in(self.using, name))
            except Error as error:
                self._fail("acquire", name, error)
            yield is_ours

    def record_of(self, name: str) -> str:
        return f"its row in table {LockRecord._meta.db_table}"

    def place(self) -> Place | None:
        return checks.place_of(self.using)

    def check(self) -> list[CheckMessage]:
        return checks.check_alias(self.alias, self.using)

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        return checks.check_database(self.using) if self.using in databases else []

    def _look(self, name: str) -> LockStatus | None:
        # Only describes a lock that was not acquired, so an error must not pass.
        with suppress(LockProviderError):
            return self._do("read", name, lambda c, _: reading.read(c, name))
        return None

    def _do(self, verb: str, name: str | None, work: Work[T], **how: Any) -> T:
        try:
            return run(work, self.using, **how)
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


def _owner(lock: Lock) -> dict[str, str]:
    return {"name": lock.name, "locked_by": lock.locked_by}


def _leaves_run_out(lock: Lock, error: Error) -> bool:
    # Trouble with the history is none with the lock: it goes on alone.
    may_be_the_runs = lock.run is not None and lock.run.rides
    if may_be_the_runs and errors.is_refusal(error):
        lock.run.rides = False
        return True
    return False
