"""What people would take instead, as far as it is on this machine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

from benchmarks import java, raw, redis_locks
from benchmarks.tables import LeftOut, Prepared, Way

Pair = tuple[Way | LeftOut, Way | LeftOut]
"""A way to acquire and release, and one that fails to acquire."""
NOT_INSTALLED = LeftOut("not installed")
FREE, HELD = "free 1", "held 1"


def ways(
    settings: dict[str, Any], options: argparse.Namespace, stack: ExitStack
) -> dict[str, Pair]:
    """Return each rival's two ways; what they need is closed with the stack."""
    connection = stack.enter_context(raw.connect(settings))

    def measured(rival: Callable[[], Pair]) -> Pair:
        try:
            return rival()
        except ImportError:
            return NOT_INSTALLED, NOT_INSTALLED

    return {
        "select_for_update(skip_locked)": select_for_update(connection),
        "django-pglock": measured(lambda: advisory_lock(stack)),
        "dislock": measured(lambda: dislock(settings, connection)),
        redis_locks.BY_REDIS_PY: measured(lambda: redis_lock(options.redis, stack)),
        "Java's ShedLock, its statements": java.ways(
            settings, options.jdbc, 2 * options.rounds, stack
        ),
    }


def select_for_update(connection: Any) -> Pair:
    """Lock a row for one transaction."""
    from django.db import transaction

    from benchmarks.models import HandWrittenLock

    def found(name: str) -> bool:
        with transaction.atomic():
            rows = HandWrittenLock.objects.select_for_update(skip_locked=True)
            return rows.filter(name=name).first() is not None

    @contextmanager
    def locked() -> Iterator[None]:
        # Only for a moment: while it is open, no update can reuse the room of a row.
        with connection.transaction():
            connection.execute(
                "SELECT FROM hand_written_lock WHERE name = %s FOR UPDATE", [HELD]
            )
            yield

    return lambda: found(FREE), Prepared(lambda: found(HELD), around=locked)


def advisory_lock(stack: ExitStack) -> Pair:
    """Return django-pglock's: a lock of the session, which is not stored."""
    import pglock

    def acquire(name: str, using: str = "default") -> AbstractContextManager[Any]:
        lock: AbstractContextManager[Any]
        lock = pglock.advisory(name, timeout=0, using=using)
        return lock

    def pair(name: str) -> None:
        with acquire(name):
            pass

    stack.enter_context(acquire(HELD, using="prepared"))
    return lambda: pair("job"), lambda: pair(HELD)


def dislock(settings: dict[str, Any], connection: Any) -> Pair:
    """Return its lease: connections and a thread for each lock."""
    from dislock.core import LeaseLock, LockContext
    from dislock.exceptions import LockNotAcquiredError
    from psycopg.conninfo import make_conninfo

    connection.execute(
        "CREATE TABLE IF NOT EXISTS key_value (key text PRIMARY KEY, "
        "value text NOT NULL, expire_at timestamptz NOT NULL)"
    )
    connection.execute(
        "INSERT INTO key_value VALUES (%s, 'nobody', now() + interval '9 hours')",
        [f"cronjob-lock:lease:{HELD}"],
    )

    def pair(name: str) -> None:
        context = LockContext(
            url=make_conninfo(**raw.conninfo(settings)),
            table_parts=["key_value"],
            lock_key=name,
            owner=f"here:{os.getpid()}",
            run_ttl_seconds=60,
            lease_interval_seconds=20,
        )
        with suppress(LockNotAcquiredError), LeaseLock(context):
            pass

    return lambda: pair("job"), lambda: pair(HELD)


def redis_lock(url: str | None, stack: ExitStack) -> Pair:
    """Return redis-py's lock: a key with a time to live."""
    if not url:
        reason = LeftOut("no server: give --redis")
        return reason, reason
    client = stack.enter_context(redis_locks.connect(url))
    lock = redis_locks.redis_lock
    stack.enter_context(lock(client, HELD, redis_locks.HELD_FOR))

    def pair() -> None:
        with lock(client, FREE):
            pass

    return pair, lambda: lock(client, HELD).acquire()
