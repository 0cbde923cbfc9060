"""The provider of locks in Redis or Valkey."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.core.checks import CheckMessage

from django_shedlock.durations import Duration, parse_duration
from django_shedlock.exceptions import LockProviderError, described
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder, LockStatus
from django_shedlock.providers.base import Place
from django_shedlock.providers.entries import Entry
from django_shedlock.providers.redis import checks
from django_shedlock.providers.redis.clients import Clients
from django_shedlock.providers.redis.scripts import Script, Scripts
from django_shedlock.providers.servers import (
    Failure,
    ServerLockProvider,
    Store,
    statuses_at,
)
from django_shedlock.schedules.state import Trigger

PREFIX = "shedlock:"
BATCH = 500
"""Locks that are read at once."""
MICROSECOND = timedelta(microseconds=1)


class RedisLockProvider(ServerLockProvider):
    """
    Keeps each lock as a hash in Redis or Valkey, by the server's clock.

    A script takes a lock in one round trip, and another one releases it. ``url`` names
    a server, ``redis+sentinel://HOST,HOST/SERVICE`` its master, and
    ``redis+cluster://HOST,HOST`` a cluster. ``prefix`` begins each key. A record stays
    for ``retention`` after its lease; one with a schedule stays. With ``wait_replicas``
    a lock is acquired once so many replicas have it, else within ``wait_timeout`` the
    acquisition fails. Other options are those of redis-py, as ``socket_timeout``.

    A fail-over of the server can lose a lock.
    """

    is_async = True
    store = Store("Redis", "redis-py", "redis")

    def __init__(
        self,
        alias: str,
        *,
        url: str,
        prefix: str = PREFIX,
        retention: Duration = "1d",
        wait_replicas: int = 0,
        wait_timeout: Duration = "1s",
        keep_alive: bool = False,
        history_database: str | None = None,
        **client_options: Any,
    ):
        super().__init__(
            alias, keep_alive=keep_alive, history_database=history_database
        )
        self.prefix = prefix
        self.clients = Clients(url, client_options)
        self._scripts = Scripts(_milliseconds(parse_duration(retention)))
        self._wait = self._waiting(wait_replicas, parse_duration(wait_timeout))

    def _waiting(self, replicas: int, timeout: timedelta) -> tuple[Any, ...] | None:
        if replicas < 0:
            raise ValueError(f"wait_replicas={replicas!r} is no number of replicas")
        if replicas and self.clients.is_cluster:
            raise ValueError("wait_replicas does not work with a cluster: leave it out")
        return ("WAIT", replicas, _milliseconds(timeout)) if replicas else None

    def acquire(self, lock: Lock) -> LockHolder | None:
        """See LockProvider.acquire(). It is one round trip; with a schedule two."""
        try:
            if lock.configuration.schedule is not None:
                return super().acquire(lock)
            with self.asking("acquire", lock.name):
                return self._holder(lock, self._run_confirmed(*self._taking(lock)))
        except Unconfirmed:
            with suppress(LockProviderError):
                self.release(lock, succeeded=False)
            raise

    async def aacquire(self, lock: Lock) -> LockHolder | None:
        """See acquire()."""
        if lock.configuration.schedule is not None:
            return await super().aacquire(lock)
        try:
            with self.asking("acquire", lock.name):
                answer = await self._arun_confirmed(*self._taking(lock))
                return self._holder(lock, answer)
        except Unconfirmed:
            with suppress(LockProviderError):
                await self.arelease(lock, succeeded=False)
            raise

    def extend(
        self,
        lock: Lock,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta | None = None,
        *,
        is_beat: bool = False,
    ) -> bool:
        with self.asking("extend", lock.name):
            extending = self._extending(lock, lock_at_most_for, lock_at_least_for)
            return bool(self._run(*extending))

    async def aextend(
        self,
        lock: Lock,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta | None = None,
    ) -> bool:
        """See extend()."""
        with self.asking("extend", lock.name):
            extending = self._extending(lock, lock_at_most_for, lock_at_least_for)
            return bool(await self._arun(*extending))

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See LockProvider.release(). The success of a tick is one round trip more."""
        if succeeded and lock.tick is not None:
            return super().release(lock, succeeded=succeeded)
        with self.asking("release", lock.name):
            return bool(self._run(*self._releasing(lock)))

    async def arelease(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See release()."""
        if succeeded and lock.tick is not None:
            return await super().arelease(lock, succeeded=succeeded)
        with self.asking("release", lock.name):
            return bool(await self._arun(*self._releasing(lock)))

    def read(self, name: str) -> tuple[Entry | None, str]:
        """See EntryLockProvider.read(). The version is the mark of the last change."""
        entry, version, _ = self.observe(name)
        return entry, version

    def observe(self, name: str) -> tuple[Entry | None, str, float]:
        """See EntryLockProvider.observe()."""
        with self.asking("read", name):
            seconds, rest, fields = self._run(self._scripts.read, self._key(name))
        known = _fields(fields)
        now = int(seconds) + int(rest) / 1e6
        return _entry(known), known.get("rev", ""), now

    def write(self, name: str, entry: Entry, version: str) -> bool:
        """See EntryLockProvider.write()."""
        until, fields = _micro(entry.lock_until), _stored(entry)
        values = [value for pair in fields.items() for value in pair]
        marks = secrets.token_hex(8), version
        known = (*marks, entry.fencing_token, until, entry.ticks, *values)
        with self.asking("change", name):
            change = self._run_confirmed(self._scripts.write, self._key(name), *known)
            return bool(change)

    def names(self) -> Iterable[str]:
        """See EntryLockProvider.names()."""
        pattern = "".join(f"\\{c}" if c in "*?[]\\" else c for c in self.prefix)
        begin = len(self.prefix.encode()) + 1
        with self.asking("list", None):
            keys = self.clients.client.scan_iter(match=f"{pattern}{{*}}", count=BATCH)
            return {key[begin:-1].decode() for key in keys}

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is the server's."""
        with self.asking("ask the clock of", None):
            seconds, rest = self.clients.client.time()
            return int(seconds) + int(rest) / 1e6

    def read_all(self, names: Collection[str] | None) -> Iterable[LockStatus]:
        """See EntryLockProvider.read_all(). Each ``BATCH`` is one round trip."""
        ordered = sorted(self.names() if names is None else names)
        for start in range(0, len(ordered), BATCH):
            yield from self._read_some(ordered[start : start + BATCH])

    def record_of(self, name: str) -> str:
        """See LockProvider.record_of()."""
        return f"its key {self._key(name)!r} in Redis"

    def place(self) -> Place | None:
        """See LockProvider.place()."""
        with suppress(Exception):  # check() tells what is wrong with the options
            text = f"one Redis server, with the prefix {self.prefix!r}"
            return Place(("redis", *self.clients.address(), self.prefix), text)
        return None

    def try_options(self) -> None:
        """See ServerLockProvider.try_options()."""
        try:
            self.clients.check()
        except (AttributeError, ImportError, TypeError, ValueError):
            raise
        except Exception:  # a cluster's client asks at once: check_store() tells
            return

    def failure(self, error: Exception) -> Failure | None:
        """See ServerLockProvider.failure()."""
        from redis import exceptions as of_redis

        known = (of_redis.RedisError, of_redis.RedisClusterException, OSError)
        if not isinstance(error, known):
            return None
        was_sent = not isinstance(error.__context__, ConnectionRefusedError)
        lost = (of_redis.ConnectionError, of_redis.TimeoutError, OSError)
        return Failure(described(error), was_sent and isinstance(error, lost))

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """See LockProvider.check_store(). It asks the server."""
        return checks.check_server(self.alias, self.clients)

    def _read_some(self, names: Sequence[str]) -> list[LockStatus]:
        with self.asking("read", None):
            now = self.clock()
            with self.clients.client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.hgetall(self._key(name))
                records = dict(zip(names, pipeline.execute(), strict=True))
        return statuses_at(now, names, lambda each: _entry(_decoded(records[each])))

    def _key(self, name: str) -> str:
        # The braces let a cluster keep all that belongs to a lock on one server.
        return f"{self.prefix}{{{name}}}"

    def _taking(self, lock: Lock) -> tuple[Any, ...]:
        configuration = lock.configuration
        by_operator = configuration.start.trigger is Trigger.OPERATOR
        return (
            self._scripts.take,
            self._key(lock.name),
            lock.locked_by,
            configuration.lock_at_most_for // MICROSECOND,
            configuration.lock_at_least_for // MICROSECOND,
            *(("operator",) if by_operator else ()),
        )

    def _extending(
        self, lock: Lock, at_most: timedelta, at_least: timedelta | None
    ) -> tuple[Any, ...]:
        durations = at_most, *(() if at_least is None else (at_least,))
        mark = secrets.token_hex(8)
        known = (mark, lock.locked_by, *(each // MICROSECOND for each in durations))
        return self._scripts.extend, self._key(lock.name), *known

    def _releasing(self, lock: Lock) -> tuple[Any, ...]:
        mark = secrets.token_hex(8)
        known = (mark, lock.locked_by, lock.lock_at_least_for // MICROSECOND)
        tried = ("tried",) if lock.was_release_tried else ()
        return self._scripts.release, self._key(lock.name), *known, *tried

    def _run(self, script: Script, *arguments: Any) -> Any:
        client = self.clients.client
        try:
            return client.execute_command("EVALSHA", script.sha, 1, *arguments)
        except Exception as error:
            if not _is_unknown(error):
                raise
        return client.execute_command("EVAL", script.text, 1, *arguments)

    async def _arun(self, script: Script, *arguments: Any) -> Any:
        client = await self.clients.of_loop()
        try:
            return await client.execute_command("EVALSHA", script.sha, 1, *arguments)
        except Exception as error:
            if not _is_unknown(error):
                raise
        return await client.execute_command("EVAL", script.text, 1, *arguments)

    def _run_confirmed(self, script: Script, *arguments: Any) -> Any:
        if self._wait is None:
            return self._run(script, *arguments)
        # On one connection, since WAIT counts what that has written.
        with self.clients.client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command("EVAL", script.text, 1, *arguments)
            pipeline.execute_command(*self._wait)
            return self._confirmed(*pipeline.execute())

    async def _arun_confirmed(self, script: Script, *arguments: Any) -> Any:
        if self._wait is None:
            return await self._arun(script, *arguments)
        client = await self.clients.of_loop()
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command("EVAL", script.text, 1, *arguments)
            pipeline.execute_command(*self._wait)
            return self._confirmed(*await pipeline.execute())

    def _confirmed(self, answer: Any, replicas: int) -> Any:
        wanted = self._wait[1] if self._wait else 0
        if answer == 1 and replicas < wanted:
            raise Unconfirmed(
                f"Only {replicas} of {wanted} replicas (provider {self.alias!r}) have "
                "the lock, so it was given back. See wait_replicas and wait_timeout."
            )
        return answer

    def _holder(self, lock: Lock, answer: Any) -> LockHolder | None:
        if answer == 1:
            lock.tick = None
            return None
        locked_by, left = answer
        return LockHolder(locked_by.decode(), timedelta(microseconds=left))


class Unconfirmed(LockProviderError):
    """Too few replicas have a change."""

    is_uncertain = True


def _is_unknown(error: Exception) -> bool:
    # The server has not seen the script since it began.
    return type(error).__name__ == "NoScriptError"


def _decoded(fields: dict[bytes, bytes]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in fields.items()}


def _fields(flat: Sequence[bytes]) -> dict[str, str]:
    return _decoded(dict(zip(flat[::2], flat[1::2], strict=True)))


def _entry(fields: dict[str, str]) -> Entry | None:
    if not fields:
        return None
    try:
        return Entry(
            locked_by=fields["by"],
            locked_at=int(fields["at"]) / 1e6,
            lock_until=int(fields["until"]) / 1e6,
            lock_at_least_until=int(fields["least"]) / 1e6,
            fencing_token=int(fields["token"]),
            is_released=fields["released"] != "0",
            extended_at=_extended_at(fields),
            ticks=fields.get("ticks", ""),
        )
    except KeyError as error:
        raise ValueError(f"the field {error} is missing") from error


def _extended_at(fields: dict[str, str]) -> float | None:
    # A former acquisition's stays in the record.
    extended_at = int(fields.get("extended") or 0)
    return extended_at / 1e6 if extended_at > int(fields["at"]) else None


def _stored(entry: Entry) -> dict[str, Any]:
    extended_at = entry.extended_at
    return {
        "by": entry.locked_by,
        "at": _micro(entry.locked_at),
        "until": _micro(entry.lock_until),
        "least": _micro(entry.lock_at_least_until),
        "released": int(entry.is_released),
        "extended": "" if extended_at is None else _micro(extended_at),
        "ticks": entry.ticks,
    }


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def _micro(seconds: float) -> int:
    return round(seconds * 1e6)
