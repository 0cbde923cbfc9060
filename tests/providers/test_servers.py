"""What providers have in common whose store is a server."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from django_shedlock.checks import check_providers, check_stores
from django_shedlock.exceptions import LockProviderError
from django_shedlock.providers import get_provider
from django_shedlock.providers.servers import Clients
from tests.support.dynamodb_fixtures import LOGIN
from tests.support.forks import forked, thread_inside
from tests.support.locks import configure, try_from
from tests.support.ports import free_port
from tests.support.threads import run_threads
from tests.support.waiting import wait_for


class Kind(NamedTuple):
    """A provider's class, options for a port of loopback, and its library's modules."""

    backend: str
    options: Callable[[int], dict[str, Any]]
    modules: tuple[str, ...]


def away(scheme: str) -> Callable[[int], dict[str, Any]]:
    """Return what makes the options of a provider with such URLs."""
    return lambda port: {"url": f"{scheme}://127.0.0.1:{port}"}


KINDS = {
    "redis": Kind("redis.RedisLockProvider", away("redis"), ("redis",)),
    "etcd": Kind(
        "etcd.EtcdLockProvider",
        lambda port: {"endpoints": f"http://127.0.0.1:{port}"},
        ("requests",),
    ),
    "mongodb": Kind(
        "mongodb.MongoLockProvider",
        lambda port: {**away("mongodb")(port), "timeout": "200ms"},
        ("pymongo", "pymongo.uri_parser"),
    ),
    "dynamodb": Kind(
        "dynamodb.DynamoDBLockProvider",
        lambda port: {"endpoint_url": f"http://127.0.0.1:{port}", **LOGIN},
        ("boto3",),
    ),
    "zookeeper": Kind(
        "zookeeper.ZooKeeperLockProvider",
        lambda port: {"hosts": f"127.0.0.1:{port}", "timeout": "200ms"},
        ("kazoo", "kazoo.client"),
    ),
}

MISSING = "'/no/such.pem'"
WRONG = {
    "redis": [
        ({}, "'url'"),
        ({"url": "http://localhost"}, "redis://"),
        ({"url": "redis+sentinel://localhost"}, "names no service"),
        ({"url": "redis+sentinel://:secret@one"}, "no service after 'one'"),
        ({"url": "redis+cluster://"}, "is no host"),
        ({"url": "redis+other://localhost"}, "redis://"),
        ({"url": "redis://localhost", "hots": 1}, "'hots'"),
        ({"url": "redis://:secret@localhost@localhost"}, "%40"),
        ({"url": "rediss://localhost?ssl_ca_certs=/no/such.pem"}, MISSING),
        ({"url": "rediss://localhost", "ssl_certfile": "/no/such.pem"}, MISSING),
        ({"url": "redis+sentinel://:/secret@localhost/jobs"}, "%40"),
        ({"url": "redis://localhost", "retention": "soon"}, "'soon'"),
        ({"url": "redis://localhost", "retention": "-60s"}, "retention: '-60s'"),
        ({"url": "redis://localhost", "retention": -60}, "retention=-60 is too short"),
        ({"url": "redis://localhost", "retention": 0}, "retention=0"),
        ({"url": "redis://localhost", "wait_timeout": "0s"}, "wait_timeout='0s'"),
        ({"url": "redis://localhost", "wait_timeout": 0.0005}, "wait_timeout=0.0005"),
        ({"url": "redis://localhost", "wait_replicas": -1}, "wait_replicas=-1"),
        ({"url": "redis://localhost", "wait_replicas": "2"}, "wait_replicas='2'"),
        ({"url": "redis://localhost", "wait_replicas": True}, "wait_replicas=True"),
        ({"url": "redis://localhost", "wait_replicas": 1.5}, "wait_replicas=1.5"),
        ({"url": "redis://localhost", "prefix": None}, "prefix=None is no text"),
        ({"url": "redis://localhost", "prefix": b"x"}, "prefix=b'x' is no text"),
        ({"url": "redis://localhost", "socket_timeout": 0}, "socket_timeout=0"),
        ({"url": "redis://localhost", "socket_timeout": True}, "socket_timeout: True"),
        (
            {"url": "redis://localhost", "socket_connect_timeout": -1},
            "socket_connect_timeout=-1",
        ),
        ({"url": "redis://localhost?socket_timeout=-1"}, "socket_timeout=-1"),
        ({"url": "redis://localhost", "decode_responses": True}, "leave it out"),
        ({"url": "redis://localhost?decode_responses=True"}, "leave it out"),
        ({"url": "redis+cluster://localhost", "wait_replicas": 1}, "cluster"),
    ],
    "etcd": [
        ({}, "'endpoints'"),
        ({"endpoints": []}, "names no member"),
        ({"endpoints": "localhost:2379"}, "'localhost:2379' is no endpoint"),
        ({"endpoints": ["http://"]}, "'http://' is no endpoint"),
        ({"endpoints": "http://host/v3"}, "'http://host/v3' is no endpoint"),
        ({"endpoints": "http://me:secret@host"}, "'http://host' is no endpoint"),
        ({"endpoints": "http://host?password=secret"}, "'http://host' is no endpoint"),
        ({"endpoints": "http://host", "password": "secret"}, "belong together"),
        ({"endpoints": "http://host", "ca_cert": "/no/such.pem"}, MISSING),
        ({"endpoints": "http://localhost", "timeout": "soon"}, "'soon'"),
        ({"endpoints": "http://localhost", "timeout": 0}, "timeout=0 is too short"),
        ({"endpoints": "http://localhost", "timeout": "-5s"}, "timeout: '-5s'"),
        ({"endpoints": "http://localhost", "prefix": None}, "prefix=None is no text"),
        ({"endpoints": "http://localhost", "hots": 1}, "'hots'"),
    ],
    "mongodb": [
        ({}, "'url'"),
        ({"url": "redis://localhost"}, "mongodb://"),
        ({"url": "mongodb://"}, "hostname"),
        ({"url": "mongodb://localhost:x"}, "port"),
        ({"url": "mongodb://localhost", "timeout": "soon"}, "'soon'"),
        ({"url": "mongodb://localhost", "timeout": 0}, "timeout=0 is too short"),
        ({"url": "mongodb://localhost", "timeout": "0.5ms"}, "timeout='0.5ms'"),
        ({"url": "mongodb://localhost", "timeout": -5}, "timeout=-5 is too short"),
        ({"url": "mongodb://localhost", "hots": 1}, "hots"),
        ({"url": "mongodb://localhost", "tlsCAFile": "/no/such.pem"}, MISSING),
        ({"url": "mongodb+srv://a.b.c", "tlsCAFile": "/no/such.pem"}, MISSING),
        ({"url": "mongodb+srv://a.b.c/?tlsCAFile=/no/such.pem"}, MISSING),
        ({"url": "mongodb://localhost", "database": "a b"}, "' '"),
        ({"url": "mongodb://localhost", "collection": ""}, "cannot be empty"),
    ],
    "dynamodb": [
        ({**LOGIN, "region_name": None}, "region"),
        ({**LOGIN, "region_name": "a b"}, "region"),
        ({**LOGIN, "table": ""}, "table='' is no name of a table"),
        ({**LOGIN, "table": "a b"}, "table='a b'"),
        ({**LOGIN, "table": "ab"}, "table='ab'"),
        ({**LOGIN, "table": 1000}, "'int'"),
        ({**LOGIN, "timeout": "soon"}, "'soon'"),
        ({**LOGIN, "timeout": 0}, "timeout=0 is too short"),
        ({**LOGIN, "hots": 1}, "'hots'"),
        ({**LOGIN, "config": None}, "'config'"),
        ({**LOGIN, "endpoint_url": "localhost:8000"}, "Invalid endpoint"),
        (
            {**LOGIN, "endpoint_url": "http://me:secret@host"},
            "'http://host' has a login",
        ),
        ({**LOGIN, "endpoint_url": "http://host?secret"}, "'http://host' has a login"),
        ({**LOGIN, "aws_session_token": "of a secret"}, "aws_session_token has a"),
        ({**LOGIN, "aws_access_key_id": "secret\n"}, "aws_access_key_id has a"),
        ({**LOGIN, "aws_access_key_id": None}, "aws_access_key_id"),
        ({**LOGIN, "verify": "/no/such.pem"}, MISSING),
    ],
    "zookeeper": [
        ({}, "'hosts'"),
        ({"hosts": ""}, "bad hostname"),
        ({"hosts": "one,,two"}, "can't be read"),
        ({"hosts": "one:x"}, "can't be read"),
        ({"hosts": "zk://one:2181"}, "hosts='zk://one:2181' is not like"),
        ({"hosts": "me:secret@one"}, "hosts='one' is not like"),
        ({"hosts": "one?password=secret"}, "hosts='one' is not like"),
        ({"hosts": "one", "path": ""}, "path='' is no path"),
        ({"hosts": "one", "path": "a b"}, "path='a b' is no path"),
        ({"hosts": "one", "path": "../a"}, "path='../a' is no path"),
        ({"hosts": "one", "path": None}, "path=None is no path"),
        ({"hosts": "one", "timeout": "soon"}, "'soon'"),
        ({"hosts": "one", "timeout": 0}, "timeout=0 is too short"),
        ({"hosts": "one", "clocks_apart": "-1s"}, "clocks_apart: '-1s'"),
        ({"hosts": "one", "ca": "/no/such.pem"}, MISSING),
        ({"hosts": "one", "certfile": "/no/such.pem"}, MISSING),
        ({"hosts": "one", "keyfile": "/no/such.pem"}, MISSING),
        ({"hosts": "one", "hots": 1}, "'hots'"),
    ],
}
"""What is wrong with options, and how the check says so."""


def entry_of(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of ``SHEDLOCK_PROVIDERS``."""
    backend = f"django_shedlock.providers.{KINDS[kind].backend}"
    return {"BACKEND": backend, "OPTIONS": options}


