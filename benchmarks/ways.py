"""One caller: acquire and release, or fail to acquire, in many ways."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from benchmarks.tables import Prepared, Ways, compare

A_MINUTE = timedelta(minutes=1)
ACQUIRE = """
    UPDATE shedlock SET lock_until = clock_timestamp() + %s,
        lock_at_least_until = clock_timestamp(), locked_at = clock_timestamp(),
        locked_by = %s, released_at = NULL, fencing_token = fencing_token + 1
    WHERE name = %s AND lock_until <= clock_timestamp()
"""
RELEASE = """
    UPDATE shedlock SET lock_until = clock_timestamp(),
        released_at = clock_timestamp()
    WHERE name = %s AND locked_by = %s
"""
RELEASE_SOON = f"""
    {RELEASE} AND set_config('synchronous_commit', 'off', true) = 'off'
"""
BEGIN = """
    INSERT INTO shedlock_run (name, provider, locked_by, host, pid, fencing_token,
        started, outcome, exception_type, exception_message, exception_traceback,
        skips, trigger, operator, reason)
    SELECT name, 'default', locked_by, 'here', 1, fencing_token,
        clock_timestamp(), 'running', '', '', '', 0, 'scheduler', '', ''
    FROM shedlock
    WHERE name = %s AND set_config('synchronous_commit', 'off', true) = 'off'
    RETURNING id
"""
FINISH = """
    UPDATE shedlock_run SET outcome = 'succeeded', exception_type = '',
        exception_message = '', exception_traceback = '',
        finished = clock_timestamp(), duration = %s
    WHERE id = %s AND set_config('synchronous_commit', 'off', true) = 'off'
"""


def measure(
    settings: dict[str, Any], rounds: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Return and print each way's times, compared with raw prepared statements."""
    from django.db import close_old_connections, connections

    add_records()
    tables = {
        "acquire and release": {**raw_pairs(settings), **pairs(), **rivals()},
        "a failed try": {**raw_tries(settings), **tries()},
    }
    results = compare(tables, rounds)
    close_old_connections()
    connections.close_all()
    return results


def add_records() -> None:
    """Add a free record for the raw ways, and a held one."""
    from django_shedlock.fields import DatabaseNow
    from django_shedlock.models import LockRecord

    now = DatabaseNow()
    for name, lease in (("raw", timedelta(0)), ("held", timedelta(hours=9))):
        LockRecord.objects.create(
            name=name, lock_until=now + lease, locked_at=now, locked_by="nobody"
        )


def raw_connection(settings: dict[str, Any]) -> Any:
    """Return a connection of psycopg alone, in autocommit."""
    import psycopg

    known = {
        "dbname": settings["NAME"],
        "host": settings.get("HOST"),
        "port": settings.get("PORT"),
        "user": settings.get("USER"),
        "password": settings.get("PASSWORD"),
    }
    given = {key: value for key, value in known.items() if value}
    return psycopg.connect(**given, autocommit=True)


def raw_pairs(settings: dict[str, Any]) -> Ways:
    """Return the statements alone: two, and four with those of the history."""
    raw = raw_connection(settings)

    def pair(*, prepare: bool) -> None:
        raw.execute(ACQUIRE, (A_MINUTE, "me", "raw"), prepare=prepare)
        raw.execute(RELEASE, ("raw", "me"), prepare=prepare)

    def with_history(*, prepare: bool) -> None:
        raw.execute(ACQUIRE, (A_MINUTE, "me", "raw"), prepare=prepare)
        [row] = raw.execute(BEGIN, ("raw",), prepare=prepare).fetchone()
        raw.execute(RELEASE_SOON, ("raw", "me"), prepare=prepare)
        raw.execute(FINISH, (A_MINUTE, row), prepare=prepare)

    return {
        "raw psycopg, prepared": lambda: pair(prepare=True),
        "raw psycopg, not prepared": lambda: pair(prepare=False),
        "raw with history, prepared": lambda: with_history(prepare=True),
        "raw with history, not prepared": lambda: with_history(prepare=False),
    }


