"""How often this process skipped each job since it last ran it."""

from __future__ import annotations

import os
import threading
from collections import Counter

MOST_NAMES = 10_000
"""Names made from arguments could be without end; more are not counted."""

_counts: Counter[tuple[str, str]] = Counter()
_mutex = threading.Lock()


def _forget() -> None:
    # A forked child has skipped nothing yet, and may have got the mutex locked.
    global _mutex
    _mutex = threading.Lock()
    _counts.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def add(provider: str, name: str) -> None:
    """Count a skip."""
    with _mutex:
        if (provider, name) in _counts or len(_counts) < MOST_NAMES:
            _counts[provider, name] += 1


def take(provider: str, name: str) -> int:
    """Return the number of skips, and begin again at zero."""
    with _mutex:
        return _counts.pop((provider, name), 0)
