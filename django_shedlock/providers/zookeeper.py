"""The provider of locks in ZooKeeper."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Event
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote
from zlib import crc32

from django_shedlock.durations import Duration, option_duration
from django_shedlock.exceptions import described
from django_shedlock.providers.base import Place
from django_shedlock.providers.entries import Entry, Found, Read
from django_shedlock.providers.servers import (
    Clients,
    ServerLockProvider,
    check_files,
    shown_url,
)

LOOK_INTERVAL = 1.0
"""So often, in seconds, a wait for an answer looks whether the client has ended."""
BUCKETS = 64
"""Creating a lock only holds up changes of the locks in the same bucket."""
LEASE_FIELD = "lease"
"""
A field of a record: the epoch of the leader by whose clock the lease was computed.

The epoch is ``None`` if the lock was free when the record was written. The end of the
lease stands beside it. If the record has another end, a person or a version without
this field has written that, and nobody knows by which clock.
"""


class NodeStatus(Protocol):
    """What this provider reads of kazoo's ``ZnodeStat``."""

    version: int
    """The number of changes of the node."""
    mtime: int
    """When the node was last changed, by the leader's clock in milliseconds."""
    mzxid: int
    """The number of its last change; the upper half is the leader's epoch."""


class SeenNode(NamedTuple):
    """
    The versions of a lock's node and bucket, and the clock of the leader that was read.

    Without a node, ``node`` is ``None``. ``epoch`` is the number of the leader.
    """

    node: int | None
    bucket: int | None
    clock: float
    epoch: int


class FoundNode(NamedTuple):
    """
    What a look finds: ``clock`` is the parent that the look itself has written.

    ``bucket`` is ``None`` in a list, whose records nobody changes.
    """

    clock: NodeStatus
    bucket: NodeStatus | None
    record: tuple[bytes | None, NodeStatus] | None


