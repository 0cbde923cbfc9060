"""
What a table does that has no capacity left, or refuses a role.

The stand-in can be in neither state. So its place is taken by the answer that AWS gives
then, in the form in which it comes from the network.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import botocore.endpoint
import pytest
from botocore.awsrequest import AWSResponse

from django_shedlock.exceptions import LockProviderError
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.dynamodb import DynamoDBLockProvider
from tests.support.dynamodb_fixtures import LOGIN
from tests.support.locks import configure, try_from
from tests.support.store_states import StoreStates

FORBIDDEN = (
    "User: arn:aws:sts::123456789012:assumed-role/shop/i-1 is not authorized to perform"
    ": dynamodb:PutItem on resource: arn:aws:dynamodb:eu-central-1:123456789012:table/"
    "shedlock because no identity-based policy allows the dynamodb:PutItem action"
)


class Body(io.BytesIO):
    """The body of an answer, as botocore reads it."""

    def stream(self) -> Iterator[bytes]:
        """Yield what there is."""
        yield self.read()


@contextmanager
def refusing(locks: Any, kind: str, text: str) -> Iterator[None]:
    """Let AWS refuse each change with this error, and nobody wait between two tries."""

    def refuse(request: Any, **_: Any) -> AWSResponse:
        refusal = {
            "__type": f"com.amazonaws.dynamodb.v20120810#{kind}",
            "message": text,
        }
        body = Body(json.dumps(refusal).encode())
        headers = {"Content-Type": "application/x-amz-json-1.0"}
        return AWSResponse(request.url, 400, headers, body)

    events, event = locks.clients.get().meta.events, "before-send.dynamodb.PutItem"
    events.register(event, refuse)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.endpoint.time, "sleep", lambda _: None)
        yield
    events.unregister(event, refuse)


class TestStates(StoreStates):
    """A table without capacity for changes, and a role that may only read."""

    store = "DynamoDB"
    full_fix = "more capacity"
    forbidden_fix = "Allow dynamodb:PutItem on table 'locks"
    releases_when_full = False

    @pytest.fixture
    def locks(self, dynamodb: dict[str, Any]) -> Iterator[LockProvider]:
        """Return a provider with a table of its own."""
        provider = DynamoDBLockProvider("default", **dynamodb)
        yield provider
        provider.clients.close()

    @contextmanager
    def full(self, locks: LockProvider) -> Iterator[None]:
        with refusing(locks, "ProvisionedThroughputExceededException", "too many"):
            yield

    @contextmanager
    def forbidden(self, locks: LockProvider) -> Iterator[LockProvider]:
        with refusing(locks, "AccessDeniedException", FORBIDDEN):
            yield locks

    def at(self, port: int, *, tls: bool) -> LockProvider:
        url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        return DynamoDBLockProvider("default", endpoint_url=url, **LOGIN)

    @contextmanager
    def plain_port(self, locks: Any) -> Iterator[int]:
        yield urlsplit(locks.clients.get().meta.endpoint_url).port or 80

    @pytest.mark.parametrize("code", ["RequestLimitExceeded", "ThrottlingException"])
    def test_throttled_change(self, locks: LockProvider, code: str) -> None:
        """Whatever limit is exceeded, the error says what to do."""
        with refusing(locks, code, "Rate exceeded"):
            with pytest.raises(LockProviderError, match=self.full_fix) as raised:
                try_from(locks, configure())
        assert not raised.value.is_uncertain
