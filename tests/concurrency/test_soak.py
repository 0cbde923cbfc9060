"""The soak, for a minute."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.concurrency.soak import soak

pytestmark = [
    pytest.mark.servers_only,
    pytest.mark.soak,
    pytest.mark.django_db(transaction=True),
]


def test_a_minute_of_kills_stops_errors_and_restarts() -> None:
    """Bodies overlap only across a pause, and then their fenced writes are refused."""
    counts = soak(timedelta(minutes=1), seed=20261121)
    assert counts.violations == []
    assert counts.bodies > 100
    assert counts.fenced_writes > 100
    assert min(counts.kills, counts.stops, counts.restarts) > 0
