"""What a check found, kept for some seconds, and asked for by one thread at a time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.threads import renewed_in_child, run_aside

MOST = 100
"""Checks whose verdicts are kept."""
PATIENCE = 60.0
"""Seconds until a check that has not ended is begun again, as its connection may be
dead, and its store alive."""
MOST_UNDER_WAY = 10
"""Threads in which one check runs at the most."""
Check = Callable[[], Sequence[Finding]]


@dataclass(frozen=True)
class Verdict:
    """What a check found, and when, by this process's monotonic clock."""

    findings: Sequence[Finding]
    at: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> timedelta:
        """How long ago it was found."""
        return timedelta(seconds=time.monotonic() - self.at)


class Verdicts:
    """
    The newest verdict of each check.

    A check runs in a thread of its own, and stands in nobody's way. While its store
    hangs, that one thread waits, and each minute another one, up to ``MOST_UNDER_WAY``,
    however many callers there are.
    """

    def __init__(self) -> None:
        self.forget()
        renewed_in_child(self)

    def forget(self) -> None:
        """Forget all: a forked child does not have its parent's threads."""
        self._changed = threading.Condition()
        self._kept: dict[Hashable, Verdict] = {}
        self._begun: dict[Hashable, float] = {}
        self._under_way: Counter[Hashable] = Counter()

    def begin(self, key: Hashable, check: Check, keep_for: timedelta) -> None:
        """
        Begin the check, unless it is running, or its verdict is not older than that.

        A check that has run for longer than ``PATIENCE`` does not count as running.
        Raises ``RuntimeError`` if no thread can be started.
        """
        with self._changed:
            kept = self._kept.get(key)
            if self._is_running(key) or (kept is not None and kept.age <= keep_for):
                return
            began = time.monotonic()
            run_aside(lambda: self._run(key, check, began))
            self._begun[key] = began
            self._kept.pop(key, None)
            self._under_way[key] += 1

    def wait(self, key: Hashable, deadline: timedelta) -> Verdict | None:
        """
        Return the verdict; ``None`` if its check has run for longer than ``deadline``.

        So of a store that hangs only the first callers wait.
        """
        with self._changed:
            began = self._begun.get(key)
            if began is None:
                return self._kept.get(key)
            left = began + deadline.total_seconds() - time.monotonic()
            is_done = self._changed.wait_for(
                lambda: self._begun.get(key) != began, max(0.0, left)
            )
            return self._kept.get(key) if is_done else None

    def _is_running(self, key: Hashable) -> bool:
        if self._under_way[key] >= MOST_UNDER_WAY:
            return True
        began = self._begun.get(key)
        return began is not None and time.monotonic() - began <= PATIENCE

    def _run(self, key: Hashable, check: Check, began: float) -> None:
        verdict = None
        try:
            verdict = Verdict(check())
        finally:
            with self._changed:
                self._under_way -= Counter({key: 1})
                if self._begun.get(key) == began:  # no other one has begun since
                    del self._begun[key]
                    if verdict is not None:
                        self._keep(key, verdict)
                    self._changed.notify_all()

    def _keep(self, key: Hashable, verdict: Verdict) -> None:
        if len(self._kept) >= MOST:
            self._kept.clear()
        self._kept[key] = verdict


verdicts = Verdicts()
