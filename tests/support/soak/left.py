"""Locks that are held by a process that has ended in good order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.support.soak.journal import Event

SLACK = 0.5
"""Seconds for which the journal may be late: it has no try before it is made."""


@dataclass
class Try:
    """What a process knew of one try to acquire a lock, by CLOCK_MONOTONIC."""

    lease_end: float
    is_confirmed: bool = False
    is_lost: bool = False
    released: float | None = None


class LeftLocks:
    """
    Follows the journal, and finds locks that a process should have released.

    These are counted, and are no violations:

    * The process said in its log that the lock stays held.
    * It knew the lock as lost, or had no answer when it asked for it, and its lease was
      over by its own clock: its statement arrived late.
    * It had released the lock, and then the server crashed. On PostgreSQL a release
      does not wait for the disk.
    """

    def __init__(self, counts: Counter[str]):
        self.violations: list[str] = []
        self._counts = counts
        self._tries: dict[str, Try] = {}
        self._unreleased: set[tuple[str, str]] = set()
        self._crashed: float | None = None

    def follow(self, event: Event) -> None:
        """Take note of the next event."""
        match event["what"]:
            case "asked":
                self._tries[event["id"]] = Try(event["at"] + event["lease"])
            case "crashed":
                self._crashed = event["at"]
            case "unreleased":
                self._unreleased.add((event["identity"], event["name"]))
            case "acquired" | "lost" | "released":
                self._follow_try(event)
            case "reaped":
                for held in event["held"]:
                    self._judge(event, **held)

    def _follow_try(self, event: Event) -> None:
        known = self._tries.get(event["id"])
        if known is None:
            return
        if event["what"] == "acquired":
            known.is_confirmed = True
        elif event["what"] == "lost":
            known.is_lost = True
        elif event["was_ours"]:
            known.released = event["at"]

    def _judge(self, event: Event, name: str, id: str) -> None:
        known = self._tries.get(id, Try(event["at"]))
        if (event["identity"], name) in self._unreleased:
            self._counts["held after an end: said in the log"] += 1
        elif known.is_lost:
            self._counts["held after an end: lost before"] += 1
        elif (
            known.released is not None
            and self._crashed is not None
            and self._crashed >= known.released
        ):
            self._counts["held after an end: release lost in a crash"] += 1
        elif not known.is_confirmed and known.lease_end < event["at"] + SLACK:
            self._counts["held after an end: acquired too late"] += 1
        else:
            self.violations.append(
                f"{name} is held by a process that ended in good order: {id}"
            )
