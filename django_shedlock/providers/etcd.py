"""The provider of locks in etcd."""

import json
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any, NamedTuple

from django_shedlock.durations import Duration, option_duration
from django_shedlock.exceptions import LockProviderError
from django_shedlock.providers import etcd_gateway as gateway
from django_shedlock.providers.base import Place
from django_shedlock.providers.entries import Entry, Found, Read, readable_number
from django_shedlock.providers.servers import ServerLockProvider, check_files

# The clocks of members have whole seconds, so a lease is longer by this.
CLOCK_STEP_SECONDS = 1


class SeenKeys(NamedTuple):
    """
    The two keys of a lock as ``read()`` saw them. ``write()`` changes nothing newer.

    ``store`` is the revision of the store, and ``clock`` the member's clock, then.
    """

    record: gateway.Known
    holder: gateway.Known
    store: int
    clock: float


class ListedKeys(NamedTuple):
    """The two keys of a lock as ``read_all()`` saw them; ``name`` may be no UTF-8."""

    name: bytes
    record: gateway.Known
    holder: gateway.Known
    store: int
    clock: float


class EtcdLockProvider(ServerLockProvider[SeenKeys, ListedKeys]):
    """
    Keeps locks in etcd, which ends a lease by itself and needs a majority of members.

    Each lock has a record, which stays. While the lock is held it has a second key,
    which belongs to a lease of etcd. The second key decides whether the lock is held.

    ``endpoints`` are the URLs of members. They are asked in turn, and all together they
    have ``timeout`` to answer. Each key begins with ``prefix``. ``user`` logs in with
    ``password``. Other options are those of ``etcd3gw.Etcd3Client``, such as
    ``ca_cert``. Environment variables have no effect.
    """

    shortest_lease: timedelta = timedelta(seconds=1)
    store: str = "etcd"
    library: str = "etcd3gw"
    extra: str = "etcd"

    def __init__(
        self,
        alias: str,
        *,
        endpoints: str | Sequence[str],
        prefix: str = "shedlock/",
        timeout: Duration = "5s",
        user: str | None = None,
        password: str | None = None,
        **options: Any,
    ):
        super().__init__(alias, **options)
        if not isinstance(prefix, str):
            raise ValueError(f"prefix={prefix!r} is no text")
        self.prefix = prefix
        seconds = option_duration("timeout", timeout).total_seconds()
        options = {**self.client_options, "user": user, "password": password}
        self.members: gateway.Members = gateway.Members(endpoints, seconds, options)
        self._records = f"{prefix}records/".encode()
        self._holders = f"{prefix}holders/".encode()

    def read(self, name: str) -> Read[SeenKeys]:
        """See EntryLockProvider.read(). It is one round trip."""
        keys = self._keys(name)
        steps: gateway.EtcdJson = {"success": [gateway.read_key(key) for key in keys]}
        result, clock = self._ask("read", name, "kv/txn", steps)
        found = gateway.answers(result)
        record, holder = (found.get(key, gateway.Known()) for key in keys)
        store = int(result["header"]["revision"])
        entry, _ = _entry_and_lease(record, holder, clock)
        return entry, SeenKeys(record, holder, store, clock), clock

    def write(self, name: str, entry: Entry, version: SeenKeys) -> bool:
        """See EntryLockProvider.write(). It revokes a lease that it does not use."""
        clock = version.clock
        found, granted = _entry_and_lease(version.record, version.holder, clock)
        before, lease = found or Entry.free(clock), version.holder.lease
        is_same = entry.fencing_token == before.fencing_token
        is_released = entry.is_released and entry.lock_until == before.lock_until
        if lease and (is_released or entry.differs_only_in_its_job_from(before)):
            return self._put(name, entry, version, lease, granted)[0]
        left = entry.lock_until - clock
        seconds: float = ceil(left) + CLOCK_STEP_SECONDS if left > 0 else 0
        is_extension = lease and is_same and not entry.is_released
        if is_extension and seconds < granted:
            # An extension must not shorten a lease, and only etcd knows what is left.
            which: gateway.EtcdJson = {"ID": str(lease)}
            answer, _ = self._ask("extend", name, "lease/timetolive", which)
            seconds = max(seconds, int(answer["TTL"]) + CLOCK_STEP_SECONDS)
        new = 0
        if seconds:
            grant: gateway.EtcdJson = {"TTL": seconds, "ID": 0}
            answer, _ = self._ask("acquire", name, "lease/grant", grant)
            new = int(answer["ID"])
        is_written, in_use = self._put(name, entry, version, new, seconds)
        unused = lease if is_written else new
        if unused and unused != in_use:
            with suppress(LockProviderError):  # if this fails, the lease ends soon
                which = {"ID": str(unused)}
                self._ask("revoke a lease of", None, "lease/revoke", which)
        return is_written

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is that of the member that answers."""
        step: gateway.EtcdJson = {"success": [gateway.read_key(self._records)]}
        return self._ask("ask the clock of", None, "kv/txn", step)[1]

    def least_token(self, version: SeenKeys, clock: datetime) -> int:
        """See EntryLockProvider.least_token(). It is the revision of the store."""
        return version.store + 1

    def read_all(self, names: Collection[str] | None) -> Found[ListedKeys]:
        """See EntryLockProvider.read_all(). It reads all locks in one round trip."""
        if names is not None:
            return super().read_all(names)
        prefixes = self._records, self._holders
        steps = [gateway.read_key(prefix, is_prefix=True) for prefix in prefixes]
        result, clock = self._ask("list", None, "kv/txn", {"success": steps})
        found, store = gateway.answers(result), int(result["header"]["revision"])
        known = {
            key.removeprefix(prefix)
            for prefix in prefixes
            for key in found
            if key.startswith(prefix)
        }
        reads = []
        for each in known:
            record, holder = (
                found.get(prefix + each, gateway.Known()) for prefix in prefixes
            )
            name = each.decode(errors="backslashreplace")
            reads.append((name, ListedKeys(each, record, holder, store, clock)))
        return reads

    def parse(self, found: ListedKeys) -> Read[SeenKeys]:
        """See EntryLockProvider.parse()."""
        name, record, holder, store, clock = found
        name.decode()  # raises ValueError if it is no UTF-8
        entry, _ = _entry_and_lease(record, holder, clock)
        return entry, SeenKeys(record, holder, store, clock), clock

    def record_of(self, name: str) -> str:
        return f"its key {self._keys(name)[0].decode()!r} in etcd"

    def place(self) -> Place | None:
        text = f"one etcd, with the prefix {self.prefix!r}"
        return Place(("etcd", *sorted(self.members.urls), self.prefix), text)

    def try_options(self) -> None:
        self.members.connect()
        check_files(self.members.options, ("ca_cert", "cert_cert", "cert_key"))

    def explain(self, error: Exception) -> tuple[str, bool] | None:
        if isinstance(error, gateway.Unanswered):
            return str(error), error.is_uncertain
        return None

    def _keys(self, name: str) -> tuple[bytes, bytes]:
        return self._records + name.encode(), self._holders + name.encode()

    def _put(
        self, name: str, entry: Entry, version: SeenKeys, lease: int, seconds: float
    ) -> tuple[bool, int]:
        """Return whether the entry is written, and which lease the lock has then."""
        mark = secrets.token_hex(8)
        ours = {"lease_seconds": seconds, "mark": mark}
        value = json.dumps({**json.loads(entry.to_json()), **ours}).encode()
        record, holder = keys = self._keys(name)
        hold = (
            gateway.put_key(holder, value, lease)
            if lease
            else gateway.delete_key(holder)
        )
        change: gateway.EtcdJson = {
            "compare": [
                gateway.unchanged(record, version.record.revision),
                gateway.unchanged(holder, version.holder.revision),
            ],
            "success": [gateway.put_key(record, value), hold],
            "failure": [gateway.read_key(key) for key in keys],
        }
        result, _ = self._ask("change", name, "kv/txn", change)
        if result.get("succeeded"):
            return True, lease
        # Another member may have written it, and its answer was lost. Then our mark is
        # there. Or somebody else wrote since, and our lease may be in use.
        found = gateway.answers(result)
        is_ours = mark.encode() in found.get(record, gateway.Known()).value
        return is_ours, found.get(holder, gateway.Known()).lease

    def _ask(
        self, verb: str, name: str | None, path: str, request: gateway.EtcdJson
    ) -> tuple[Any, float]:
        with self.asking(verb, name):
            return self.members.ask(path, request)


def _entry_and_lease(
    record: gateway.Known, holder: gateway.Known, clock: float
) -> tuple[Entry | None, float]:
    """
    Return the entry, if there is one, and the seconds for which its lease was granted.

    The lease of etcd decides whether the lock is held, whatever the clocks say, and
    even after somebody has deleted the record. Raises ``ValueError`` if the value is no
    record.
    """
    if not record.revision and not holder.revision:
        return None, 0
    try:
        values = json.loads((record if record.revision else holder).value)
        values.pop("mark", None)
        seconds = readable_number(values.pop("lease_seconds", 0))
    except (AttributeError, RecursionError, TypeError) as error:
        raise ValueError(f"its value is no record of a lock: {error}") from error
    entry = Entry.from_json(json.dumps(values))
    if not holder.revision:
        return replace(entry, lock_until=min(entry.lock_until, clock)), 0
    until = max(entry.lock_until, clock + CLOCK_STEP_SECONDS)
    if seconds:
        until = min(until, clock + seconds)
    return replace(entry, lock_until=until), seconds
