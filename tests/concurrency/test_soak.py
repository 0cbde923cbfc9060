"""The soak's short form, and that it finds what is broken."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.concurrency.soak import Plan, soak
from tests.support.soak.journal import read
from tests.support.soak.servers import QUICK_LOCK_SERVERS
from tests.support.soak.verdict import judge
from tests.support.stores import chosen_store
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 6
LONGEST = 3 * PATIENCE
"""Seconds for the rest, if the machine is slow; on two cores nothing is missing."""

ENOUGH = {
    "bodies": 40,
    "fenced writes": 20,
    "workers killed": 2,
    "workers stopped": 2,
    "workers that ended in good order": 2,
}


class Enough:
    """Whether so much has happened as the test is about."""

    def __init__(self, **more: int) -> None:
        self._end = time.monotonic() + LONGEST
        self._least = {**ENOUGH, **more}

    def __call__(self, journal: Path) -> bool:
        verdict = judge(read(journal))
        counts = verdict.counts
        assert time.monotonic() < self._end, f"too little has happened:\n{verdict}"
        return all(counts[what] >= least for what, least in self._least.items()) and (
            has_some(counts, "server: ") and has_some(counts, "network: ")
        )


def has_some(counts: Counter[str], kind: str) -> bool:
    return any(name.startswith(kind) for name in counts)


@pytest.mark.parametrize(
    "store",
    [
        pytest.param(None, marks=pytest.mark.servers_only),
        *(pytest.param(store, marks=pytest.mark.once) for store in QUICK_LOCK_SERVERS),
    ],
)
def test_faults_of_workers_server_and_network(store: str | None) -> None:
    """No body overlaps another one, and what the library says of a loss is true."""
    store = store or chosen_store()
    verdict = soak(Plan(SECONDS, seed=21, pace=0.25, store=store, is_enough=Enough()))
    assert verdict.violations == []
    assert any(name.startswith("elements added") for name in verdict.counts)


@pytest.mark.servers_only
def test_promoted_replica() -> None:
    """A fail-over to a replica that has each commit breaks no claim."""
    enough = Enough(**{"server: promote": 1})
    # With this seed, the first fault of the server is a fail-over.
    plan = Plan(SECONDS, seed=1, pace=0.25, replica=True, is_enough=enough)
    assert soak(plan).violations == []


@pytest.mark.servers_only
@pytest.mark.parametrize(
    ("broken", "pace", "found"),
    [
        ("lease", 1, "before the end of"),
        ("tick", 1, "by scheduler"),
        ("shutdown", 0.25, "is held by a process that ended in good order"),
    ],
)
def test_what_is_broken_is_found(broken: str, pace: float, found: str) -> None:
    """Each part that is taken out breaks a claim of its own."""

    def is_found(journal: Path) -> bool:
        return any(found in line for line in judge(read(journal)).violations)

    verdict = soak(Plan(0, seed=1, pace=pace, broken=broken, is_enough=is_found))
    assert any(found in line for line in verdict.violations)
