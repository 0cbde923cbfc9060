"""The provider of locks in etcd."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django_shedlock.durations import Duration, parse_duration
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.states import LockStatus
from django_shedlock.providers.base import Place
from django_shedlock.providers.entries import Entry
from django_shedlock.providers.etcd import records, transactions
from django_shedlock.providers.etcd.clients import Members, NoAnswer
from django_shedlock.providers.etcd.records import ROUNDING, Lease, Version
from django_shedlock.providers.etcd.transactions import Known
from django_shedlock.providers.servers import (
    Failure,
    ServerLockProvider,
    Store,
    statuses_at,
)

PREFIX = "shedlock/"


class EtcdLockProvider(ServerLockProvider):
    """
    Keeps locks in etcd, which ends a lease by itself and needs a majority of members.

    A lock is a record, which stays, and while it is held a second key, which belongs to
    a lease of etcd. That key decides. ``endpoints`` are the URLs of members, which are
    asked in turn, all together for ``timeout``. ``prefix`` begins each key. Other
    options are those of ``etcd3gw.Etcd3Client``, as ``ca_cert``.
    """

    shortest_lease = timedelta(seconds=1)
    store = Store("etcd", "etcd3gw", "etcd")

    def __init__(
        self,
        alias: str,
        *,
        endpoints: str | Sequence[str],
        prefix: str = PREFIX,
        timeout: Duration = "5s",
        keep_alive: bool = False,
        history_database: str | None = None,
        **client_options: Any,
    ):
        super().__init__(
            alias, keep_alive=keep_alive, history_database=history_database
        )
        self.prefix = prefix
        seconds = parse_duration(timeout).total_seconds()
        self.members = Members(endpoints, seconds, client_options)
        self._records = f"{prefix}records/".encode()
        self._holders = f"{prefix}holders/".encode()

    def read(self, name: str) -> tuple[Entry | None, Version]:
        """See EntryLockProvider.read()."""
        entry, version, _ = self.observe(name)
        return entry, version

    def observe(self, name: str) -> tuple[Entry | None, Version, float]:
        """See EntryLockProvider.observe(). It is one round trip."""
        keys = self._keys(name)
        steps = [transactions.read(key) for key in keys]
        result, clock = self._ask("read", name, "kv/txn", {"success": steps})
        record, holder = map(Known.parse, transactions.answers(result))
        store = int(result["header"]["revision"])
        entry, lease = records.parse(record, holder, clock)
        seen = entry or Entry.free(clock)
        return entry, Version(record, holder, store, clock, seen, lease), clock

    def write(self, name: str, entry: Entry, version: Version) -> bool:
        """See EntryLockProvider.write(). What it can't use of a lease it revokes."""
        entry = version.with_token(entry)
        if version.keeps_lease(entry):
            return self._put(name, entry, version, version.lease)[0]
        lease = self._granted(name, entry, version)
        is_written, in_use = self._put(name, entry, version, lease)
        unused = version.lease if is_written else lease
        if unused.id != in_use:
            self._revoke(unused)
        return is_written

    def names(self) -> Iterable[str]:
        """See EntryLockProvider.names()."""
        found, holders, _ = self._all()
        return {*found, *holders}

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is that of the member that answers."""
        step = {"success": [transactions.read(self._records)]}
        return self._ask("ask the clock of", None, "kv/txn", step)[1]

    def read_all(self, names: Collection[str] | None) -> Iterable[LockStatus]:
        """See EntryLockProvider.read_all(). All of them are one round trip."""
        if names is not None:
            return super().read_all(names)
        found, holders, clock = self._all()
        none = Known()

        def parse(name: str) -> Entry | None:
            record, holder = (keys.get(name, none) for keys in (found, holders))
            return records.parse(record, holder, clock)[0]

        names = sorted({*found, *holders})
        return statuses_at(clock, names, parse)

    def record_of(self, name: str) -> str:
        """See LockProvider.record_of()."""
        return f"its key {self._keys(name)[0].decode()!r} in etcd"

    def place(self) -> Place | None:
        """See LockProvider.place()."""
        text = f"one etcd, with the prefix {self.prefix!r}"
        return Place(("etcd", *sorted(self.members.urls), self.prefix), text)

    def try_options(self) -> None:
        """See ServerLockProvider.try_options()."""
        self.members.make()

    def failure(self, error: Exception) -> Failure | None:
        """See ServerLockProvider.failure()."""
        if isinstance(error, NoAnswer):
            return Failure(str(error), error.is_uncertain)
        return None

    def _keys(self, name: str) -> tuple[bytes, bytes]:
        return self._records + name.encode(), self._holders + name.encode()

    def _all(self) -> tuple[dict[str, Known], dict[str, Known], float]:
        prefixes = self._records, self._holders
        steps = [transactions.read_all(prefix) for prefix in prefixes]
        result, clock = self._ask("list", None, "kv/txn", {"success": steps})
        found, held = map(Known.by_name, transactions.answers(result), prefixes)
        return found, held, clock

    def _granted(self, name: str, entry: Entry, version: Version) -> Lease:
        seconds = version.seconds(entry)
        if version.is_extension(entry) and seconds < version.lease.seconds:
            # No extension shortens a lease, and only etcd knows what is left of it.
            seconds = max(seconds, self._left(name, version.lease) + ROUNDING)
        if not seconds:
            return Lease()
        grant = {"TTL": seconds, "ID": 0}
        answer, _ = self._ask("acquire", name, "lease/grant", grant)
        return Lease(int(answer["ID"]), seconds)

    def _left(self, name: str, lease: Lease) -> int:
        which = {"ID": str(lease.id)}
        answer, _ = self._ask("extend", name, "lease/timetolive", which)
        return int(answer["TTL"])

    def _put(
        self, name: str, entry: Entry, version: Version, lease: Lease
    ) -> tuple[bool, int]:
        # Returns whether it is written, and which lease the lock has then.
        mark = secrets.token_hex(8)
        value = records.to_value(entry, lease, mark)
        record, holder = self._keys(name)
        change = {
            "compare": [
                transactions.unchanged(record, version.record.revision),
                transactions.unchanged(holder, version.holder.revision),
            ],
            "success": [
                transactions.put(record, value),
                transactions.put(holder, value, lease.id)
                if lease.id
                else transactions.delete(holder),
            ],
            "failure": [transactions.read(record), transactions.read(holder)],
        }
        result, _ = self._ask("change", name, "kv/txn", change)
        if result.get("succeeded"):
            return True, lease.id
        # Another member may have done it, and its answer was lost: then our mark is
        # there, or somebody wrote since, and our lease may be in use.
        found, held = map(Known.parse, transactions.answers(result))
        return mark.encode() in found.value, held.lease

    def _revoke(self, lease: Lease) -> None:
        # Its end is near enough, should that fail.
        if lease.id:
            which = {"ID": str(lease.id)}
            with suppress(LockProviderError):
                self._ask("revoke a lease of", None, "lease/revoke", which)

    def _ask(
        self, verb: str, name: str | None, path: str, request: dict[str, Any]
    ) -> tuple[Any, float]:
        with self.asking(verb, name):
            return self.members.ask(path, request)