class ConnectionLog(logging.LoggerAdapter[logging.Logger]):
    """The log of a client, which remembers why it could not connect last."""

    def __init__(self, logger: logging.Logger):
        super().__init__(logger)
        self.reason: str = ""

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log the warning, and remember one that has details."""
        if args:
            self.reason = str(msg) % args
        super().warning(msg, *args, **kwargs)


class Connection(NamedTuple):
    """A client of kazoo, and what its thread has come to."""

    client: Any
    is_connected: Event
    has_ended: Event
    """Set when the thread is over: the client will answer nothing any more."""
    log: ConnectionLog

    def no_answer(self) -> TimeoutError:
        """Return the error of a client to which no member has answered in time."""
        reason = f" ({self.log.reason})" if self.log.reason else ""
        return TimeoutError(f"no member has answered in time{reason}")

    def brings(self, awaited: Any, end: float) -> bool:
        """
        Wait for an event or for an answer, until ``end`` or until the client has ended.

        kazoo may take a request just when its thread ends, and then forgets it.
        """
        while not awaited.wait(max(0.0, min(LOOK_INTERVAL, end - time.monotonic()))):
            if self.has_ended.is_set() or time.monotonic() >= end:
                return bool(awaited.wait(0))
        return True


class KazooClients(Clients[Connection]):
    """Connections, which all threads share."""

    @staticmethod
    def close_client(client: Connection) -> None:
        """See Clients.close_client()."""
        kazoo = client.client
        kazoo.stop()
        kazoo.close()


class ZooKeeperLockProvider(ServerLockProvider[SeenNode, FoundNode]):
    """
    Keeps each lock as a node of ZooKeeper, by the clock of the leader.

    Each look at a lock first writes a node, and the leader says when that was. Each
    record has the number of the leader by whose clock its lease was computed, so that
    another leader's clock ends no lease early. ``hosts`` are the members, and a chroot.
    The nodes are below ``path``. A request fails after ``timeout``, with all its
    repetitions. The members' clocks may differ by ``clocks_apart``. Other options are
    those of kazoo's ``KazooClient``, such as ``use_ssl``. With a login, such as
    ``auth_data``, only that user has access to the nodes.
    """

    shortest_lease: timedelta = timedelta(milliseconds=1)
    deletes_records: bool = True
    store: str = "ZooKeeper"
    library: str = "kazoo"
    extra: str = "zookeeper"
    address: str = "hosts"

    def __init__(
        self,
        alias: str,
        *,
        hosts: str,
        path: str = "django-shedlock",
        timeout: Duration = "5s",
        clocks_apart: Duration = "10s",
        **options: Any,
    ):
        super().__init__(alias, **options)
        if (shown := shown_url(hosts)) != hosts or "://" in hosts:
            raise ValueError(f"hosts={shown!r} is not like 'one:2181,two:2181/root'")
        self._hosts, _, chroot = hosts.partition("/")
        nodes = [node for node in f"{chroot}/{path}".split("/") if node]
        if not nodes or nodes != [*map(_node, nodes)] or not isinstance(path, str):
            raise ValueError(f"path={path!r} is no path in ZooKeeper")
        self.root: str = "".join(f"/{node}" for node in nodes)
        self._records = f"{self.root}/locks"
        self._buckets = [f"{self.root}/created/{n:02x}" for n in range(BUCKETS)]
        self._timeout = option_duration("timeout", timeout).total_seconds()
        self._apart = option_duration("clocks_apart", clocks_apart).total_seconds()
        self.clients: KazooClients = KazooClients(self._connect)

    def read(self, name: str) -> Read[SeenNode]:
        """See EntryLockProvider.read(). It is one round trip, with a write."""
        parents = [self._bucket(name)]
        clock, bucket, record = self._look("read", name, [_node(name)], parents)
        return self.parse(FoundNode(clock, bucket, record))

    def write(self, name: str, entry: Entry, version: SeenNode) -> bool:
        path, bucket = f"{self._records}/{_node(name)}", self._bucket(name)
        epoch = version.epoch if entry.lock_until > version.clock else None
        others = {**entry.others, LEASE_FIELD: [epoch, entry.lock_until]}
        value = replace(entry, others=others).to_json().encode()

        def send(client: Any) -> list[Any]:
            change = client.transaction()
            if version.node is None:
                change.set_data(bucket, b"", version.bucket)
                change.create(path, value)
            else:  # after a deletion, a new record begins with version 0 again
                change.check(bucket, version.bucket)
                change.set_data(path, value, version.node)
            return [change.commit_async(), client.get_async(path)]

        with self.asking("change", name):
            steps, found = self._ask(send)
            failures = self._failures(steps)
        # If an answer was lost, the change was sent again, and found its first try.
        return not failures or (found is not None and found[0] == value)

    def delete(self, name: str, version: SeenNode) -> bool:
        """See EntryLockProvider.delete(). It is one transaction."""
        path, bucket = f"{self._records}/{_node(name)}", self._bucket(name)

        def send(client: Any) -> list[Any]:
            change = client.transaction()
            change.check(bucket, version.bucket)
            change.delete(path, version.node)
            return [change.commit_async()]

        with self.asking("delete", name):
            [steps] = self._ask(send)
            return not self._failures(steps)

    def _failures(self, steps: Sequence[Any]) -> list[Any]:
        """Return the steps of a transaction that another change made fail."""
        failures: list[Any] = [each for each in steps if isinstance(each, Exception)]
        # The codes of a changed, new or missing node, and of the other steps then.
        has_changed = {0, -2, -101, -103, -110}
        for failure in failures:
            if failure.code not in has_changed:
                raise failure
        return failures

    def least_token(self, version: SeenNode, clock: datetime) -> int:
        """
        See EntryLockProvider.least_token(). It is the clock, and more for each leader.

        So it grows even if members lose what they have confirmed, and the next leader's
        clock is behind.
        """
        seconds = clock.timestamp() + version.epoch * self._apart
        return int(seconds * 1000)

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is the leader's, in milliseconds."""
        [parent] = self._look("ask the clock of", None, [])
        return float(parent.mtime / 1000)

    def read_all(self, names: Collection[str] | None) -> Found[FoundNode]:
        """See EntryLockProvider.read_all(). It is one round trip; for all locks, 3."""

        def send(client: Any) -> list[Any]:
            return [client.get_children_async(self._records)]

        if names is None:
            self.clock()  # a server that has answered this misses no record
            with self.asking("list", None):
                [nodes] = self._ask(send)
            names = {unquote(node) for node in nodes or ()}
        clock, *records = self._look("list", None, [_node(name) for name in names])
        found = (FoundNode(clock, None, record) for record in records)
        return zip(names, found, strict=True)

    def record_of(self, name: str) -> str:
        return f"its node '{self._records}/{_node(name)}' in ZooKeeper"

    def place(self) -> Place | None:
        text = f"one ZooKeeper, below {self.root!r}"
        return Place(("zookeeper", *sorted(self._hosts.split(",")), self.root), text)

    def try_options(self) -> None:
        self._client()

    def explain(self, error: Exception) -> tuple[str, bool] | None:
        if isinstance(error, OSError):  # nothing was sent
            return described(error), False
        from kazoo import exceptions as errors
        from kazoo.handlers.threading import KazooTimeoutError

        if not isinstance(error, errors.KazooException | KazooTimeoutError):
            return None
        lost = (errors.ConnectionLoss, errors.SessionExpiredError, KazooTimeoutError)
        text = described(error).removesuffix(": ")
        if isinstance(error, errors.NoAuthError):
            text += ". Its user needs the rights to create, read and write nodes below "
            text += repr(self.root)
        if isinstance(error, errors.QuotaExceededError):
            text += ". Raise the quota of its nodes, or delete those of no use below "
            text += repr(self.root)
        return text, isinstance(error, lost)

    def _look(
        self,
        verb: str,
        name: str | None,
        nodes: Collection[str],
        buckets: Sequence[str] = (),
    ) -> list[Any]:
        """
        Return the locks' parent, which this writes, these buckets, and these locks.

        ZooKeeper carries out one client's requests in order. So nothing that is read is
        older than the write.
        """

        def send(client: Any) -> list[Any]:
            clock = client.set_async(self._records, b"")
            found = [client.get_async(f"{self._records}/{node}") for node in nodes]
            return [clock, *map(client.exists_async, buckets), *found]

        def make_parents(client: Any) -> list[Any]:
            return [*map(client.ensure_path_async, [self._records, *self._buckets])]

        from kazoo.exceptions import NoNodeError

        parents = 1 + len(buckets)
        with self.asking(verb, name):
            answers = self._ask(send)
            if None in answers[:parents]:
                self._ask(make_parents)
                answers = self._ask(send)
            if None in answers[:parents]:
                raise NoNodeError(f"somebody deletes nodes below {self.root!r}")
        return answers

    def _bucket(self, name: str) -> str:
        """Return the node whose version counts the locks of a bucket that were made."""
        return self._buckets[crc32(name.encode()) % BUCKETS]

    def _ask(self, send: Callable[[Any], list[Any]]) -> list[Any]:
        """
        Return the answers to what ``send`` sends, or ``None`` for each missing node.

        If the connection breaks, nobody knows what was done. So all is sent again.
        """
        from kazoo import exceptions as errors
        from kazoo.handlers.threading import KazooTimeoutError

        end = time.monotonic() + self._timeout
        lost: Exception | None = None
        ended = 0
        while True:
            shared = self.clients.get()
            is_over = time.monotonic() >= end
            if not is_over and shared.brings(shared.is_connected, end):
                requests = send(shared.client)
                try:
                    return [self._answer(each, shared, end) for each in requests]
                except (errors.ConnectionLoss, errors.SessionExpiredError) as error:
                    lost, has_ended = error, shared.has_ended.is_set()
                except KazooTimeoutError as error:
                    if lost is None:
                        raise
                    raise lost from error
                except errors.KazooException:
                    raise
                except Exception as error:  # such as an answer out of order
                    lost, has_ended = errors.ConnectionLoss(described(error)), True
            elif not (has_ended := shared.has_ended.is_set()):
                raise lost or shared.no_answer()
            if has_ended:  # the client's thread, and so the client
                self.clients.discard(shared)
                ended += 1
                if ended > 1:
                    raise lost or shared.no_answer()

    def _answer(self, request: Any, shared: Connection, end: float) -> Any:
        from kazoo import exceptions as errors

        if not shared.brings(request, end) and shared.has_ended.is_set():
            raise errors.ConnectionLoss("the client has ended")
        is_missing = isinstance(request.exception, errors.NoNodeError)
        return None if is_missing else request.get_nowait()

    def parse(self, found: FoundNode) -> Read[SeenNode]:
        """See EntryLockProvider.parse()."""
        clock, bucket, record = found
        now, leader = clock.mtime / 1000, clock.mzxid >> 32
        created = None if bucket is None else bucket.version
        if record is None:
            return None, SeenNode(None, created, now, leader), now
        value, node = record
        entry = Entry.from_json((value or b"").decode())
        lease = entry.others.get(LEASE_FIELD)
        if lease == [None, entry.lock_until]:
            entry = replace(entry, lock_until=min(entry.lock_until, now))
        elif lease != [leader, entry.lock_until]:
            entry = replace(
                entry,
                lock_until=entry.lock_until + self._apart,
                lock_at_least_until=entry.lock_at_least_until + self._apart,
            )
        return entry, SeenNode(node.version, created, now, leader), now

    def _client(self) -> Any:
        from kazoo.client import KazooClient
        from kazoo.security import CREATOR_ALL_ACL

        check_files(options := self.client_options, ("ca", "certfile", "keyfile"))
        if options.keys() & {"auth_data", "sasl_options"}:
            options = {"default_acl": CREATOR_ALL_ACL, **options}
        # By default, kazoo waits longer after each try, in the end for an hour.
        options = {"connection_retry": {"max_tries": -1, "max_delay": 1.0}, **options}
        log = ConnectionLog(options.pop("logger", logging.getLogger("kazoo.client")))
        return KazooClient(self._hosts, self._timeout, logger=log, **options)

    def _connect(self) -> Connection:
        client, has_ended = self._client(), Event()

        def note(state: str) -> None:
            if state == "CONNECTED":
                client.logger.reason = ""
            if client.client_state == "CLOSED":
                has_ended.set()

        client.add_listener(note)
        return Connection(client, client.start_async(), has_ended, client.logger)


def _node(name: str) -> str:
    """Return the name of the lock's node. It has no "/", and more than dots."""
    return quote(name, safe=":") if name.strip(".") else name.replace(".", "%2E")
