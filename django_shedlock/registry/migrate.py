"""``migrate`` and commands like it, under a lock of the database itself."""

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import ClassVar

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, Error, connections

from django_shedlock import conf
from django_shedlock.background import Timetable
from django_shedlock.clocks import Backoff, uptime
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import message_of
from django_shedlock.execution.executor import SKIPPED_EXIT_STATUS
from django_shedlock.in_tests import are_databases_temporary
from django_shedlock.locks.configuration import make_request
from django_shedlock.locks.inherited import (
    inherited_identities,
    pass_no_more,
    pass_to_children,
)
from django_shedlock.mutexes import Mutex
from django_shedlock.registry.unless import only_looks, parse_unless
from django_shedlock.signals import logger
from django_shedlock.sql.connections import close, in_callers_transaction
from django_shedlock.sql.session_locks import SessionLock, session_lock

# Note [The lock of migrate]
# The first deploy starts `migrate` in each pod, and that makes the table of locks. So
# its lock can't be a record. It is a lock of the database itself, always: with a second
# mechanism for the later deploys, two processes could use different ones. It belongs to
# a connection, and a proxy, a NAT or a pooler ends one that is idle. So a thread sends
# a statement every few seconds, which also asks whether the lock is still held.

CommandHandle = Callable[..., str | None]
"""The ``handle()`` or ``execute()`` of a command: it returns what it prints."""

_looks = Timetable("migrate")


def lock_migrate(
    handle: CommandHandle, name: str, options: Mapping[str, object]
) -> CommandHandle:
    """
    Return the ``handle()`` or ``execute()`` of a command, under its database's lock.

    ``wait`` is 10 minutes by default; ``unless`` names the options with which Django's
    ``migrate`` changes nothing. Raises ``InvalidLockConfiguration`` if one is wrong.
    """
    wait = make_request(name, {"wait": options.get("wait", "10m")}).wait
    unless = parse_unless(name, options.get("unless", ["plan", "check_unapplied"]))

    @functools.wraps(handle)
    def locked_handle(
        self: BaseCommand, *args: object, **options: object
    ) -> str | None:
        is_unlocked = not conf.ENABLED.value or are_databases_temporary()
        if is_unlocked or only_looks(unless, options):
            return handle(self, *args, **options)
        using = str(options.get("database") or DEFAULT_DB_ALIAS)
        lock = session_lock(using, f"migrate:{using}")
        if lock is None:
            _warn_of_no_lock(name, using)
            return handle(self, *args, **options)
        with MigrateLock(self, name, lock).held(wait):
            return handle(self, *args, **options)

    return locked_handle


@functools.cache
def _warn_of_no_lock(name: str, using: str) -> None:
    text = "%r on database %r runs without a lock, since %s has none for it."
    logger.warning(text, name, using, connections[using].display_name)


class MigrateLock:
    """
    The lock under which a command migrates a database.

    If the connection that holds it ends, the command goes on, and a warning says so.
    """

    look_interval_seconds: ClassVar[float] = 5.0
    """Whatever ends idle connections allows them more than this."""
    end_timeout_seconds: ClassVar[float] = 5.0
    """How long the end waits for a look that hangs."""

    def __init__(self, command: BaseCommand, name: str, lock: SessionLock):
        self._command = command
        self._name = name
        self._lock = lock
        self._pid = os.getpid()
        self._is_held = False
        self._mutex = Mutex()
        """Owned by the thread that uses the connection."""

    def __str__(self) -> str:
        return f"The lock of {self._name!r} on database {self._lock.using!r}"

    @contextmanager
    def held(self, wait: timedelta) -> Iterator[None]:
        """
        Hold the lock while the body runs, after waiting for it for so long at most.

        A process that the holder has started runs under the holder's lock. Raises
        ``CommandError`` if the wait is over, and Django's ``Error`` if the database
        can't be asked.
        """
        try:
            if self._is_inherited():
                self._lock.close()
            else:
                self._acquire(wait)
                self._begin()
            yield
        finally:
            if os.getpid() == self._pid:  # else it is a forked child
                self._end()

    def _is_inherited(self) -> bool:
        holders = {_identity(number) for number in self._lock.holders()}
        return not holders.isdisjoint(inherited_identities())

    def _acquire(self, wait: timedelta) -> None:
        backoff = Backoff(wait)
        is_ours = self._lock.try_acquire()
        if not is_ours and wait:
            caller = connections[self._lock.using]
            if not in_callers_transaction(caller):
                close(caller)  # it would be idle, and perhaps ended by a proxy
            text = f"{self} is held: this process waits, for up to "
            self._command.stderr.write(f"{text}{format_duration(wait)}.")
        while not is_ours:
            if backoff.is_over:
                raise CommandError(
                    f"{self} was held for {format_duration(wait)}, so this process did "
                    "nothing. Start it again when the other one has ended, or give "
                    f"SHEDLOCK_COMMANDS[{self._name!r}] a longer `wait`. The database "
                    f"knows the holder as connection {self._holders()}.",
                    returncode=SKIPPED_EXIT_STATUS,
                )
            time.sleep(backoff.pause())
            try:
                is_ours = self._lock.try_acquire()
            except Error:  # the server starts again, or the pooler
                self._lock.close()
                if backoff.is_over:
                    raise

    def _holders(self) -> str:
        return " and ".join(map(str, sorted(self._lock.holders()))) or "(it has ended)"

    def _begin(self) -> None:
        self._is_held = True
        pass_to_children(_identity(self._lock.number))
        _looks.add(self, self._look, uptime() + self.look_interval_seconds)

    def _look(self) -> float | None:
        """Keep the connection awake; return when to do so next, by ``uptime()``."""
        with self._mutex:
            if self._is_held and (loss := self._loss()) is not None:
                pass_no_more(_identity(self._lock.number))
                self._is_held = self._is_acquired_again()
                logger.warning("%s was lost: %s. %s", self, loss, self._outlook())
                if self._is_held:
                    pass_to_children(_identity(self._lock.number))
        return uptime() + self.look_interval_seconds if self._is_held else None

    def _loss(self) -> str | None:
        """Return why the lock is not held any more; ``None`` if it is."""
        try:
            is_held = self._lock.number in self._lock.holders()
        except Error as error:
            return message_of(error)
        return None if is_held else "the database has released it"

    def _is_acquired_again(self) -> bool:
        self._lock.close()
        try:
            return self._lock.try_acquire()
        except Error:
            self._lock.close()
            return False

    def _outlook(self) -> str:
        if self._is_held:
            return "It is held again; another process may have migrated meanwhile."
        return "This process goes on, and another one may migrate at the same time."

    def _end(self) -> None:
        _looks.remove(self)
        if not self._mutex.acquire(timeout=self.end_timeout_seconds):
            return  # the look hangs, and has the connection until this process ends
        try:
            if self._is_held:
                pass_no_more(_identity(self._lock.number))
                if (loss := self._loss()) is not None:
                    text = "Another process may have migrated, too."
                    logger.warning("%s was lost: %s. %s", self, loss, text)
        finally:
            self._is_held = False
            self._mutex.release()
        self._lock.close()


def _identity(number: int | None) -> str:
    """Return the text by which processes that the holder starts recognize it."""
    return f"connection:{number}"
