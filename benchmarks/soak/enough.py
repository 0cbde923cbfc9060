"""When a soak in a test may end: once what the test is about has happened."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from benchmarks.soak.verdict import Verdict
from tests.support.waiting import STARTUP_PATIENCE

LONGEST = 3 * STARTUP_PATIENCE
"""Seconds after which a soak in which too little happens fails; pytest waits longer."""


class Enough:
    """
    Whether all of this has happened: so many of each thing, and one of each kind.

    So a slow machine makes a soak longer, but never lets it prove less.
    """

    def __init__(self, least: Mapping[str, int], *kinds: str):
        self._end = time.monotonic() + LONGEST
        self._least = least
        self._kinds = kinds

    def __call__(self, verdict: Verdict) -> bool:
        counts = verdict.counts
        assert time.monotonic() < self._end, f"too little has happened:\n{verdict}"
        return all(
            counts[what] >= least for what, least in self._least.items()
        ) and all(has_some(counts, kind) for kind in self._kinds)


class Found:
    """Whether a violation has these words."""

    def __init__(self, words: str):
        self._end = time.monotonic() + LONGEST
        self._words = words

    def __call__(self, verdict: Verdict) -> bool:
        assert time.monotonic() < self._end, f"nothing was found:\n{verdict}"
        return any(self._words in line for line in verdict.violations)


def has_some(counts: Counter[str], kind: str) -> bool:
    """Return whether anything was counted whose name begins with ``kind``."""
    return any(name.startswith(kind) for name in counts)
