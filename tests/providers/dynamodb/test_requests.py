"""What is sent to DynamoDB, what it keeps, and what a lost reply changes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import botocore.endpoint
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import (
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
)
from botocore.httpsession import URLLib3Session

from django_shedlock.exceptions import InvalidLockConfiguration, LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import JobState, LockHolder
from django_shedlock.providers.dynamodb import REQUEST_TRIES, DynamoDBLockProvider
from django_shedlock.providers.entries import Entry
from tests.support.dynamodb_fixtures import LOGIN
from tests.support.forks import assert_child_connects_anew, forked
from tests.support.locks import (
    MINUTE,
    configure,
    force_release,
    is_ours,
    is_released,
    status_of,
    take_from,
    try_from,
)
from tests.support.ports import free_port
from tests.support.proxies import proxy
from tests.support.waiting import wait_for

Reply = Callable[[Callable[[], Any]], Any]
"""What becomes of a request that its argument carries out."""
URL = "http://of.a.test"


@contextmanager
def expected(locks: DynamoDBLockProvider, *operations: str) -> Iterator[list[Any]]:
    """Assert that just these are sent, and return what with."""
    names: list[str] = []
    sent: list[Any] = []

    def note(params: Any, model: Any, **_: Any) -> None:
        names.append(model.name)
        sent.append(params)

    events, event = locks.clients.get().meta.events, "provide-client-params.dynamodb"
    events.register(event, note)
    yield sent
    events.unregister(event, note)
    assert names == list(operations)


def item_of(locks: DynamoDBLockProvider, name: str = "job") -> Any:
    key = {"name": {"S": name}}
    return locks.clients.get().get_item(TableName=locks.table, Key=key)["Item"]


def put(locks: DynamoDBLockProvider, item: Any) -> None:
    """Write an item as with the console of AWS."""
    locks.clients.get().put_item(TableName=locks.table, Item=item)


def test_requests_of_a_lock(locks: DynamoDBLockProvider) -> None:
    """Two for each step, one for a lock that is held; each read is consistent."""
    with expected(locks, "GetItem", "PutItem") as sent:
        lock = take_from(locks, configure())
    assert sent[0]["ConsistentRead"]
    with expected(locks, "GetItem"):
        assert isinstance(try_from(locks, configure()), LockHolder)
    with expected(locks, "GetItem", "PutItem"):
        assert locks.extend(lock, MINUTE)
    with expected(locks, "GetItem", "PutItem"):
        assert locks.release(lock)
    with expected(locks, "Scan") as sent:
        locks.statuses()
    assert sent[0]["ConsistentRead"]
    with expected(locks, "GetItem"):
        locks.now()


def test_list_in_pages(locks: DynamoDBLockProvider) -> None:
    """All pages of a scan are read."""
    for name in "abc":
        take_from(locks, configure(name))

    def shorten(params: dict[str, Any], **_: Any) -> None:
        params["Limit"] = 1

    events = locks.clients.get().meta.events
    events.register("provide-client-params.dynamodb.Scan", shorten)
    assert sorted(locks.names()) == ["a", "b", "c"]
    assert [status.name for status in locks.statuses()] == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["grün", "a/b", ":seen", "#name", "a b"], ids=repr)
def test_names_are_taken_literally(locks: DynamoDBLockProvider, name: str) -> None:
    """Whatever characters they have."""
    take_from(locks, configure(name))
    take_from(locks, configure("job"))
    assert set(locks.names()) == {name, "job"}
    assert status_of(locks, name).remaining


def test_clock_is_asked_for_no_lock(locks: DynamoDBLockProvider) -> None:
    """No lock has the name that it asks for."""
    with expected(locks, "GetItem") as sent:
        locks.clock()
    with pytest.raises(InvalidLockConfiguration):
        configure(sent[0]["Key"]["name"]["S"])


def test_lease_below_a_second() -> None:
    """DynamoDB tells whole seconds."""
    locks = DynamoDBLockProvider("default", **LOGIN)
    with pytest.raises(InvalidLockConfiguration, match="too short"):
        try_from(locks, configure(lock_at_most_for=timedelta(milliseconds=500)))


def test_each_write_counts(locks: DynamoDBLockProvider) -> None:
    """Also one that changes nothing: the next one sees it."""
    take_from(locks, configure())
    entry, version, _ = locks.read("job")
    assert entry is not None
    for _ in range(2):
        assert locks.write("job", entry, version)
        assert not locks.write("job", entry, version)
        version = locks.read("job")[1]


def test_item_written_meanwhile(locks: DynamoDBLockProvider) -> None:
    """Of two that saw no item one writes it."""
    entry, version, now = locks.read("job")
    assert entry is None
    take_from(locks, configure())
    before = item_of(locks)
    assert not locks.write("job", Entry.free(now), version)
    assert item_of(locks) == before


def test_item_deleted_meanwhile(locks: DynamoDBLockProvider) -> None:
    """What was read is no longer there, so nothing is written."""
    take_from(locks, configure())
    entry, version, _ = locks.read("job")
    assert entry is not None
    key = {"name": {"S": "job"}}
    locks.clients.get().delete_item(TableName=locks.table, Key=key)
    assert not locks.write("job", entry, version)
    assert locks.read("job")[0] is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"entry": None},
        {"entry": {"S": "no JSON"}},
        {"entry": {"S": "[]"}},
        {"entry": {"N": "1"}},
        {"entry": {"S": '{"locked_by": 1}'}},
        {"mark": None},
        {"held_until": None},
        {"held_until": {"S": "tomorrow"}},
        {"held_until": {"N": "1e100"}},
    ],
    ids=str,
)
def test_unreadable_item(locks: DynamoDBLockProvider, wrong: dict[str, Any]) -> None:
    """It is told, and neither lost nor taken for a free lock."""
    take_from(locks, configure())
    take_from(locks, configure("other"))
    item = {**item_of(locks), **wrong}
    put(locks, {field: value for field, value in item.items() if value})
    before = item_of(locks)
    broken, other = locks.statuses()
    assert broken.unreadable
    assert not other.unreadable
    with pytest.raises(LockProviderError, match="'job'.*can't be read"):
        try_from(locks, configure())
    assert item_of(locks) == before


def test_held_until_decides(locks: DynamoDBLockProvider) -> None:
    """Who corrects it in the console frees the lock, or keeps it."""
    lock = take_from(locks, configure())
    item = item_of(locks)
    put(locks, {**item, "held_until": {"N": "0"}})
    assert not status_of(locks, "job").remaining
    assert not locks.extend(lock, MINUTE)
    lock = take_from(locks, configure())
    assert locks.release(lock)
    put(locks, {**item_of(locks), "held_until": item["held_until"]})
    assert isinstance(try_from(locks, configure()), LockHolder)


def test_missing_table(dynamodb: dict[str, Any]) -> None:
    """The error says what to create; nothing was done."""
    locks = DynamoDBLockProvider("default", **{**dynamodb, "table": "no-such-table"})
    with pytest.raises(LockProviderError, match="Create table 'no-such-table'") as no:
        try_from(locks, configure())
    assert not no.value.is_uncertain
    locks.clients.close()


@contextmanager
def replies(monkeypatch: pytest.MonkeyPatch, *faults: Reply) -> Iterator[None]:
    """Let these happen to the next tries of a change, and nobody wait between."""
    send: Callable[..., Any] = URLLib3Session.send
    left = list(faults)

    def reply(self: Any, request: Any) -> Any:
        is_change = request.headers["X-Amz-Target"].endswith(b"PutItem")
        if left and is_change:
            return left.pop(0)(lambda: send(self, request))
        return send(self, request)

    with monkeypatch.context() as patch:
        patch.setattr(URLLib3Session, "send", reply)
        patch.setattr(botocore.endpoint.time, "sleep", lambda _: None)
        yield
    assert not left


def closed(carry_out: Callable[[], Any]) -> Any:
    carry_out()
    raise ConnectionClosedError(endpoint_url=URL)


def late(carry_out: Callable[[], Any]) -> Any:
    carry_out()
    raise ReadTimeoutError(endpoint_url=URL)


def unsent(carry_out: Callable[[], Any]) -> Any:
    raise EndpointConnectionError(endpoint_url=URL)


class Body(io.BytesIO):
    def stream(self) -> Iterator[bytes]:
        yield self.read()


def told(status: int, kind: str) -> AWSResponse:
    text = json.dumps({"__type": f"com.amazonaws.dynamodb#{kind}", "message": "no"})
    headers = {"x-amzn-RequestId": "1", "Date": "Wed, 25 Nov 2026 12:00:00 GMT"}
    return AWSResponse(URL, status, headers, Body(text.encode()))


def broken(carry_out: Callable[[], Any]) -> Any:
    carry_out()
    return told(500, "InternalServerError")


def throttled(carry_out: Callable[[], Any]) -> Any:
    return told(400, "ProvisionedThroughputExceededException")


@pytest.mark.parametrize("lost", [closed, late, broken], ids=lambda f: f.__name__)
def test_lost_replies(
    locks: DynamoDBLockProvider, monkeypatch: pytest.MonkeyPatch, lost: Reply
) -> None:
    """The second try finds that the first one had done it."""
    with replies(monkeypatch, lost):
        lock = take_from(locks, configure())
    assert status_of(locks, "job").job == JobState(open_run=lock.locked_by)
    with replies(monkeypatch, lost):
        assert locks.extend(lock, MINUTE)
    with replies(monkeypatch, lost):
        assert locks.release(lock)
    take_from(locks, configure())
    with replies(monkeypatch, lost):
        assert force_release(locks, "job")
    assert isinstance(try_from(locks, configure()), Lock)


def test_reply_lost_and_overtaken(
    locks: DynamoDBLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else wrote before the second try: who has the lock decides."""

    def overtaken(carry_out: Callable[[], Any]) -> Any:
        carry_out()
        entry, version, _ = locks.read("job")
        assert entry is not None
        assert locks.write("job", entry, version)
        raise ReadTimeoutError(endpoint_url=URL)

    with replies(monkeypatch, overtaken):
        lock = take_from(locks, configure())
    assert status_of(locks, "job").job == JobState(open_run=lock.locked_by)
    assert locks.release(lock)