@pytest.fixture(params=KINDS)
def extra(request: pytest.FixtureRequest, settings: Any) -> str:
    """Use a server that does not answer; return the extra of its provider."""
    name = str(request.param)
    options = KINDS[name].options(free_port())
    settings.SHEDLOCK_PROVIDERS = {"default": entry_of(name, options)}
    return name


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [(kind, *case) for kind, cases in WRONG.items() for case in cases],
)
def test_wrong_options(
    settings: Any, kind: str, options: dict[str, Any], said: str
) -> None:
    """The check names the provider, and what is wrong; no secret is told."""
    settings.SHEDLOCK_PROVIDERS = {"default": entry_of(kind, options)}
    [message] = check_providers()
    assert check_stores() == []
    assert message.id == "shedlock.E002"
    assert "'default'" in message.msg
    assert said in message.msg
    # An error that keeps the provider from being made says itself what is wrong.
    is_made = "gives no lock provider" not in message.msg
    assert message.hint == ("Correct its OPTIONS." if is_made else None)
    assert "secret" not in message.msg


def test_missing_library(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check and the lock's error both say how to install a missing library."""
    install = f'Install it: pip install "django-shedlock[{extra}]"'
    for module in KINDS[extra].modules:
        monkeypatch.setitem(sys.modules, module, None)
    [message] = check_providers()
    assert (message.id, message.hint) == ("shedlock.E002", install)
    with pytest.raises(LockProviderError, match="'job'") as raised:
        try_from(get_provider(), configure())
    assert install in str(raised.value)
    assert not raised.value.is_uncertain


def test_server_that_does_not_answer(extra: str) -> None:
    """No job with a lock would run."""
    assert check_providers() == []
    [message] = check_stores()
    assert message.id == "shedlock.W005"
    assert "'default'" in message.msg
    store = get_provider().store  # type: ignore[attr-defined]
    assert str(message.hint).startswith(f"No job with a lock runs until {store} ")


class Client:
    """What a provider would ask a server with."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def clients(*, for_each_thread: bool = False) -> Clients[Client]:
    return Clients(Client, for_each_thread=for_each_thread)


@pytest.mark.parametrize("for_each_thread", [False, True])
def test_threads_share_a_client_or_have_their_own(*, for_each_thread: bool) -> None:
    """Threads share one client, or have one each if the provider says so."""
    held = clients(for_each_thread=for_each_thread)
    found: list[Client] = []
    run_threads(3, lambda: found.extend([held.get(), held.get()]))
    assert len({id(client) for client in found}) == (3 if for_each_thread else 1)


def test_nothing_is_made_before_it_is_needed() -> None:
    """A provider can be made where its server is away."""

    def fail() -> Client:
        raise ConnectionError("away")

    held = Clients(fail)
    with pytest.raises(ConnectionError, match="away"):
        held.get()


def test_clients_are_closed_with_their_provider() -> None:
    """No connection is left when nobody can ask for it any more."""
    held = clients()
    client = held.get()
    held.close()
    assert client.is_closed
    again = held.get()
    assert again is not client
    del held
    gc.collect()
    wait_for(lambda: again.is_closed)


def test_garbage_collector_waits_for_no_client() -> None:
    """
    The garbage collector doesn't wait until a client is closed.

    A collection may start while its thread holds a lock that the closing needs.
    """
    mutex = threading.Lock()
    steps: list[str] = []

    class SlowClients(Clients[Client]):
        @staticmethod
        def close_client(client: Client) -> None:
            acquired = mutex.acquire(timeout=30)
            steps.append("closed" if acquired else "waited in vain")

    held = SlowClients(Client)
    held.get()
    with mutex:
        del held
        gc.collect()
        steps.append("collected")
    wait_for(lambda: len(steps) == 2)
    assert steps == ["collected", "closed"]


def test_forked_child_makes_its_own_client() -> None:
    """
    A forked child makes its own client, and leaves its parent's client open.

    A thread of the parent may hold the mutex at the fork.
    """
    held = clients()
    ours = held.get()

    def work() -> bool:
        theirs = held.get()
        held.close()
        gc.collect()
        return theirs is not ours and theirs.is_closed and not ours.is_closed

    with thread_inside(lambda stay: hold_mutex(held, stay)):
        assert forked(work)
    assert held.get() is ours


def test_child_of_a_thread_keeps_its_parents_client() -> None:
    """A child that a thread forks keeps its parent's client alive."""
    held = clients()
    ours = weakref.ref(held.get())
    kept: list[bool] = []

    def work() -> bool:
        gc.collect()
        return ours() is not None

    run_threads(1, lambda: kept.append(forked(work)))
    assert kept == [True]


def hold_mutex(held: Clients[Client], stay: Callable[[], None]) -> None:
    with held._mutex:
        stay()


def test_forgotten_client_is_not_closed() -> None:
    """A forgotten client stays open, since it belongs to the parent process."""
    held = clients()
    parents = held.get()
    held.forget()
    own = held.get()
    del held
    gc.collect()
    wait_for(lambda: own.is_closed)
    assert not parents.is_closed


@pytest.mark.parametrize("kind", KINDS)
def test_exception_that_is_none_of_the_library(settings: Any, kind: str) -> None:
    """An unexpected exception counts as a lost connection: the outcome is uncertain."""
    backend, options, _ = KINDS[kind]
    settings.SHEDLOCK_PROVIDERS = {
        "default": {
            "BACKEND": f"django_shedlock.providers.{backend}",
            "OPTIONS": options(free_port()),
        }
    }
    provider: Any = get_provider()
    with (
        pytest.raises(LockProviderError, match="'job'.*: RuntimeError: odd") as raised,
        provider.asking("acquire", "job"),
    ):
        raise RuntimeError("odd")
    assert raised.value.is_uncertain
    assert isinstance(raised.value.__cause__, RuntimeError)
