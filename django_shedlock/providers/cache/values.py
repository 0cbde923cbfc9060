"""What a cache keeps of a lock, and under which key."""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

from django.core.cache.backends.base import MEMCACHE_MAX_KEY_LENGTH, BaseCache

from django_shedlock.clocks import host_now
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder, LockStatus, state_of

PLAIN = re.compile(r"[a-z0-9_.:@/+-]+")
"""
A name that is its own key.

Capitals are not: MySQL's usual collations take them for small letters. Nor is ``=``,
which marks the keys that are no plain names.
"""
ODD = re.compile(r"[^a-z0-9_.:@/+-]+")
LONGEST_SLUG = 60


def key_of(name: str, prefix: str, cache: BaseCache) -> str:
    """Return the key of the lock; no two names share one."""
    key = prefix + name
    is_plain = PLAIN.fullmatch(name) and _fits(key, cache)
    return key if is_plain else f"{prefix}{_slug(name)}={_digest(name)}"


def guard_of(name: str, prefix: str) -> str:
    """Return the key that one operator at a time has, while it changes the lock."""
    return f"{prefix}guard={_digest(name)}"


def longest_key(prefix: str) -> str:
    """Return a key as long as any: what the cache adds to it must leave room."""
    return f"{prefix}{'x' * LONGEST_SLUG}={_digest('')}"


def _fits(key: str, cache: BaseCache) -> bool:
    return len(cache.make_key(key).encode()) <= MEMCACHE_MAX_KEY_LENGTH


def _slug(name: str) -> str:
    return ODD.sub("_", name.lower())[:LONGEST_SLUG]


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Value:
    """
    One acquisition, in seconds since 1970 by the clock of the host that wrote it.

    The times are there to be shown. Whether the lock is held, its key decides: it is
    there, or it is not.
    """

    by: str
    at: float
    until: float
    least: float
    released: bool = False

    @classmethod
    def taken(cls, lock: Lock) -> Value:
        """Return the value of an acquisition now."""
        now, configuration = time.time(), lock.configuration
        return cls(
            by=lock.locked_by,
            at=now,
            until=now + configuration.lock_at_most_for.total_seconds(),
            least=now + configuration.lock_at_least_for.total_seconds(),
        )

    @classmethod
    def parse(cls, text: object) -> Value:
        """Return the value of this text; raise ``ValueError`` if it is of no lock."""
        try:
            return cls(**json.loads(text))  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise ValueError(f"{text!r:.100} is no lock: {error}") from error

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    @property
    def left(self) -> float:
        """The seconds until the end of the lease, at least zero."""
        return max(0.0, self.until - time.time())

    def kept_for(self, lock: Lock) -> float:
        """Return the seconds for which ``lock_at_least_for`` keeps the lock."""
        # If the clock was set back, not for longer than if it was acquired now.
        longest = lock.lock_at_least_for.total_seconds()
        return min(max(0.0, self.least - time.time()), longest)

    def extended(
        self, lock_at_most_for: timedelta, lock_at_least_for: timedelta | None = None
    ) -> Value:
        """Return the value after an extension from now, which shortens nothing."""
        now, least = time.time(), self.least
        if lock_at_least_for is not None:
            least = now + lock_at_least_for.total_seconds()
        until = max(self.until, now + lock_at_most_for.total_seconds())
        return replace(self, until=until, least=least)

    def kept(self, seconds: float) -> Value:
        """Return the value of a released lock that is kept for so long."""
        return replace(self, until=time.time() + seconds, released=True)

    def holder(self) -> LockHolder:
        """Return the holder, as a caller that did not get the lock learns of it."""
        return LockHolder(self.by, timedelta(seconds=self.left))

    def status(self, name: str) -> LockStatus:
        """Return the lock of this name, by this host's clock."""
        remaining = timedelta(seconds=self.left)
        return LockStatus(
            name=name,
            state=state_of(self.by, is_held=bool(remaining), is_released=self.released),
            locked_by=self.by,
            locked_at=datetime.fromtimestamp(self.at, UTC),
            lock_until=datetime.fromtimestamp(self.until, UTC),
            remaining=remaining,
            clock=host_now(),
        )
