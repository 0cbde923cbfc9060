"""Locks in a cache of ``CACHES``: for projects whose hosts share one anyway."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from django.core.checks import CheckMessage
from django.utils import timezone

from django_shedlock.clocks import Backoff
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock, new_identity
from django_shedlock.locks.states import CONTENDED, LockHolder, LockStatus
from django_shedlock.providers.base import LockProvider, Place
from django_shedlock.providers.cache import checks
from django_shedlock.providers.cache.clients import Clients
from django_shedlock.providers.cache.stores import Store, store_of
from django_shedlock.providers.cache.values import Value, guard_of, key_of
from django_shedlock.schedules.starts import Trigger

TRIES = 3
"""How often a lock is asked for, if its key is there and gone again."""
GUARD = 10.0
"""Seconds for which an operator has a lock's guard at the most."""
GUARD_WAIT = timedelta(seconds=5)


class CacheLockProvider(LockProvider):
    """
    Keeps each lock as a key of the cache ``cache``, an alias of ``CACHES``.

    The atomic ``add`` of the cache acquires it. The key's timeout ends the lease. Keys
    begin with ``prefix``. A cache may lose keys, and only ``add`` is one step; see
    the documentation for what follows from that.
    """

    lists_locks = False
    checks_owner = False
    counts_acquisitions = False
    shortest_lease = timedelta(seconds=1)

    def __init__(
        self,
        alias: str,
        *,
        cache: str = "default",
        prefix: str = "shedlock:",
        keep_alive: bool = False,
        history_database: str | None = None,
    ):
        super().__init__(
            alias, keep_alive=keep_alive, history_database=history_database
        )
        self.cache = cache
        self.prefix = prefix
        self._clients = Clients(cache)

    def take(self, lock: Lock) -> LockHolder | None:
        """See LockProvider.take(). The cache's ``add`` decides."""
        if lock.configuration.start.trigger is not Trigger.OPERATOR:
            return self._take(lock)
        with self._guarded(lock.name):
            self._end_kept(lock.name)
            return self._take(lock)

    def take_over(self, lock: Lock, locked_by: str) -> bool:
        """See LockProvider.take_over(). Nobody else comes between: the key stays."""
        with self._guarded(lock.name):
            value = self._read(lock.name)
            if value is None or value.by != locked_by or not value.left:
                return False
            lease = lock.configuration.lock_at_most_for.total_seconds()
            return self._replace("acquire", lock.name, value, Value.taken(lock), lease)

    def extend(
        self,
        lock: Lock,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta | None = None,
    ) -> bool:
        """See LockProvider.extend()."""
        value = self._read(lock.name)
        if value is None or not _is_valid(lock, value):
            return False
        new = value.extended(lock_at_most_for, lock_at_least_for)
        # After a long pause in between, somebody else may have had the lock.
        is_ours = self._replace("extend", lock.name, value, new, new.left)
        return is_ours and _is_valid(lock, value)

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See LockProvider.release(). After the end of the lease it does nothing."""
        value = self._read(lock.name)
        if value is None or value.by != lock.locked_by or value.released:
            # Sent again after a lost reply, our own first try has released it.
            return lock.was_release_tried and time.monotonic() < lock.lease_end
        if not _is_valid(lock, value):
            return False
        kept_for = value.kept_for(lock)
        if kept_for:
            kept = value.kept(kept_for)
            return self._replace("release", lock.name, value, kept, kept_for)
        return self._delete("release", lock.name, value)

    def fencing_token(self, lock: Lock) -> int | None:
        """See LockProvider.fencing_token(). A cache that forgets keys can't count."""
        raise LockProviderError(
            f"Lock {lock.name!r}: the provider {self.alias!r} keeps its locks in a "
            "cache, which may forget how often a lock was acquired. Keep this lock in "
            "a database for fencing_token."
        )

    def now(self) -> datetime:
        """See LockProvider.now(). It is this host's, but the cache has to answer."""
        self._read("")
        return timezone.now()

    def statuses(self, name: str | None = None) -> Sequence[LockStatus]:
        """See LockProvider.statuses(). Without a name there are none to be told."""
        value = None if name is None else self._read(name)
        return [] if name is None or value is None else [value.status(name)]

    def statuses_of(self, names: Collection[str]) -> Sequence[LockStatus]:
        """See LockProvider.statuses_of()."""
        ordered = sorted(set(names))
        values = [self._read(name, prove=False) for name in ordered]
        if None in values:  # for all of them at once
            self._read("")
        found = zip(ordered, values, strict=True)
        return [value.status(name) for name, value in found if value is not None]

    def force_release(
        self, name: str, *, running: bool = False, locked_by: str | None = None
    ) -> bool:
        """See LockProvider.force_release()."""
        with self._guarded(name):
            value = self._read(name)
            if value is None or locked_by not in {None, value.by}:
                return False
            may_release = value.released or running
            return may_release and self._delete("release", name, value)

    def force_extend(
        self, name: str, lock_at_most_for: timedelta, *, locked_by: str | None = None
    ) -> bool:
        """See LockProvider.force_extend()."""
        with self._guarded(name):
            value = self._read(name)
            if value is None or locked_by not in {None, value.by} or not value.left:
                return False
            new = value.extended(lock_at_most_for)
            return self._replace("extend", name, value, new, new.left)

    def place(self) -> Place | None:
        """See LockProvider.place()."""
        return checks.place_of(self.cache, self.prefix)

    def check(self) -> list[CheckMessage]:
        """See LockProvider.check()."""
        return checks.check_cache(self.alias, self.cache, self.prefix)

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """See LockProvider.check_store()."""
        return checks.check_store(self.cache, self._clients, databases)

    def _take(self, lock: Lock) -> LockHolder | None:
        lease = lock.configuration.lock_at_most_for.total_seconds()
        with self._using("acquire", lock.name) as (store, key):
            for _ in range(TRIES):
                try:
                    is_ours = store.add(
                        key, str(Value.taken(lock)), lease + store.margin
                    )
                except Exception as error:
                    if store.is_contention(error):
                        return CONTENDED
                    raise
                value = None if is_ours else _parsed(store.get(key))
                # The client may have sent it again, after our first try was stored.
                if is_ours or (value and value.by == lock.locked_by):
                    return None
                if value is not None:
                    return value.holder()
            self._require_answers(store, lock.name)
        return CONTENDED

    def _end_kept(self, name: str) -> None:
        value = self._read(name)
        if value is not None and value.released:
            self._delete("release", name, value)

    def _read(self, name: str, *, prove: bool = True) -> Value | None:
        with self._using("read", name) as (store, key):
            value = _parsed(store.get(key))
            if value is None and prove:
                self._require_answers(store, name)
            return value

    def _replace(
        self, verb: str, name: str, old: Value, new: Value, seconds: float
    ) -> bool:
        with self._using(verb, name) as (store, key):
            margin = 0 if new.released else store.margin
            return store.replace(key, str(old), str(new), seconds + margin)

    def _delete(self, verb: str, name: str, old: Value) -> bool:
        with self._using(verb, name) as (store, key):
            return store.delete(key, str(old))

    def _require_answers(self, store: Store, name: str) -> None:
        # Some clients tell of an error only that there is no such key.
        if not store.answers(f"{self.prefix}probe={secrets.token_hex(8)}"):
            raise LockProviderError(
                f"Nothing is known of {_named(name)}: the cache {self.cache!r} "
                f"(provider {self.alias!r}) keeps nothing, and reports no error. Is it "
                "reachable, and does its client hide errors (ignore_exc, "
                "IGNORE_EXCEPTIONS)?"
            )

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        # Of two operators, the second could delete what the first has just acquired.
        guard, mark = guard_of(name, self.prefix), new_identity()
        backoff = Backoff(GUARD_WAIT)
        while not self._add_guard(name, guard, mark):
            if backoff.is_over:
                raise LockProviderError(
                    f"Lock {name!r}: another operator's action is under way in cache "
                    f"{self.cache!r} (provider {self.alias!r}). Try it again."
                )
            time.sleep(backoff.pause())
        try:
            yield
        finally:
            with suppress(LockProviderError), self._using("read", name) as (store, _):
                store.delete(guard, mark)

    def _add_guard(self, name: str, guard: str, mark: str) -> bool:
        with self._using("read", name) as (store, _):
            if store.add(guard, mark, GUARD):
                return True
            if store.get(guard) is None:
                self._require_answers(store, name)
            return False

    @contextmanager
    def _using(self, verb: str, name: str) -> Iterator[tuple[Store, str]]:
        store = None
        try:
            cache = self._clients.get()
            store = store_of(cache)
            yield store, key_of(name, self.prefix, cache)
        except LockProviderError:
            self._clients.forget()
            raise
        except Exception as error:
            self._clients.forget()
            raise self._failure(verb, name, store, error) from error
        except BaseException:
            self._clients.forget()
            raise

    def _failure(
        self, verb: str, name: str, store: Store | None, error: Exception
    ) -> LockProviderError:
        told = str(error) if store is None else store.advice(error)
        failure = LockProviderError(
            f"Could not {verb} {_named(name)} in cache {self.cache!r} (provider "
            f"{self.alias!r}): {told}"
        )
        is_write = verb != "read"
        failure.is_uncertain = bool(is_write and store and store.is_uncertain(error))
        return failure


def _named(name: str) -> str:
    return f"lock {name!r}" if name else "the locks"


def _parsed(text: object) -> Value | None:
    return None if text is None else Value.parse(text)


def _is_valid(lock: Lock, value: Value) -> bool:
    # An operator may have extended the lease, which only the value tells.
    is_ours = value.by == lock.locked_by and not value.released
    return is_ours and (time.monotonic() < lock.lease_end or value.left > 0)