@pytest.mark.parametrize(
    "faults",
    [
        [late] * REQUEST_TRIES,
        [broken] * REQUEST_TRIES,
        [closed, unsent, unsent],
        [late, *[throttled] * 2],
    ],
    ids=lambda faults: "-".join(each.__name__ for each in faults),
)
def test_all_replies_lost(
    locks: DynamoDBLockProvider, monkeypatch: pytest.MonkeyPatch, faults: list[Reply]
) -> None:
    """Nobody knows whether it was done, also if only the first try got through."""
    lock = Lock(locks, configure())
    with replies(monkeypatch, *faults):
        with pytest.raises(LockProviderError, match="'job' in DynamoDB") as raised:
            locks.acquire(lock)
    assert raised.value.is_uncertain
    assert locks.acquire(lock) is None
    assert status_of(locks, "job").job == JobState(open_run=lock.locked_by)
    with replies(monkeypatch, *faults):
        with pytest.raises(LockProviderError, match="'job' in DynamoDB"):
            lock.release()
    assert lock.release()


@pytest.mark.parametrize("fault", [throttled, unsent], ids=lambda f: f.__name__)
def test_throttled_table(
    locks: DynamoDBLockProvider, monkeypatch: pytest.MonkeyPatch, fault: Reply
) -> None:
    """It is asked again, but not for long; then it is certain that nothing was done."""
    with replies(monkeypatch, *[fault] * (REQUEST_TRIES - 1)):
        lock = take_from(locks, configure())
    assert locks.release(lock)
    with replies(monkeypatch, *[fault] * REQUEST_TRIES):
        with pytest.raises(LockProviderError, match="'job' in DynamoDB") as raised:
            try_from(locks, configure())
    assert not raised.value.is_uncertain
    assert not status_of(locks, "job").remaining


