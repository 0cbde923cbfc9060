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
from django_shedlock.providers.etcd_gateway import Known, Members, Unanswered
from django_shedlock.providers.servers import ServerLockProvider, check_files

CLOCK_STEP_SECONDS = 1
"""The clocks of members say only the second, so a lease is longer by one."""


class Version(NamedTuple):
    """What ``read()`` has seen; ``write()`` changes only that."""

    record: Known
    holder: Known
    store: int
    clock: float


class EtcdLockProvider(ServerLockProvider):
    """
    Keeps locks in etcd, which ends a lease by itself and needs a majority of members.

    A lock is a record, which stays, and while it is held a second key, which belongs to
    a lease of etcd. That key decides. ``endpoints`` are the URLs of members, which are
    asked in turn, all together for ``timeout``. ``prefix`` begins each key. ``user``
    logs in with ``password``. Other options are those of ``etcd3gw.Etcd3Client``, as
    ``ca_cert``. Nothing is read from the environment.
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
        self.members: Members = Members(endpoints, seconds, options)
        self._records = f"{prefix}records/".encode()
        self._holders = f"{prefix}holders/".encode()

    def read(self, name: str) -> Read:
        """See EntryLockProvider.read(). It is one round trip."""
        keys = self._keys(name)
        steps = {"success": [gateway.read_key(key) for key in keys]}
        result, clock = self._ask("read", name, "kv/txn", steps)
        found = gateway.answers(result)
        record, holder = (found.get(key, Known()) for key in keys)
        store = int(result["header"]["revision"])
        entry, *_ = _read(record, holder, clock)
        return entry, Version(record, holder, store, clock), clock

    def write(self, name: str, entry: Entry, version: Version) -> bool:
        """See EntryLockProvider.write(). What it can't use of a lease it revokes."""
        found, granted, clock = _read(version.record, version.holder, version.clock)
        before, lease = found or Entry.free(clock), version.holder.lease
        is_same = entry.fencing_token == before.fencing_token
        is_released = entry.is_released and entry.lock_until == before.lock_until
        if lease and (is_released or entry.differs_only_in_its_job_from(before)):
            return self._put(name, entry, version, lease, granted)[0]
        left = entry.lock_until - clock
        seconds = ceil(left) + CLOCK_STEP_SECONDS if left > 0 else 0
        is_extension = lease and is_same and not entry.is_released
        if is_extension and seconds < granted:
            # No extension shortens a lease, and only etcd knows what is left of it.
            which = {"ID": str(lease)}
            answer, _ = self._ask("extend", name, "lease/timetolive", which)
            seconds = max(seconds, int(answer["TTL"]) + CLOCK_STEP_SECONDS)
        new = 0
        if seconds:
            grant = {"TTL": seconds, "ID": 0}
            answer, _ = self._ask("acquire", name, "lease/grant", grant)
            new = int(answer["ID"])
        is_written, in_use = self._put(name, entry, version, new, seconds)
        unused = lease if is_written else new
        if unused and unused != in_use:
            with suppress(LockProviderError):  # it ends soon, should that fail
                which = {"ID": str(unused)}
                self._ask("revoke a lease of", None, "lease/revoke", which)
        return is_written

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is that of the member that answers."""
        step = {"success": [gateway.read_key(self._records)]}
        return self._ask("ask the clock of", None, "kv/txn", step)[1]

    def least_token(self, version: Version, clock: datetime) -> int:
        """See EntryLockProvider.least_token(). It is the revision of the store."""
        return version.store + 1

    def read_all(self, names: Collection[str] | None) -> Found:
        """See EntryLockProvider.read_all(). All of them are one round trip."""
        if names is not None:
            return super().read_all(names)
        prefixes = self._records, self._holders
        steps = [gateway.read_key(prefix, is_prefix=True) for prefix in prefixes]
        result, clock = self._ask("list", None, "kv/txn", {"success": steps})
        found = gateway.answers(result)
        known = {
            key.removeprefix(prefix)
            for prefix in prefixes
            for key in found
            if key.startswith(prefix)
        }
        reads: list[tuple[str, Any]] = []
        for each in known:
            record, holder = (found.get(prefix + each, Known()) for prefix in prefixes)
            name = each.decode(errors="backslashreplace")
            reads.append((name, (each, record, holder, clock)))
        return reads

    def parse(self, found: Any) -> Read:
        """See EntryLockProvider.parse()."""
        name, record, holder, clock = found
        name.decode()  # raises ValueError if it is no UTF-8
        return _read(record, holder, clock)

    def record_of(self, name: str) -> str:
        return f"its key {self._keys(name)[0].decode()!r} in etcd"

    def place(self) -> Place | None:
        text = f"one etcd, with the prefix {self.prefix!r}"
        return Place(("etcd", *sorted(self.members.urls), self.prefix), text)

    def try_options(self) -> None:
        self.members.connect()
        check_files(self.members.options, ("ca_cert", "cert_cert", "cert_key"))

    def explain(self, error: Exception) -> tuple[str, bool] | None:
        if isinstance(error, Unanswered):
            return str(error), error.is_uncertain
        return None

    def _keys(self, name: str) -> tuple[bytes, bytes]:
        return self._records + name.encode(), self._holders + name.encode()

    def _put(
        self, name: str, entry: Entry, version: Version, lease: int, seconds: int
    ) -> tuple[bool, int]:
        # Returns whether it is written, and which lease the lock has then.
        mark = secrets.token_hex(8)
        ours = {"lease_seconds": seconds, "mark": mark}
        value = json.dumps({**json.loads(entry.to_json()), **ours}).encode()
        record, holder = keys = self._keys(name)
        hold = (
            gateway.put_key(holder, value, lease)
            if lease
            else gateway.delete_key(holder)
        )
        change = {
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
        # Another member may have done it, and its answer was lost: then our mark is
        # there, or somebody wrote since, and our lease may be in use.
        found = gateway.answers(result)
        is_ours = mark.encode() in found.get(record, Known()).value
        return is_ours, found.get(holder, Known()).lease

    def _ask(
        self, verb: str, name: str | None, path: str, request: dict[str, Any]
    ) -> tuple[Any, float]:
        with self.asking(verb, name):
            return self.members.ask(path, request)


def _read(record: Known, holder: Known, clock: float) -> Read:
    """
    Return the entry, if there is one, the seconds of its lease, and the clock.

    The lease of etcd decides whether the lock is held, whatever the clocks say, and
    also after somebody has deleted the record. Raises ``ValueError``.
    """
    if not record.revision and not holder.revision:
        return None, 0, clock
    try:
        values = json.loads((record if record.revision else holder).value)
        values.pop("mark", None)
        seconds = readable_number(values.pop("lease_seconds", 0))
    except (AttributeError, RecursionError, TypeError) as error:
        raise ValueError(f"its value is no record of a lock: {error}") from error
    entry = Entry.from_json(json.dumps(values))
    if not holder.revision:
        over = replace(entry, lock_until=min(entry.lock_until, clock))
        return over, 0, clock
    until = max(entry.lock_until, clock + CLOCK_STEP_SECONDS)
    if seconds:
        until = min(until, clock + seconds)
    return replace(entry, lock_until=until), seconds, clock
