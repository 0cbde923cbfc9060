"""The provider of locks in Redis or Valkey."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.core.checks import CheckMessage

from django_shedlock.durations import Duration, option_duration
from django_shedlock.exceptions import LockProviderError, described
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockStatus
from django_shedlock.providers import redis_records as records
from django_shedlock.providers import redis_server
from django_shedlock.providers.base import Place
from django_shedlock.providers.entries import Entry, Found, Read
from django_shedlock.providers.servers import ServerLockProvider, check_files

READ_BATCH_SIZE = 500


class RedisLockProvider(ServerLockProvider):
    """
    Keeps each lock as a hash in Redis or Valkey, by the server's clock.

    A script acquires a lock in one round trip, and another one releases it. ``url``
    names a server, ``redis+sentinel://HOST,HOST/SERVICE`` its master, and
    ``redis+cluster://HOST,HOST`` a cluster. ``prefix`` begins each key. A record stays
    for ``retention`` after its lease; one with a schedule stays. With ``wait_replicas``
    a lock is acquired once so many replicas have it, else within ``wait_timeout`` the
    acquisition fails. Other options are those of redis-py, as ``socket_timeout``.

    A fail-over of the server can lose a lock.
    """

    store: str = "Redis"
    library: str = "redis-py"
    extra: str = "redis"

    def __init__(
        self,
        alias: str,
        *,
        url: str,
        prefix: str = "shedlock:",
        retention: Duration = "1d",
        wait_replicas: int = 0,
        wait_timeout: Duration = "1s",
        **options: Any,
    ):
        super().__init__(alias, **options)
        if not isinstance(prefix, str):
            raise ValueError(f"prefix={prefix!r} is no text")
        self.prefix = prefix
        wait = wait_replicas, option_duration("wait_timeout", wait_timeout)
        kept = option_duration("retention", retention)
        self.server: redis_server.RedisServer = redis_server.RedisServer(
            url, self.client_options, kept, wait, prefix
        )

    def acquire(self, lock: Lock) -> LockHolder | None:
        """See LockProvider.acquire(). It is one round trip; with a schedule two."""
        try:
            if lock.configuration.schedule is not None:
                return super().acquire(lock)
            with self.asking("acquire", lock.name):
                request = lock.name, *records.acquiring(lock)
                answer = self.server.run(*request, is_confirmed=True)
        except LockProviderError as error:
            if isinstance(error.__cause__, redis_server.Unconfirmed):
                lock.never_began = True
                with suppress(LockProviderError):
                    error.is_uncertain = not self.release(lock, succeeded=False)
            raise
        return records.answered(lock, answer)

    def extend(self, lock: Lock, *durations: timedelta) -> bool:
        with self.asking("extend", lock.name):
            request = records.extending(lock, *durations)
            return bool(self.server.run(lock.name, *request, is_confirmed=True))

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See LockProvider.release(). A change of a tick is one round trip more."""
        changes_ticks = succeeded and lock.tick is not None
        if changes_ticks or not lock.ends_run:
            return super().release(lock, succeeded=succeeded)
        with self.asking("release", lock.name):
            request = records.releasing(lock, succeeded=succeeded)
            return bool(self.server.run(lock.name, *request))

    def read(self, name: str) -> Read:
        """See EntryLockProvider.read(). The version is the mark of the last change."""
        with self.asking("read", name):
            now, found = self.server.run(name, records.Script.READ)
        if isinstance(found, list):
            found = dict(zip(found[::2], found[1::2], strict=True))
        return records.parse(found, now / 1e6)

    def write(self, name: str, entry: Entry, version: str) -> bool:
        with self.asking("change", name):
            request = name, *records.writing(entry, version)
            is_confirmed = not entry.is_released  # a lost one only keeps it longer
            return bool(self.server.run(*request, is_confirmed=is_confirmed))

    def lease_of(self, lock: Lock) -> LockStatus | None:
        """See LockProvider.lease_of(). With ``wait_replicas`` they all have it."""
        if not self.server.replicas:
            return self.status(lock.name)
        try:
            entry, mark, now = self.read(lock.name)
            # Another mark, so it changes nothing, and fails if somebody has.
            request = lock.name, records.Script.WRITE, mark, "another"
            with self.asking("confirm", lock.name):
                is_same = self.server.run(*request, is_confirmed=True)
            read = entry if is_same else None, mark, now
            return self._status_of(lock.name, read)
        except ValueError as error:
            return self._unreadable(lock.name, error)

    def names(self) -> Iterable[str]:
        """See EntryLockProvider.names(). What is no UTF-8 is escaped as surrogates."""
        pattern = "".join(f"\\{c}" if c in "*?[]\\" else c for c in self.prefix)
        begin = len(self.prefix.encode()) + 1
        with self.asking("list", None):
            keys = self.server.clients.get().scan_iter(
                f"{pattern}{{*}}", READ_BATCH_SIZE
            )
            return {key[begin:-1].decode(errors="surrogateescape") for key in keys}

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is the server's."""
        with self.asking("ask the clock of", None):
            seconds, rest = self.server.clients.get().time()
            return int(seconds) + int(rest) / 1e6

    def read_all(self, names: Collection[str] | None) -> Found:
        """See EntryLockProvider.read_all(). Each batch is one round trip."""
        ordered = sorted(self.names() if names is None else names)
        for start in range(0, len(ordered), READ_BATCH_SIZE):
            batch, now = ordered[start : start + READ_BATCH_SIZE], self.clock()
            with self.asking("read", None):
                with self.server.clients.get().pipeline(transaction=False) as pipeline:
                    for name in batch:
                        pipeline.hgetall(self.server.key(name))
                    hashes = pipeline.execute(raise_on_error=False)
                for found in hashes:
                    if isinstance(found, Exception) and "WRONGTYPE" not in str(found):
                        raise found
            for name, found in zip(batch, hashes, strict=True):
                raw = name.encode(errors="surrogateescape")
                shown = raw.decode(errors="backslashreplace")
                yield shown, (found, now, raw)

    def parse(self, found: Any) -> Read:
        """See EntryLockProvider.parse()."""
        values, now, name = found
        name.decode()  # raises ValueError if it is no UTF-8
        return records.parse(values, now)

    def record_of(self, name: str) -> str:
        return f"its key {self.server.key(name).decode()!r} in Redis"

    def place(self) -> Place | None:
        with suppress(Exception):  # check() reports what is wrong with the options
            text = f"one Redis server, with the prefix {self.prefix!r}"
            return Place(("redis", *self.server.place(), self.prefix), text)
        return None

    def try_options(self) -> None:
        if self.server.kind != "cluster":  # whose client asks at once
            pool = self.server.clients.get().connection_pool
            pool.make_connection()
            files = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
            check_files(pool.connection_kwargs, files)

    def explain(self, error: Exception) -> tuple[str, bool] | None:
        from redis import exceptions as of_redis

        if isinstance(error, redis_server.Unconfirmed):
            return str(error), True
        known = (of_redis.RedisError, of_redis.RedisClusterException, OSError)
        if not isinstance(error, known):
            return None
        was_sent = not isinstance(error.__context__, ConnectionRefusedError)
        lost = (of_redis.ConnectionError, of_redis.TimeoutError, OSError)
        text = described(error).partition(" script: ")[0].rstrip(".")
        return text + _advice(text), was_sent and isinstance(error, lost)

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """See LockProvider.check_store(). It also asks who may lose keys."""
        wrong = super().check_store(databases)
        where = f"SHEDLOCK_PROVIDERS[{self.alias!r}]"
        return wrong or list(self.server.warnings(where))


def _advice(text: str) -> str:
    """Return what to do about an error with this text, after a full stop."""
    advice = ""
    if "OutOfMemoryError" in text:
        advice += ". Give the server more memory, or delete what nobody needs"
    if "ReadOnlyError" in text:
        advice += ". It is a replica: let `url` name the master"
    if "WRONGTYPE" in text:
        advice += (
            ". Somebody else's key has its name: delete that, or change the prefix"
        )
    return advice
