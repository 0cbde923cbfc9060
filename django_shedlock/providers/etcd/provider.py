"""The provider of locks in etcd."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from math import ceil
from typing import Any, NamedTuple

from django.core.checks import CheckMessage, Error, Warning

from django_shedlock.durations import Duration, parse_duration
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.states import LockStatus
from django_shedlock.providers.base import Place
from django_shedlock.providers.comparing import EntryLockProvider
from django_shedlock.providers.entries import Entry, unreadable_status, wall_clock
from django_shedlock.providers.etcd import transactions
from django_shedlock.providers.etcd.clients import INSTALL, Members, NoAnswer
from django_shedlock.providers.etcd.transactions import Known

PREFIX = "shedlock/"
ROUNDING = 1
"""Seconds that are added to a lease: two members' clocks tell a second, no more."""


class Version(NamedTuple):
    """What ``observe()`` has seen; ``write()`` changes only that."""

    record: Known
    holder: Known
    store: int
    clock: float
    lock_until: float
    token: int


class EtcdLockProvider(EntryLockProvider):
    """
    Keeps locks in etcd, which ends a lease by itself and needs a majority of members.

    A lock is a record, which stays, and while it is held a second key, which belongs to
    a lease of etcd. ``endpoints`` are the URLs of members, which are asked in turn, all
    together for ``timeout``. ``prefix`` begins each key. Other options are those of
    ``etcd3gw.Etcd3Client``, as ``ca_cert``.
    """

    shortest_lease = timedelta(seconds=1)

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
        entry = _entry(record, holder, clock) if record.revision else None
        seen = entry or Entry.free(clock)
        lease = seen.lock_until, seen.fencing_token
        return entry, Version(record, holder, store, clock, *lease), clock

    def write(self, name: str, entry: Entry, version: Version) -> bool:
        """See EntryLockProvider.write(). What it can't use of a lease it revokes."""
        if entry.fencing_token != version.token:
            # An acquisition: the store's revision lets it grow whatever was deleted.
            token = max(entry.fencing_token, version.store + 1)
            entry = replace(entry, fencing_token=token)
        is_as_long = entry.lock_until == version.lock_until
        keeps_lease = version.holder.revision > 0 and is_as_long
        lease = 0 if keeps_lease else self._grant(name, entry.lock_until, version)
        is_written = self._put(name, entry, version, lease, keeps_lease=keeps_lease)
        unused = (0 if keeps_lease else version.holder.lease) if is_written else lease
        self._revoke(unused)
        return is_written

    def names(self) -> Iterable[str]:
        """See EntryLockProvider.names()."""
        found = self._all()[0]
        return [self._name(pair) for pair in found]

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is that of the member that answers."""
        step = {"success": [transactions.read(self._records)]}
        return self._ask("ask the clock of", None, "kv/txn", step)[1]

    def statuses(self, name: str | None = None) -> Sequence[LockStatus]:
        """See LockProvider.statuses(). All of them are one round trip."""
        if name is not None:
            return super().statuses(name)
        records, holders, clock = self._all()
        held = {pair["key"]: pair for pair in holders}
        return [self._status_of(pair, held, clock) for pair in records]

    def record_of(self, name: str) -> str:
        """See LockProvider.record_of()."""
        return f"its key {self._keys(name)[0].decode()!r} in etcd"

    def place(self) -> Place | None:
        """See LockProvider.place()."""
        text = f"one etcd, with the prefix {self.prefix!r}"
        return Place(("etcd", *sorted(self.members.urls), self.prefix), text)

    def check(self) -> list[CheckMessage]:
        """See LockProvider.check()."""
        where = f"SHEDLOCK_PROVIDERS[{self.alias!r}]"
        try:
            self.members.make()
        except ImportError as error:
            return [_wrong(f"{where} needs etcd3gw: {error}", INSTALL)]
        except TypeError as error:
            return [_wrong(f"{where} has wrong options: {error}", "Correct OPTIONS.")]
        return []

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """See LockProvider.check_store(). It asks a member."""
        try:
            self.clock()
        except LockProviderError as error:
            hint = "No job with a lock runs while its store is unreachable."
            return [Warning(str(error), hint=hint, id="shedlock.W005")]
        return []

    def _keys(self, name: str) -> tuple[bytes, bytes]:
        return self._records + name.encode(), self._holders + name.encode()

    def _name(self, pair: dict[str, Any]) -> str:
        return transactions.key_of(pair)[len(self._records) :].decode()

    def _all(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]], float]:
        steps = [transactions.read_all(k) for k in (self._records, self._holders)]
        result, clock = self._ask("list", None, "kv/txn", {"success": steps})
        records, holders = transactions.answers(result)
        return records.get("kvs", []), holders.get("kvs", []), clock

    def _status_of(
        self, pair: dict[str, Any], held: dict[str, Any], clock: float
    ) -> LockStatus:
        name = self._name(pair)
        holder = held.get(transactions.text(self._holders + name.encode()))
        found = Known.parse({"kvs": [holder]} if holder else {})
        try:
            entry = _entry(Known.parse({"kvs": [pair]}), found, clock)
        except ValueError as error:
            return unreadable_status(name, str(error), wall_clock(clock))
        return entry.status(name, clock, wall_clock(clock))

    def _grant(self, name: str, lock_until: float, version: Version) -> int:
        seconds = lock_until - version.clock
        if seconds <= 0:
            return 0
        lease = {"TTL": ceil(seconds) + ROUNDING, "ID": 0}
        answer, _ = self._ask("acquire", name, "lease/grant", lease)
        return int(answer["ID"])

    def _put(
        self,
        name: str,
        entry: Entry,
        version: Version,
        lease: int,
        *,
        keeps_lease: bool,
    ) -> bool:
        record, holder = self._keys(name)
        mark = secrets.token_hex(8)
        value = json.dumps({**json.loads(entry.to_json()), "mark": mark}).encode()
        steps = [transactions.put(record, value)]
        if lease:
            steps.append(transactions.put(holder, entry.locked_by.encode(), lease))
        elif not keeps_lease:
            steps.append(transactions.delete(holder))
        change = {
            "compare": [
                transactions.unchanged(record, version.record.revision),
                transactions.unchanged(holder, version.holder.revision),
            ],
            "success": steps,
            "failure": [transactions.read(record)],
        }
        result, _ = self._ask("change", name, "kv/txn", change)
        if result.get("succeeded"):
            return True
        # It was sent again to another member, since the answer of the first was lost.
        [found] = transactions.answers(result)
        return mark.encode() in Known.parse(found).value

    def _revoke(self, lease: int) -> None:
        # Its end is near enough, should that fail.
        if lease:
            with suppress(LockProviderError):
                self._ask("revoke a lease of", None, "lease/revoke", {"ID": str(lease)})

    def _ask(
        self, verb: str, name: str | None, path: str, request: dict[str, Any]
    ) -> tuple[Any, float]:
        with self._failing(verb, name):
            return self.members.ask(path, request)

    @contextmanager
    def _failing(self, verb: str, name: str | None) -> Iterator[None]:
        what = "the locks" if name is None else f"lock {name!r}"
        problem = f"Could not {verb} {what} in etcd (provider {self.alias!r})"
        try:
            yield
        except ImportError as error:
            raise LockProviderError(f"{problem}: {error}. {INSTALL}") from error
        except NoAnswer as error:
            failure = LockProviderError(f"{problem}: {error}")
            failure.is_uncertain = error.is_uncertain
            raise failure from error


def _entry(record: Known, holder: Known, clock: float) -> Entry:
    # The lease of etcd decides whether the lock is held, whatever the clocks say.
    values = json.loads(record.value)
    if isinstance(values, dict):
        values.pop("mark", None)
    entry = Entry.from_json(json.dumps(values))
    if holder.revision:
        return replace(entry, lock_until=max(entry.lock_until, clock + ROUNDING))
    return replace(entry, lock_until=min(entry.lock_until, clock))


def _wrong(text: str, hint: str) -> CheckMessage:
    return Error(text, hint=hint, id="shedlock.E002")