def raw_tries(settings: dict[str, Any]) -> Ways:
    """Return the UPDATE alone, which matches no row."""
    raw = raw_connection(settings)
    values = (A_MINUTE, "me", "held")
    return {
        "raw psycopg, prepared": lambda: raw.execute(ACQUIRE, values, prepare=True),
        "raw psycopg, not prepared": lambda: raw.execute(
            ACQUIRE, values, prepare=False
        ),
    }


def pairs() -> Ways:
    """Return the ways of this package, plain and with Django's prepared statements."""
    ways: Ways = {}
    for alias, words in (("default", ""), ("prepared", ", prepared")):
        for name, way in pairs_of(alias).items():
            ways[f"{name}{words}"] = way
    return ways


def pairs_of(alias: str) -> Ways:
    """Return the ways of this package on one alias."""
    from asgiref.sync import async_to_sync
    from django.db import connections, transaction

    from django_shedlock import ahold, hold, scheduler_lock
    from django_shedlock.models import LockRecord

    def by_cursor() -> None:
        with connections[alias].cursor() as cursor:
            cursor.execute(ACQUIRE, (A_MINUTE, "me", "raw"))
            cursor.execute(RELEASE, ("raw", "me"))

    def held(name: str, **options: Any) -> None:
        with hold(name, lock_at_most_for="1m", provider=alias, **options):
            pass

    @scheduler_lock("decorated", lock_at_most_for="1m", provider=alias, history=False)
    def decorated() -> None:
        pass

    def inside_atomic() -> None:
        held("atomic", history=False)

    def scheduled() -> None:
        held("scheduled", history=False, schedule="@yearly")

    async def asynchronous() -> None:
        async with ahold("async", lock_at_most_for="1m", provider=alias, history=False):
            pass

    def forget_tick() -> None:
        LockRecord.objects.filter(name="scheduled").update(tick=None)

    return {
        "the raw SQL by Django's cursor": by_cursor,
        "hold()": lambda: held("hold", history=False),
        "decorator": decorated,
        "hold() with history": lambda: held("history", history=True),
        "keep_alive": lambda: held("kept", history=False, keep_alive=True),
        "inside atomic()": Prepared(
            inside_atomic, around=lambda: transaction.atomic(using=alias)
        ),
        "with a schedule": Prepared(scheduled, before=forget_tick),
        "ahold(), from sync code": async_to_sync(asynchronous),
    }


def rivals() -> Ways:
    """Return the ways of the other libraries that are installed."""
    ways: Ways = {"select_for_update() in atomic()": select_for_update}
    with suppress(ImportError):
        ways["django-pglock"] = advisory_lock()
    return ways


def select_for_update() -> None:
    """Lock a row for one transaction."""
    from django.db import transaction

    from django_shedlock.models import LockRecord

    with transaction.atomic():
        LockRecord.objects.select_for_update().get(name="raw")


def advisory_lock() -> Callable[[], None]:
    """Return the way of django-pglock: a lock of the session, which is not stored."""
    import pglock

    def pair() -> None:
        with pglock.advisory("job", timeout=0):
            pass

    return pair


def tries() -> Ways:
    """Return this package's failed tries: the holder is asked for, or not."""
    from django_shedlock import LockNotAcquired, execute, hold

    def ask(alias: str) -> None:
        with suppress(LockNotAcquired):
            with hold("held", lock_at_most_for="1m", provider=alias):
                raise AssertionError("somebody holds it")

    def skip(alias: str) -> None:
        execute(list, "held", lock_at_most_for="1m", provider=alias)

    return {
        "execute(), nobody asks": lambda: skip("default"),
        "hold(), whose error tells the holder": lambda: ask("default"),
        "execute(), nobody asks, prepared": lambda: skip("prepared"),
        "hold(), whose error tells the holder, prepared": lambda: ask("prepared"),
    }
