"""The contract, on the server of ``DYNAMODB_URL``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import botocore.endpoint
import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.httpsession import URLLib3Session

from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.dynamodb import DynamoDBLockProvider
from django_shedlock.providers.entries import Entry
from django_shedlock.testing import LockProviderContract
from django_shedlock.testing.contract.harness import Options
from tests.support.dynamodb_fixtures import LOGIN
from tests.support.ports import free_port

OVER = 2
"""Seconds after which a lease is over, whatever moments of their seconds they were."""


FLAWS = [
    {"entry": None},
    {"entry": {"S": "no JSON"}},
    {"entry": {"S": "[]"}},
    {"entry": {"N": "1"}},
    {"entry": {"S": '{"locked_by": 1}'}},
    {"mark": None},
    {"held_until": None},
    {"held_until": {"S": "tomorrow"}},
    {"held_until": {"N": "1e100"}},
]
"""What is wrong in an item."""
Reply = Callable[[Callable[[], Any]], Any]
"""What becomes of a request that its argument carries out."""


def shift(provider: Any, name: str, by: timedelta) -> None:
    """Make the lock that much older, and older still what is over then."""
    client, which = provider.clients.get(), {"name": {"S": name}}
    item = client.get_item(TableName=provider.table, Key=which).get("Item")
    if item is None:
        return
    entry, now = Entry.from_json(item["entry"]["S"]), provider.clock()

    def older(moment: float) -> float:
        moment -= by.total_seconds()
        return moment if moment > now else moment - OVER

    changed = replace(
        entry,
        locked_at=older(entry.locked_at),
        lock_until=older(entry.lock_until),
        lock_at_least_until=older(entry.lock_at_least_until),
    )
    held_until = older(float(item["held_until"]["N"]))
    if changed.lock_until <= now:
        held_until = min(held_until, now)
    item["entry"]["S"] = changed.to_json()
    item["held_until"]["N"] = str(held_until)
    client.put_item(TableName=provider.table, Item=item)


@contextmanager
def replies(*faults: Reply) -> Iterator[list[Reply]]:
    """
    Let these happen to the next tries of a change, and nobody wait between.

    Yield those that are left.
    """
    send: Callable[..., Any] = URLLib3Session.send
    left = list(faults)

    def reply(self: Any, request: Any) -> Any:
        is_change = request.headers["X-Amz-Target"].endswith(b"PutItem")
        if left and is_change:
            return left.pop(0)(lambda: send(self, request))
        return send(self, request)

    with (
        patch.object(URLLib3Session, "send", reply),
        patch.object(botocore.endpoint.time, "sleep", lambda _: None),
    ):
        yield left
    assert len(left) < len(faults)


def late(carry_out: Callable[[], Any]) -> Any:
    carry_out()
    raise ReadTimeoutError(endpoint_url="http://of.a.test")


class TestServer(LockProviderContract):
    """One server, and a table for each test."""

    backend = DynamoDBLockProvider

    @pytest.fixture
    def options(self, dynamodb: Options) -> Options:
        return dynamodb

    @pytest.fixture
    def unreachable_options(self) -> Options:
        url = f"http://127.0.0.1:{free_port()}"
        return {"endpoint_url": url, "timeout": "600ms", **LOGIN}

    @pytest.fixture
    def provider(self, options: Options) -> Iterator[LockProvider]:
        provider = DynamoDBLockProvider("default", **options)
        yield provider
        provider.clients.close()

    def end_lease(self, provider: LockProvider, lock: Lock) -> None:
        shift(provider, lock.name, lock.configuration.lock_at_most_for)

    def pass_time(self, provider: LockProvider, name: str, by: timedelta) -> None:
        shift(provider, name, by)

    @contextmanager
    def lose_replies(self, provider: Any, count: int) -> Iterator[None]:
        with replies(*[late] * count):
            yield

    def raw_record(self, provider: Any, name: str) -> Any:
        which = {"name": {"S": name}}
        client = provider.clients.get()
        return client.get_item(TableName=provider.table, Key=which)["Item"]

    def spoil_record(self, provider: Any, name: str, flaw: dict[str, Any]) -> None:
        item = {**self.raw_record(provider, name), **flaw}
        changed = {field: value for field, value in item.items() if value}
        provider.clients.get().put_item(TableName=provider.table, Item=changed)

    @pytest.fixture(params=FLAWS, ids=str)
    def flaw(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    def forget_record(self, provider: Any, name: str) -> None:
        which = {"name": {"S": name}}
        provider.clients.get().delete_item(TableName=provider.table, Key=which)
