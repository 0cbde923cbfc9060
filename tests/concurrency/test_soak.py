"""The soak, until enough has happened."""

from __future__ import annotations

import pytest

from tests.concurrency.soak import Counts, soak
from tests.models import Body, FencedWrite

pytestmark = [
    pytest.mark.servers_only,
    pytest.mark.soak,
    pytest.mark.django_db(transaction=True),
]


def is_enough(counts: Counts) -> bool:
    harm = min(counts.kills // 10, counts.stops // 5, counts.restarts)
    return harm > 1 and min(Body.objects.count(), FencedWrite.objects.count()) > 200


def test_some_kills_stops_errors_and_restarts() -> None:
    """Bodies overlap only across a pause, and then their fenced writes are refused."""
    counts = soak(is_enough, seed=20261121)
    assert counts.violations == []
    assert counts.bodies > 200
