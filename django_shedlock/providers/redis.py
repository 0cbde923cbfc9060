"""The provider of locks in Redis or Valkey."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar, NamedTuple

from django.core.checks import CheckMessage

from django_shedlock.durations import Duration, option_duration
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder, LockStatus
from django_shedlock.providers import redis_records as records
from django_shedlock.providers import redis_server
from django_shedlock.providers.base import Place
from django_shedlock.providers.entries import Entry, Found, Read
from django_shedlock.providers.servers import ServerLockProvider, check_files


class ListedHash(NamedTuple):
    """What ``read_all()`` finds for a lock; ``name`` may be no UTF-8."""

    values: dict[bytes, bytes] | Exception
    clock: float
    name: bytes


class RedisLockProvider(ServerLockProvider[str, ListedHash]):
    """
    Keeps each lock as a hash in Redis or Valkey, by the server's clock.

    A script acquires a lock in one round trip, and another script releases it. ``url``
    names a server, ``redis+sentinel://HOST,HOST/SERVICE`` names the master that
    Sentinel knows, and ``redis+cluster://HOST,HOST`` names a cluster. Each key begins
    with ``prefix``. A record stays for ``retention`` after its lease; with a schedule
    it stays forever. With ``wait_replicas``, an acquisition succeeds once so many
    replicas have it, and fails if that takes longer than ``wait_timeout``. Other
    options are those of redis-py, such as ``socket_timeout``.

    A fail-over of the server can lose a lock.
    """

    read_batch_size: ClassVar[int] = 500
    deletes_records: bool = True
    store: str = "Redis"
    library: str = "redis-py"
    extra: str = "redis"
    address: str = "url"

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
                call = records.acquiring(lock)
                answer = self.server.run(lock.name, call, is_confirmed=True)
        except LockProviderError as error:
            if isinstance(error.__cause__, redis_server.Unconfirmed):
                lock.never_began = True
                with suppress(LockProviderError):
                    error.is_uncertain = not self.release(lock, succeeded=False)
            raise
        return records.answered(lock, answer)

    def extend(self, lock: Lock, *durations: timedelta) -> bool:
        with self.asking("extend", lock.name):
            call = records.extending(lock, *durations)
            return bool(self.server.run(lock.name, call, is_confirmed=True))

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See LockProvider.release(). A change of a tick is one round trip more."""
        changes_ticks = (succeeded and lock.tick is not None) or lock.gives_tick_back
        if changes_ticks or not lock.ends_run:
            return super().release(lock, succeeded=succeeded)
        with self.asking("release", lock.name):
            call = records.releasing(lock, succeeded=succeeded)
            return bool(self.server.run(lock.name, call))

    def read(self, name: str) -> Read[str]:
        """See EntryLockProvider.read(). The version is the mark of the last change."""
        with self.asking("read", name):
            now, found = self.server.run(name, records.ScriptCall(records.Script.READ))
            raise_refusal(found)
        if isinstance(found, list):
            found = dict(zip(found[::2], found[1::2], strict=True))
        return records.parse(found, now / 1e6)

    def write(self, name: str, entry: Entry, version: str) -> bool:
        with self.asking("change", name):
            call = records.writing(entry, version)
            # If a release is lost, the lock is only kept longer.
            is_confirmed = not entry.is_released
            return bool(self.server.run(name, call, is_confirmed=is_confirmed))

    def delete(self, name: str, version: str) -> bool:
        with self.asking("delete", name):
            call = records.ScriptCall(records.Script.DELETE, (version,))
            return bool(self.server.run(name, call))

    def lease_of(self, lock: Lock) -> LockStatus | None:
        """See LockProvider.lease_of(). With ``wait_replicas``, so many confirm it."""
        if not self.server.replicas:
            return self.status(lock.name)
        try:
            entry, mark, now = self.read(lock.name)
            # If the record still has this mark, the script writes the mark again, and
            # the replicas confirm it. Otherwise the script changes nothing.
            call = records.ScriptCall(records.Script.WRITE, (mark, "another"))
            with self.asking("confirm", lock.name):
                is_same = self.server.run(lock.name, call, is_confirmed=True)
            return self._status_of(lock.name, (entry if is_same else None, mark, now))
        except ValueError as error:
            return self._unreadable(lock.name, error)

    def names(self) -> Iterable[str]:
        """See EntryLockProvider.names(). Surrogates escape what is no UTF-8."""
        escaped = "".join(f"\\{c}" if c in "*?[]\\" else c for c in self.prefix)
        pattern, begin = f"{escaped}{{*}}", len(self.prefix.encode()) + 1
        with self.asking("list", None):
            keys = self.server.clients.get().scan_iter(pattern, self.read_batch_size)
            return {key[begin:-1].decode(errors="surrogateescape") for key in keys}

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is the server's."""
        with self.asking("ask the clock of", None):
            seconds, rest = self.server.clients.get().time()
            return int(seconds) + int(rest) / 1e6

    def read_all(self, names: Collection[str] | None) -> Found[ListedHash]:
        """See EntryLockProvider.read_all(). It reads each batch in one round trip."""
        ordered = sorted(self.names() if names is None else names)
        for start in range(0, len(ordered), self.read_batch_size):
            batch, now = ordered[start : start + self.read_batch_size], self.clock()
            with self.asking("read", None):
                with self.server.clients.get().pipeline(transaction=False) as pipeline:
                    for name in batch:
                        pipeline.hgetall(self.server.key(name))
                    hashes = pipeline.execute(raise_on_error=False)
                for found in hashes:
                    raise_refusal(found)
            for name, found in zip(batch, hashes, strict=True):
                raw = name.encode(errors="surrogateescape")
                shown = raw.decode(errors="backslashreplace")
                yield shown, ListedHash(found, now, raw)

    def parse(self, found: ListedHash) -> Read[str]:
        """See EntryLockProvider.parse()."""
        found.name.decode()  # raises ValueError if it is no UTF-8
        return records.parse(found.values, found.clock)

    def record_of(self, name: str) -> str:
        return f"its key {self.server.key(name).decode()!r} in Redis"

    def place(self) -> Place | None:
        with suppress(Exception):  # check() reports wrong options
            text = f"one Redis server, with the prefix {self.prefix!r}"
            return Place(("redis", *self.server.place(), self.prefix), text)
        return None

    def try_options(self) -> None:
        if self.server.kind != "cluster":  # its client would connect at once
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
        text = self.server.explained(error)
        return text, was_sent and isinstance(error, lost)

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """See LockProvider.check_store(). It also warns of servers that lose keys."""
        wrong = super().check_store(databases)
        where = f"SHEDLOCK_PROVIDERS[{self.alias!r}]"
        return wrong or list(self.server.warnings(where))


def raise_refusal(found: Any) -> None:
    """Raise the server's error, unless it is about the type of one key."""
    if isinstance(found, Exception) and "WRONGTYPE" not in str(found):
        raise found
