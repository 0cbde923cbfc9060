"""``migrate`` and commands like it, under a lock of the database itself."""

import functools
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import ClassVar, TextIO, cast

from django.core.management.base import BaseCommand, CommandError, OutputWrapper
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
from django_shedlock.registry.jobs import is_own_command
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

OPTIONS_THAT_LOOK = ("plan", "check_unapplied")
"""With one of these, Django's ``migrate`` changes nothing."""

_looks = Timetable("migrate")


def lock_migrate(
    handle: CommandHandle, name: str, options: Mapping[str, object]
) -> CommandHandle:
    """
    Return the ``handle()`` or ``execute()`` of a command, under its database's lock.

    ``wait`` is 10 minutes by default; by default ``unless`` names the options with
    which Django's ``migrate`` changes nothing, and ``dry_run``. Raises
    ``InvalidLockConfiguration`` if one is wrong.
    """
    wait = make_request(name, {"wait": options.get("wait", "10m")}).wait
    unless = parse_unless(name, options.get("unless"))

    @functools.wraps(handle)
    def locked_handle(
        self: BaseCommand, *args: object, **options: object
    ) -> str | None:
        if options.get("stderr"):  # an execute() inside the lock sets it too late
            self.stderr = OutputWrapper(cast(TextIO, options["stderr"]))
        is_unlocked = not conf.ENABLED.value or are_databases_temporary()
        if is_unlocked or _only_looks(unless, options):
            return handle(self, *args, **options)
        with ExitStack() as stack:
            for using in _databases(options.get("database")):
                lock = session_lock(using, f"migrate:{using}")
                if lock is None:
                    _warn_of_no_lock(name, using)
                else:
                    stack.enter_context(MigrateLock(self, name, lock).held(wait))
            return handle(self, *args, **options)

    return locked_handle


def _only_looks(unless: Sequence[str] | None, options: Mapping[str, object]) -> bool:
    looks = only_looks(unless, options)
    return looks or (unless is None and only_looks(OPTIONS_THAT_LOOK, options))


def _databases(option: object) -> list[str]:
    """
    Return the aliases that the option ``database`` names, or else the default one.

    They are sorted, so that two processes never wait for each other.
    """
    named = set(_texts(option))
    return sorted(named.intersection(connections)) or [DEFAULT_DB_ALIAS]


def _texts(option: object) -> Iterator[str]:
    """Return the texts of an option that a call may have several times."""
    if isinstance(option, str):
        yield option
    elif isinstance(option, Collection):
        for each in option:
            yield from _texts(each)


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
        self._is_over = False
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
        return any(map(self._lock.is_held_by, inherited_identities()))

    def _acquire(self, wait: timedelta) -> None:
        backoff = Backoff(wait)
        is_ours = self._lock.try_acquire()
        if not is_ours and wait:
            self._close_callers_connection()
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

    def _close_callers_connection(self) -> None:
        """Close Django's own connection: while it is idle, a proxy might end it."""
        caller = connections[self._lock.using]
        # A caller in this process may have a temporary table there, or a lock.
        if is_own_command(self._command) and not in_callers_transaction(caller):
            close(caller)

    def _holders(self) -> str:
        try:
            numbers = sorted(self._lock.holders())
        except Error:
            return "(it can't be asked now)"
        return " and ".join(map(str, numbers)) or "(it has ended)"

    def _begin(self) -> None:
        self._is_held = True
        pass_to_children(self._lock.identity)
        _looks.add(self, self._look, uptime() + self.look_interval_seconds)

    def _look(self) -> float | None:
        """Keep the connection awake; return when to do so next, by ``uptime()``."""
        with self._mutex:
            if self._is_held and (loss := self._loss()) is not None:
                self._is_held = self._is_acquired_again()
                logger.warning("%s was lost: %s. %s", self, loss, self._outlook())
                if not self._is_held:
                    pass_no_more(self._lock.identity)
            if self._is_over:  # the end has not waited for this look
                self._is_held = False
                self._lock.close()
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
        if self._is_over:
            return "Another process may have migrated, too."
        if self._is_held:
            return "It is held again; another process may have migrated meanwhile."
        return "This process goes on, and another one may migrate at the same time."

    def _end(self) -> None:
        self._is_over = True
        pass_no_more(self._lock.identity)
        _looks.remove(self)
        if not self._mutex.acquire(timeout=self.end_timeout_seconds):
            return  # a look hangs, and closes the connection when it has its answer
        try:
            if self._is_held and (loss := self._loss()) is not None:
                logger.warning("%s was lost: %s. %s", self, loss, self._outlook())
        finally:
            self._is_held = False
            self._lock.close()
            self._mutex.release()
