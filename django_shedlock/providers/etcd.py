"""The provider of locks in etcd."""

import json
import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any, NamedTuple

from django.core.checks import CheckMessage, Warning

from django_shedlock.durations import Duration, option_duration
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.status import JOB_FIELDS
from django_shedlock.providers import etcd_gateway as gateway
from django_shedlock.providers.base import Place
from django_shedlock.providers.entries import Entry, Found, Read, readable_number
from django_shedlock.providers.servers import ServerLockProvider

# The clocks of members have whole seconds, so a lease is longer by this.
CLOCK_STEP_SECONDS = 1
# The holder's key leaves these out: they say nothing about who holds the lock.
RECORD_ONLY_FIELDS = {*JOB_FIELDS, "mark"} - {"open_run"}
# Above this share of its quota, etcd may soon be full.
HIGHEST_SHARE_OF_QUOTA = 0.8
MAKE_ROOM = (
    "Compact its history, defragment each member, and disarm the alarm: see "
    '"What etcd needs" in the documentation.'
)


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
    ``password``. ``ca_cert`` is the path of the authority's certificate, ``cert_cert``
    that of the client's, ``cert_key`` that of its key. Environment variables have no
    effect.
    """

    shortest_lease: timedelta = timedelta(seconds=1)
    deletes_records: bool = True
    store: str = "etcd"
    library: str = "requests"
    extra: str = "etcd"
    address: str = "endpoints"

    def __init__(
        self,
        alias: str,
        *,
        endpoints: str | Sequence[str],
        prefix: str = "shedlock/",
        timeout: Duration = "5s",
        user: str | None = None,
        password: str | None = None,
        ca_cert: str | None = None,
        cert_cert: str | None = None,
        cert_key: str | None = None,
        keep_alive: bool = False,
        history_database: str | None = None,
    ):
        super().__init__(
            alias, keep_alive=keep_alive, history_database=history_database
        )
        if not isinstance(prefix, str):
            raise ValueError(f"prefix={prefix!r} is no text")
        self.prefix = prefix
        seconds = option_duration("timeout", timeout).total_seconds()
        access = gateway.Access(user, password, ca_cert, cert_cert, cert_key)
        self.members: gateway.Members = gateway.Members(endpoints, seconds, access)
        self._records = f"{prefix}records/".encode()
        self._holders = f"{prefix}holders/".encode()

    def read(self, name: str) -> Read[SeenKeys]:
        """See EntryLockProvider.read(). It is one round trip."""
        keys = self._keys(name)
        steps = [gateway.read_key(key) for key in keys]
        seen = self._transact("read", name, {"success": steps})
        record, holder = map(seen.of_key, keys)
        return self._read_of(record, holder, seen.revision, seen.clock)

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
            seconds = max(seconds, self._left(name, lease) + CLOCK_STEP_SECONDS)
        new = self._grant(name, seconds) if seconds else 0
        try:
            is_written, in_use = self._put(name, entry, version, new, seconds)
        except LockProviderError as error:
            if not seconds and _is_full(error):
                # The lock is free at least. A later try may write its record.
                self._revoke(lease)
            raise
        unused = lease if is_written else new
        if unused != in_use:
            self._revoke(unused)
        return is_written

    def delete(self, name: str, version: SeenKeys) -> bool:
        """See EntryLockProvider.delete(). It is one transaction."""
        record, holder = keys = self._keys(name)
        change = {
            "compare": [
                gateway.unchanged(record, version.record.revision),
                gateway.unchanged(holder, version.holder.revision),
            ],
            "success": [gateway.delete_key(key) for key in keys],
        }
        return self._transact("delete", name, change).succeeded

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is that of the member that answers."""
        steps = [gateway.read_key(self._records)]
        return self._transact("ask the clock of", None, {"success": steps}).clock

    def least_token(self, version: SeenKeys, clock: datetime) -> int:
        """See EntryLockProvider.least_token(). It is the revision of the store."""
        return version.store + 1

    def read_all(self, names: Collection[str] | None) -> Found[ListedKeys]:
        """See EntryLockProvider.read_all(). It reads all locks in one round trip."""
        if names is not None:
            return super().read_all(names)
        prefixes = self._records, self._holders
        steps = [gateway.read_key(prefix, is_prefix=True) for prefix in prefixes]
        seen = self._transact("list", None, {"success": steps})
        known = {
            key.removeprefix(prefix)
            for prefix in prefixes
            for key in seen.found
            if key.startswith(prefix)
        }
        reads = []
        for each in known:
            record, holder = (seen.of_key(prefix + each) for prefix in prefixes)
            keys = ListedKeys(each, record, holder, seen.revision, seen.clock)
            reads.append((each.decode(errors="backslashreplace"), keys))
        return reads

    def parse(self, found: ListedKeys) -> Read[SeenKeys]:
        """See EntryLockProvider.parse()."""
        name, record, holder, store, clock = found
        name.decode()  # raises ValueError if it is no UTF-8
        return self._read_of(record, holder, store, clock)

    def record_of(self, name: str) -> str:
        return f"its key {self._keys(name)[0].decode()!r} in etcd"

    def place(self) -> Place | None:
        text = f"one etcd, with the prefix {self.prefix!r}"
        return Place(("etcd", *sorted(self.members.urls), self.prefix), text)

    def try_options(self) -> None:
        self.members.connect()

    def explain(self, error: Exception) -> tuple[str, bool] | None:
        if not isinstance(error, gateway.Unanswered):
            return None
        text = str(error)
        if error.is_full:
            text += f". {MAKE_ROOM}"
        elif error.is_forbidden:
            text += (
                ". Give a role of its user the right to the keys: etcdctl role "
                f"grant-permission ROLE readwrite --prefix=true {self.prefix}"
            )
        return text, error.is_uncertain

    def check_store(self, databases: Sequence[str]) -> list[CheckMessage]:
        """See LockProvider.check_store(). It also warns if etcd is or gets full."""
        if wrong := super().check_store(databases):
            return wrong
        # Some clusters allow this request to administrators only.
        with suppress(LockProviderError), self.asking("check", None):
            return list(self._warnings(self.members.ask("maintenance/status", {})[0]))
        return []

    def _warnings(self, status: dict[str, Any]) -> Iterator[CheckMessage]:
        where = f"The etcd of SHEDLOCK_PROVIDERS[{self.alias!r}]"
        for alarm in gateway.alarms(status):
            text = f"{where} has the alarm {alarm}, so it writes no locks."
            hint = "Replace the member whose data differs, and disarm the alarm."
            if alarm == "NOSPACE":
                hint = MAKE_ROOM
            yield Warning(text, hint=hint, id="shedlock.W016")
        used = int(status.get("dbSizeInUse", 0))
        quota = int(status.get("dbSizeQuota", 0))
        if quota and used > quota * HIGHEST_SHARE_OF_QUOTA:  # known since etcd 3.6
            text = f"{where} uses {used} of the {quota} bytes of its quota."
            hint = "Set --auto-compaction-retention, or raise --quota-backend-bytes. "
            hint += "An etcd that is full writes no locks."
            yield Warning(text, hint=hint, id="shedlock.W016")

    def _keys(self, name: str) -> tuple[bytes, bytes]:
        return self._records + name.encode(), self._holders + name.encode()

    def _read_of(
        self, record: gateway.Known, holder: gateway.Known, store: int, clock: float
    ) -> Read[SeenKeys]:
        entry, _ = _entry_and_lease(record, holder, clock)
        return entry, SeenKeys(record, holder, store, clock), clock

    def _put(
        self, name: str, entry: Entry, version: SeenKeys, lease: int, seconds: float
    ) -> tuple[bool, int]:
        """Return whether the entry is written, and which lease the lock has then."""
        mark = secrets.token_hex(8)
        values = {**json.loads(entry.to_json()), "lease_seconds": seconds, "mark": mark}
        # etcd keeps former values until somebody compacts them. So a value is short.
        values = {
            field: value
            for field, value in values.items()
            if value is not None or field in entry.others
        }
        of_holder = {
            field: value
            for field, value in values.items()
            if field not in RECORD_ONLY_FIELDS
        }
        record, holder = keys = self._keys(name)
        hold = (
            gateway.put_key(holder, json.dumps(of_holder).encode(), lease)
            if lease
            else gateway.delete_key(holder)
        )
        change = {
            "compare": [
                gateway.unchanged(record, version.record.revision),
                gateway.unchanged(holder, version.holder.revision),
            ],
            "success": [gateway.put_key(record, json.dumps(values).encode()), hold],
            "failure": [gateway.read_key(key) for key in keys],
        }
        outcome = self._transact("change", name, change)
        if outcome.succeeded:
            return True, lease
        # Another member may have written it, and its answer was lost. Then our mark is
        # there. Or somebody else wrote since, and our lease may be in use.
        is_ours = mark.encode() in outcome.of_key(record).value
        return is_ours, outcome.of_key(holder).lease

    def _grant(self, name: str, seconds: float) -> int:
        with self.asking("get a lease for", name):
            grant = {"TTL": seconds, "ID": 0}
            return int(self.members.ask("lease/grant", grant)[0]["ID"])

    def _left(self, name: str, lease: int) -> int:
        with self.asking("extend", name):
            which = {"ID": str(lease)}
            return int(self.members.ask("lease/timetolive", which)[0].get("TTL", 0))

    def _revoke(self, lease: int) -> None:
        """End a lease. The key that belongs to it vanishes as well."""
        if lease:
            with suppress(gateway.Unanswered):  # then the lease ends by itself
                self.members.ask("lease/revoke", {"ID": str(lease)})

    def _transact(
        self, verb: str, name: str | None, steps: gateway.EtcdJson
    ) -> gateway.Outcome:
        with self.asking(verb, name):
            return gateway.Outcome.of(*self.members.ask("kv/txn", steps))


def _is_full(error: LockProviderError) -> bool:
    return isinstance(error.__cause__, gateway.Unanswered) and error.__cause__.is_full


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
