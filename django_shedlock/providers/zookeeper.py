"""The provider of locks in ZooKeeper."""

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Event
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote

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
    The versions of a lock's node and of the root; ``zxid`` is the number of the look.

    Without a node, ``node`` is ``None``.
    """

    node: int | None
    root: int
    zxid: int


class FoundNode(NamedTuple):
    """What a look finds: ``clock`` is the parent that the look itself has written."""

    clock: NodeStatus
    root: NodeStatus
    record: tuple[bytes | None, NodeStatus] | None


class Connection(NamedTuple):
    """A client of kazoo, and what its thread has come to."""

    client: Any
    is_connected: Event
    has_ended: Event
    """Set when the thread is over: the client will answer nothing any more."""

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

    Each look at a lock first writes a node, and the leader says when that was.
    ``hosts`` are the members, and a chroot. The nodes are below ``path``. A request
    fails after ``timeout``, with all its repetitions. The members' clocks may differ by
    ``clocks_apart``. Other options are those of kazoo's ``KazooClient``, such as
    ``use_ssl``. With a login, such as ``auth_data``, only that user has access to the
    nodes.
    """

    shortest_lease: timedelta = timedelta(milliseconds=1)
    store: str = "ZooKeeper"
    library: str = "kazoo"
    extra: str = "zookeeper"

    def __init__(
        self,
        alias: str,
        *,
        hosts: str,
        path: str = "shedlock",
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
        self._timeout = option_duration("timeout", timeout).total_seconds()
        self._apart = option_duration("clocks_apart", clocks_apart).total_seconds()
        self.clients: KazooClients = KazooClients(self._connect)

    def read(self, name: str) -> Read[SeenNode]:
        """See EntryLockProvider.read(). It is one round trip, with a write."""
        clock, root, record = self._look("read", name, _node(name))
        return self.parse(FoundNode(clock, root, record))

    def write(self, name: str, entry: Entry, version: SeenNode) -> bool:
        before, created, _ = version
        path, value = f"{self._records}/{_node(name)}", entry.to_json().encode()

        def send(client: Any) -> list[Any]:
            change = client.transaction()
            if before is None:
                change.set_data(self.root, b"", created)
                change.create(path, value)
            else:  # after a deletion, a new record begins with version 0 again
                change.check(self.root, created)
                change.set_data(path, value, before)
            return [change.commit_async(), client.get_async(path)]

        with self.asking("change", name):
            steps, found = self._ask(send)
            failures: Any = [each for each in steps if isinstance(each, Exception)]
            # The codes of a changed, new or missing node, and of the other steps then.
            has_changed = {0, -2, -101, -103, -110}
            for failure in failures:
                if failure.code not in has_changed:
                    raise failure
        # If an answer was lost, the change was sent again, and found its first try.
        return not failures or (found is not None and found[0] == value)

    def least_token(self, version: SeenNode, clock: datetime) -> int:
        """See EntryLockProvider.least_token(). It is the number of the last change."""
        return version.zxid

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is the leader's, in milliseconds."""
        return float(self._look("ask the clock of", None)[0].mtime / 1000)

    def read_all(self, names: Collection[str] | None) -> Found[FoundNode]:
        """See EntryLockProvider.read_all(). It is one round trip; for all locks, 3."""

        def send(client: Any) -> list[Any]:
            return [client.get_children_async(self._records)]

        if names is None:
            self.clock()  # a server that has answered this misses no record
            with self.asking("list", None):
                [nodes] = self._ask(send)
            names = {unquote(node) for node in nodes or ()}
        clock, root, *records = self._look("list", None, *map(_node, names))
        found = (FoundNode(clock, root, record) for record in records)
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
        return described(error).removesuffix(": "), isinstance(error, lost)

    def _look(self, verb: str, name: str | None, *nodes: str) -> list[Any]:
        """
        Return the locks' parent, which this writes, the root above it, and these locks.

        ZooKeeper carries out one client's requests in order. So nothing that is read is
        older than the write.
        """

        def send(client: Any) -> list[Any]:
            clock = client.set_async(self._records, b"")
            found = [client.get_async(f"{self._records}/{node}") for node in nodes]
            return [clock, client.exists_async(self.root), *found]

        def make_parents(client: Any) -> list[Any]:
            return [client.ensure_path_async(self._records)]

        with self.asking(verb, name):
            while None in (answers := self._ask(send))[:2]:
                self._ask(make_parents)
        return answers

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
                raise lost or TimeoutError("no member has answered in time")
            if has_ended:  # the client's thread, and so the client
                self.clients.discard(shared)
                ended += 1
                if ended > 1:
                    raise lost or TimeoutError("the client has ended")

    def _answer(self, request: Any, shared: Connection, end: float) -> Any:
        from kazoo import exceptions as errors

        if not shared.brings(request, end) and shared.has_ended.is_set():
            raise errors.ConnectionLoss("the client has ended")
        is_missing = isinstance(request.exception, errors.NoNodeError)
        return None if is_missing else request.get_nowait()

    def parse(self, found: FoundNode) -> Read[SeenNode]:
        """See EntryLockProvider.parse()."""
        clock, root, record = found
        now = clock.mtime / 1000
        if record is None:
            return None, SeenNode(None, root.version, clock.mzxid), now
        value, node = record
        entry = Entry.from_json((value or b"").decode())
        is_of_this_leader = node.mzxid >> 32 == clock.mzxid >> 32
        if not (is_of_this_leader or entry.is_released):
            entry = replace(entry, lock_until=entry.lock_until + self._apart)
        return entry, SeenNode(node.version, root.version, clock.mzxid), now

    def _client(self) -> Any:
        from kazoo.client import KazooClient
        from kazoo.security import CREATOR_ALL_ACL

        check_files(options := self.client_options, ("ca", "certfile", "keyfile"))
        if options.keys() & {"auth_data", "sasl_options"}:
            options = {"default_acl": CREATOR_ALL_ACL, **options}
        # By default, kazoo waits longer after each try, in the end for an hour.
        options = {"connection_retry": {"max_tries": -1, "max_delay": 1.0}, **options}
        return KazooClient(self._hosts, self._timeout, **options)

    def _connect(self) -> Connection:
        client, has_ended = self._client(), Event()

        def note(_: str) -> None:
            if client.client_state == "CLOSED":
                has_ended.set()

        client.add_listener(note)
        return Connection(client, client.start_async(), has_ended)


def _node(name: str) -> str:
    """Return the name of the lock's node. It has no "/", and more than dots."""
    return quote(name, safe=":") if name.strip(".") else name.replace(".", "%2E")