def test_error_after_a_lost_reply_is_certain(
    locks: DynamoDBLockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the last request of this thread met is not that of the next one."""
    with replies(monkeypatch, *[late] * REQUEST_TRIES):
        with pytest.raises(LockProviderError):
            try_from(locks, configure())
    with replies(monkeypatch, *[throttled] * REQUEST_TRIES):
        with pytest.raises(LockProviderError) as raised:
            try_from(locks, configure("other"))
    assert not raised.value.is_uncertain


def test_reply_without_a_date(locks: DynamoDBLockProvider) -> None:
    """Nobody knows the time, so no lock is acquired."""

    def forget(parsed: Any, **_: Any) -> None:
        del parsed["ResponseMetadata"]["HTTPHeaders"]["date"]

    locks.clients.get().meta.events.register("after-call.dynamodb", forget)
    with pytest.raises(LockProviderError, match="'job' in DynamoDB.*date"):
        try_from(locks, configure())


def through(dynamodb: dict[str, Any], port: int, timeout: str) -> DynamoDBLockProvider:
    url = f"http://127.0.0.1:{port}"
    return DynamoDBLockProvider(
        "default", **{**dynamodb, "endpoint_url": url, "timeout": timeout}
    )


def test_server_that_stands_still(dynamodb: dict[str, Any]) -> None:
    """A request fails in time, and nobody knows whether it is carried out later."""
    with proxy(urlsplit(dynamodb["endpoint_url"]).port or 80) as network:
        locks = through(dynamodb, network.port, "600ms")
        lock = Lock(locks, configure())
        assert wait_for(lambda: is_answered(locks))
        with network.cut():
            with pytest.raises(LockProviderError, match="'job' in DynamoDB") as raised:
                locks.acquire(lock)
            assert raised.value.is_uncertain
        assert wait_for(lambda: is_ours(lock))
        assert wait_for(lambda: is_released(lock))
        locks.clients.close()


def test_server_that_is_killed(dynamodb: dict[str, Any]) -> None:
    """Calls fail until it is there again, and the lock is held as before."""
    port = urlsplit(dynamodb["endpoint_url"]).port or 80
    with proxy(port) as network:
        locks = through(dynamodb, network.port, "4m")
        lock = take_from(locks, configure())
    with pytest.raises(LockProviderError, match="'job' in DynamoDB"):
        locks.extend(lock, MINUTE)
    again = through(dynamodb, port, "4m")
    assert isinstance(try_from(again, configure()), LockHolder)
    assert again.release(lock)
    for each in (locks, again):
        each.clients.close()


def is_answered(locks: DynamoDBLockProvider) -> bool:
    try:
        return bool(locks.clock())
    except LockProviderError:
        return False


def test_timeout_is_that_of_all_tries() -> None:
    """Whether they connect or read."""
    locks = DynamoDBLockProvider("default", timeout="12s", **LOGIN)
    config = locks.clients.get().meta.config
    each = config.connect_timeout + config.read_timeout
    assert each * config.retries["total_max_attempts"] == 12


def test_nobody_listens() -> None:
    """Then it is certain that nothing was done."""
    url = f"http://127.0.0.1:{free_port()}"
    locks = DynamoDBLockProvider("default", endpoint_url=url, **LOGIN)
    with pytest.raises(LockProviderError, match="'job' in DynamoDB") as failure:
        try_from(locks, configure())
    assert not failure.value.is_uncertain
    locks.clients.close()


def test_forked_child_connects_anew(locks: DynamoDBLockProvider) -> None:
    """It uses none of its parent's connections."""
    assert_child_connects_anew(locks)
    ours = locks.clients.get()
    assert forked(lambda: locks.clients.get() is not ours)
