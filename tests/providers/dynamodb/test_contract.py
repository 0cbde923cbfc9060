"""The contract, on the server of ``DYNAMODB_URL``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

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

    def forget_record(self, provider: Any, name: str) -> None:
        which = {"name": {"S": name}}
        provider.clients.get().delete_item(TableName=provider.table, Key=which)
