"""The soak, until enough has happened."""

from __future__ import annotations

import time

import pytest

from tests.concurrency.soak import Counts, soak
from tests.models import Body, FencedWrite
from tests.support.waiting import PATIENCE

pytestmark = [
    pytest.mark.servers_only,
    pytest.mark.soak,
    pytest.mark.django_db(transaction=True),
]


LONGEST = 3 * PATIENCE
"""Seconds; on two cores it takes one minute."""


def is_enough(counts: Counts) -> bool:
    harm = min(counts.kills // 10, counts.stops // 5, counts.restarts)
    return harm > 1 and min(Body.objects.count(), FencedWrite.objects.count()) > 200


def test_some_kills_stops_errors_and_restarts() -> None:
    """Bodies overlap only across a pause, and then their fenced writes are refused."""
    end = time.monotonic() + LONGEST

    def is_over(counts: Counts) -> bool:
        assert time.monotonic() < end, f"too little has happened:\n{counts}"
        return is_enough(counts)

    counts = soak(is_over, seed=20261121)
    assert counts.violations == []
    assert counts.bodies > 200
