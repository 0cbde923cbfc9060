"""The MongoDB of ``MONGODB_URL``, with a collection for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from django_shedlock.providers.mongodb import MongoLockProvider

MISSING = "MongoDB is missing: set MONGODB_URL"
PATIENT = {"timeout": "4m"}
numbers = count()


@pytest.fixture
def mongodb() -> Iterator[dict[str, Any]]:
    """Return ``OPTIONS`` of a collection without locks, which is dropped at the end."""
    url = os.environ.get("MONGODB_URL")
    if not url:
        pytest.skip(MISSING)
    collection = f"locks {os.getpid()} {next(numbers)}"
    yield {"url": url, "collection": collection, **PATIENT}
    provider: Any = MongoLockProvider("default", url=url, collection=collection)
    provider.collection.drop()
    provider.clients.close()


@pytest.fixture
def locks(mongodb: dict[str, Any]) -> Iterator[MongoLockProvider]:
    provider = MongoLockProvider("default", **mongodb)
    yield provider
    provider.clients.close()
