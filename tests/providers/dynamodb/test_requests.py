"""What is sent to DynamoDB, what it keeps, and what a lost reply changes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import (
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from django_shedlock.exceptions import InvalidLockConfiguration, LockProviderError
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import JobState, LockHolder, LockState, LockStatus
from django_shedlock.providers.base import LockQuery
from django_shedlock.providers.dynamodb import (
    BATCH_SIZE,
    REQUEST_TRIES,
    DynamoDBLockProvider,
)
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState
from tests.providers.dynamodb.test_contract import Reply, late, replies
from tests.support.dynamodb_fixtures import LOGIN, documented_actions
from tests.support.locks import (
    MINUTE,
    configure,
    force_release,
    status_of,
    take,
    try_from,
    try_to_acquire,
    try_to_release,
)
from tests.support.proxies import proxy
from tests.support.waiting import wait_for

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
    """
    Two for each step, one for a lock that is held; each read is consistent.

    The policy of the page allows these, and no others.
    """
    with expected(locks, "GetItem", "PutItem") as sent:
        lock = take(configure(), locks)
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
    with expected(locks, "BatchGetItem") as sent:
        locks.statuses(LockQuery(names=["job", "other"]))
    assert sent[0]["RequestItems"][locks.table]["ConsistentRead"]
    with expected(locks, "GetItem"):
        locks.now()
    with expected(locks, "GetItem", "DeleteItem"):
        assert locks.delete_unused("job", ZERO)
    assert documented_actions() == {
        "GetItem",
        "PutItem",
        "BatchGetItem",
        "Scan",
        "DeleteItem",
    }


def test_list_in_pages(locks: DynamoDBLockProvider) -> None:
    """All pages of a scan are read."""
    for name in "abc":
        take(configure(name), locks)

    def shorten(params: dict[str, Any], **_: Any) -> None:
        params["Limit"] = 1

    events = locks.clients.get().meta.events
    events.register("provide-client-params.dynamodb.Scan", shorten)
    assert sorted(locks.names()) == ["a", "b", "c"]
    assert [status.name for status in locks.statuses()] == ["a", "b", "c"]


def test_pages_that_come_again(locks: DynamoDBLockProvider) -> None:
    """A server that never ends its list is asked no more."""
    for name in "abc":
        take(configure(name), locks)
    last = iter("abcabcabc")

    def go_on(parsed: Any, **_: Any) -> None:
        parsed["LastEvaluatedKey"] = {"name": {"S": next(last)}}

    events = locks.clients.get().meta.events
    events.register("after-call.dynamodb.Scan", go_on)
    with pytest.raises(LockProviderError, match="locks in DynamoDB.*again and again"):
        locks.names()
    assert next(last) == "b"


def put_copies(locks: DynamoDBLockProvider, names: list[str]) -> None:
    """Let these locks be held, as ``job`` is."""
    item = item_of(locks)
    for start in range(0, len(names), 25):
        puts = [
            {"PutRequest": {"Item": {**item, "name": {"S": name}}}}
            for name in names[start : start + 25]
        ]
        locks.clients.get().batch_write_item(RequestItems={locks.table: puts})


def test_many_names(locks: DynamoDBLockProvider) -> None:
    """DynamoDB reads a hundred in one request, and no name twice."""
    take(configure(), locks)
    names = [f"job {number:03}" for number in range(2 * BATCH_SIZE + 1)]
    there = names[: BATCH_SIZE + 10]
    put_copies(locks, there)
    with expected(locks, *["BatchGetItem"] * 3):
        found = locks.statuses(LockQuery(names=[*names, *names]))
    assert [status.name for status in found] == there
    with expected(locks):
        assert not list(locks.statuses(LockQuery(names=[])))


def left_unread(locks: DynamoDBLockProvider, read: int) -> Callable[..., None]:
    """Return what lets DynamoDB read that many of the names in each request."""

    def leave(parsed: Any, **_: Any) -> None:
        items = parsed["Responses"][locks.table]
        keys = [{"name": item["name"]} for item in items[read:]]
        parsed["Responses"][locks.table] = items[:read]
        parsed["UnprocessedKeys"] = {locks.table: {"Keys": keys}}

    return leave


def test_names_left_unread(locks: DynamoDBLockProvider) -> None:
    """Another request asks for them; a lock without a record is none of them."""
    take(configure(), locks)
    put_copies(locks, ["a", "b", "c"])
    leave = left_unread(locks, 1)
    locks.clients.get().meta.events.register("after-call.dynamodb.BatchGetItem", leave)
    with expected(locks, *["BatchGetItem"] * 3):
        found = locks.read_all(["none", "a", "b", "c"])
        there = [(name, bool(read and read[0])) for name, read in found]
    assert sorted(there) == [("a", True), ("b", True), ("c", True), ("none", False)]


def test_names_that_stay_unread(locks: DynamoDBLockProvider) -> None:
    """If names stay unread after several requests, the error asks for more capacity."""
    take(configure(), locks)
    leave = left_unread(locks, 0)
    locks.clients.get().meta.events.register("after-call.dynamodb.BatchGetItem", leave)
    with expected(locks, *["BatchGetItem"] * REQUEST_TRIES):
        with pytest.raises(LockProviderError, match="left 1 of .*more capacity"):
            locks.statuses(LockQuery(names=["job"]))


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


LATER = {"later": {"M": {"a": {"SS": ["x", "y"]}}}, "blob": {"B": b"\xff"}}
"""Attributes of a newer version."""


def test_attributes_of_a_newer_version(locks: DynamoDBLockProvider) -> None:
    """Each operation keeps the attributes that a newer version has added."""

    def job() -> LockStatus:
        item = item_of(locks)
        assert {name: item.get(name) for name in LATER} == LATER
        return status_of(locks)

    take(configure(), locks).release()
    put(locks, {**item_of(locks), **LATER})
    lock = take(configure(), locks)
    assert job().locked_by == lock.locked_by
    assert locks.extend(lock, 2 * MINUTE)
    assert locks.replace(job(), 3 * MINUTE)
    locks.note_unrecorded("job")
    locks.request_run("job", "alice", "again")
    asked_at = job().job.asked_at
    assert asked_at
    assert locks.withdraw_request("job", asked_at)
    assert job().job.asked_at is None
    assert locks.release(lock)
    locks.account_for_loss(lock, has_ended=True)
    locks.register("job", Schedule("0 0 1 1 *", "UTC"))
    assert job().schedule_state != ScheduleState()
    take(configure(), locks)
    assert force_release(locks, "job")
    assert job().state is LockState.FREE


def test_held_until_decides(locks: DynamoDBLockProvider) -> None:
    """Who corrects it in the console frees the lock, or keeps it."""
    lock = take(configure(), locks)
    item = item_of(locks)
    put(locks, {**item, "held_until": {"N": "0"}})
    assert not status_of(locks, "job").remaining
    assert not locks.extend(lock, MINUTE)
    lock = take(configure(), locks)
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


def closed(carry_out: Callable[[], Any]) -> Any:
    carry_out()
    raise ConnectionClosedError(endpoint_url=URL)


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


def unanswered(carry_out: Callable[[], Any]) -> Any:
    raise ReadTimeoutError(endpoint_url=URL)


@pytest.mark.parametrize("lost", [closed, broken], ids=lambda f: f.__name__)
def test_lost_replies(locks: DynamoDBLockProvider, lost: Reply) -> None:
    """The second try finds that the first one had done it."""
    with replies(lost):
        lock = take(configure(), locks)
    assert status_of(locks, "job").job == JobState(open_run=lock.locked_by)


def test_reply_lost_and_overtaken(locks: DynamoDBLockProvider) -> None:
    """Somebody else wrote before the second try: who has the lock decides."""

    def overtaken(carry_out: Callable[[], Any]) -> Any:
        carry_out()
        entry, version, _ = locks.read("job")
        assert entry is not None
        assert locks.write("job", entry, version)
        raise ReadTimeoutError(endpoint_url=URL)

    with replies(overtaken):
        lock = take(configure(), locks)
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
def test_all_replies_lost(locks: DynamoDBLockProvider, faults: list[Reply]) -> None:
    """Nobody knows whether it was done, also if only the first try got through."""
    lock = Lock(locks, configure())
    with replies(*faults):
        with pytest.raises(LockProviderError, match="'job' in DynamoDB") as raised:
            locks.acquire(lock)
    assert raised.value.is_uncertain
    assert locks.acquire(lock) is None
    assert status_of(locks, "job").job == JobState(open_run=lock.locked_by)


@pytest.mark.parametrize("fault", [throttled, unsent], ids=lambda f: f.__name__)
def test_throttled_table(locks: DynamoDBLockProvider, fault: Reply) -> None:
    """
    A request to a throttled table is repeated a few times.

    If the request still fails, it has certainly changed nothing.
    """
    with replies(*[fault] * (REQUEST_TRIES - 1)):
        lock = take(configure(), locks)
    assert locks.release(lock)
    with replies(*[fault] * REQUEST_TRIES):
        with pytest.raises(LockProviderError, match="'job' in DynamoDB") as raised:
            try_from(locks, configure())
    assert not raised.value.is_uncertain
    assert not status_of(locks, "job").remaining


def test_error_after_a_lost_reply_is_certain(locks: DynamoDBLockProvider) -> None:
    """What the last request of this thread met is not that of the next one."""
    with replies(*[late] * REQUEST_TRIES):
        with pytest.raises(LockProviderError):
            try_from(locks, configure())
    with replies(*[throttled] * REQUEST_TRIES):
        with pytest.raises(LockProviderError) as raised:
            try_from(locks, configure("other"))
    assert not raised.value.is_uncertain


@pytest.mark.parametrize("asked", [unanswered, unsent], ids=lambda f: f.__name__)
def test_retries_are_used_up(locks: DynamoDBLockProvider, asked: Reply) -> None:
    """After many lost requests there are fewer tries, of which the same is known."""
    lost = Lock(locks, configure())
    with replies(*[unanswered] * 500) as left:
        tries = REQUEST_TRIES
        while tries > 1:
            before = len(left)
            with pytest.raises(LockProviderError):
                locks.acquire(lost)
            tries = before - len(left)
    with replies(*[asked] * REQUEST_TRIES):
        with pytest.raises(LockProviderError) as raised:
            locks.acquire(lost)
    assert raised.value.is_uncertain == (asked is unanswered)
    assert locks.acquire(lost) is None
    assert locks.release(lost)


@contextmanager
def headers(
    locks: DynamoDBLockProvider, operation: str, changed: dict[str, str | None]
) -> Iterator[None]:
    """Let the answers to an operation have other headers; without one for ``None``."""

    def change(parsed: Any, **_: Any) -> None:
        kept = {**parsed["ResponseMetadata"]["HTTPHeaders"], **changed}
        found = {name: value for name, value in kept.items() if value is not None}
        parsed["ResponseMetadata"]["HTTPHeaders"] = found

    events, event = locks.clients.get().meta.events, f"after-call.dynamodb.{operation}"
    events.register(event, change)
    yield
    events.unregister(event, change)


@pytest.mark.parametrize("date", [None, "", "soon"])
def test_reply_without_a_date(locks: DynamoDBLockProvider, date: str | None) -> None:
    """Nobody knows the time, so no lock is acquired. A change needs no time."""
    with headers(locks, "GetItem", {"date": date}):
        with pytest.raises(LockProviderError, match="'job' in DynamoDB.*the date"):
            try_from(locks, configure())
    with headers(locks, "PutItem", {"date": date}):
        lock = take(configure(), locks)
    assert status_of(locks).locked_by == lock.locked_by


@pytest.mark.parametrize("kind", [None, "text/html"])
def test_reply_of_a_web_server(locks: DynamoDBLockProvider, kind: str | None) -> None:
    """
    A web server's reply gives no lock.

    Whether DynamoDB has carried out a change is then uncertain.
    """
    changed = {"content-type": kind}
    with headers(locks, "GetItem", changed):
        [message] = locks.check_store([])
        assert "is that DynamoDB?" in message.msg
        with pytest.raises(LockProviderError, match="'job'.*is that DynamoDB"):
            try_from(locks, configure())
    lock = Lock(locks, configure())
    with headers(locks, "PutItem", changed):
        with pytest.raises(LockProviderError, match="is that DynamoDB") as raised:
            locks.acquire(lock)
    assert raised.value.is_uncertain
    assert locks.acquire(lock) is None


@pytest.mark.parametrize(
    "error", [RuntimeError("none of boto3's"), KeyError("x"), ValueError("x")], ids=repr
)
def test_unknown_error(
    locks: DynamoDBLockProvider, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """An unknown error counts as a lost reply, and the next call works."""

    def fail(carry_out: Callable[[], Any]) -> Any:
        carry_out()
        raise error

    lock = Lock(locks, configure())
    with replies(fail):
        with pytest.raises(LockProviderError, match="'job' in DynamoDB") as raised:
            locks.acquire(lock)
    assert raised.value.is_uncertain
    assert locks.acquire(lock) is None
    with replies(fail):
        with pytest.raises(LockProviderError, match="'job' in DynamoDB"):
            lock.release()
    assert lock.release()


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
        assert wait_for(lambda: try_to_acquire(lock))
        assert wait_for(lambda: try_to_release(lock))
        locks.clients.close()


def test_server_that_is_killed(dynamodb: dict[str, Any]) -> None:
    """Calls fail until it is there again, and the lock is held as before."""
    port = urlsplit(dynamodb["endpoint_url"]).port or 80
    with proxy(port) as network:
        locks = through(dynamodb, network.port, "4m")
        lock = take(configure(), locks)
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
    """All tries together, to connect and to read, stay within the timeout."""
    locks = DynamoDBLockProvider("default", timeout="12s", **LOGIN)
    config = locks.clients.get().meta.config
    each = config.connect_timeout + config.read_timeout
    assert each * config.retries["total_max_attempts"] == 12
