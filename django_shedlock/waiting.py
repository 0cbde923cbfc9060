"""The pauses between the attempts of somebody who waits for a lock."""

from __future__ import annotations

import random
import time
from datetime import timedelta

from django_shedlock.holders import LockHolder

SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


class Waiting:
    """
    Pauses that grow, are jittered, and end with the wait or with the holder's lease.

    ``wait`` counts by this process's monotonic clock from construction on.
    """

    def __init__(self, wait: timedelta):
        self._deadline = time.monotonic() + wait.total_seconds()
        self._ceiling = SHORTEST_PAUSE

    def pause(self, holder: LockHolder) -> float | None:
        """Return the seconds until the next attempt, or ``None`` to give up."""
        left = self._deadline - time.monotonic()
        if left <= 0 or holder.tick is not None:
            return None
        pause = random.uniform(self._ceiling / 2, self._ceiling)
        self._ceiling = min(self._ceiling * 2, LONGEST_PAUSE)
        lease = holder.remaining.total_seconds()
        return min(pause, left, lease) if lease > 0 else min(pause, left)
