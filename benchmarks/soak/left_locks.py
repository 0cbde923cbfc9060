"""Locks that are held by a process that has ended in good order."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from benchmarks.soak.journal import Event

FAULT_LIMIT = 200
"""So many of the newest faults are known, to name those around a lock that is held."""
SERVER_DELAY = 0.1
"""Seconds by which the server's answer about the age of a lock may be late."""


@dataclass
class Try:
    """What is known of one try to acquire a lock, by CLOCK_MONOTONIC."""

    asked: float
    lease_end: float
    is_confirmed: bool = False
    is_lost: bool = False
    released: float | None = None
    """When the store confirmed its first release."""
    notes: list[tuple[float, str]] = field(default_factory=list)
    """What happened to it, and when."""


class LeftLocks:
    """
    Follows the journal, and finds locks that a process should have released.

    These are counted, and are no violations:

    * The process said in its log that the lock stays held.
    * It knew the lock as lost, or had no answer when it asked for it, and its lease was
      over by its own clock: its statement arrived late.
    * It had released the lock, and then the server crashed. On PostgreSQL a release
      does not wait for the disk.
    * It had released the lock, and the server says that it was acquired after that:
      its first statement arrived late, and its second one had been answered.
    """

    def __init__(self, counts: Counter[str]):
        self.violations: list[str] = []
        self._counts = counts
        self._tries: dict[str, Try] = {}
        self._unreleased: set[tuple[str, str]] = set()
        self._ways: dict[str, str | None] = {}
        self._crashed: float | None = None
        self._faults: deque[tuple[float, str]] = deque(maxlen=FAULT_LIMIT)

    def follow(self, event: Event) -> None:
        """Take note of the next event."""
        match event["what"]:
            case "asked":
                self._tries[event["id"]] = Try(event["at"], event["lease_end"])
            case "crashed":
                self._crashed = event["at"]
            case "harm" | "fault" if event["kind"] != "connections":
                self._faults.append((event["at"], event["kind"]))
            case "unreleased":
                self._unreleased.add((event["identity"], event["name"]))
            case "ended":
                self._ways[event["identity"]] = event["way"]
            case "acquired" | "lost" | "release":
                self._follow_try(event)
            case "reaped":
                for held in event["held"]:
                    self._judge(event, **held)

    def _follow_try(self, event: Event) -> None:
        known = self._tries.get(event["id"])
        if known is None:
            return
        at, words = event["at"], event["what"]
        if event["what"] == "acquired":
            known.is_confirmed = True
            words = "confirmed"
        elif event["what"] == "lost":
            known.is_lost = True
        else:
            words = f"release answered {event['answer']}"
            if event["answer"] is True and known.released is None:
                known.released = at
        known.notes.append((at, words))

    def _judge(
        self, event: Event, name: str, id: str, age: float | None, left: float | None
    ) -> None:
        end = event["at"]
        known = self._tries.get(id, Try(end, end))
        why = None
        if (event["identity"], name) in self._unreleased:
            why = "said in the log"
        elif known.is_lost:
            why = "lost before"
        elif known.released is not None:
            if self._crashed is not None and self._crashed >= known.released:
                why = "release lost in a crash"
            elif age is not None and end - age > known.released + SERVER_DELAY:
                why = "acquired again after its release"
        elif not known.is_confirmed and known.lease_end <= end:
            why = "acquired too late"
        if why is not None:
            self._counts[f"held after an end: {why}"] += 1
            return
        notes = [(known.asked, "asked"), *known.notes]
        if age is not None:
            notes.append((end - age, "acquired by the server's clock"))
        notes += (fault for fault in self._faults if known.asked <= fault[0] <= end)
        told = [f"{words} {end - at:.3f} s before" for at, words in sorted(notes)]
        if left is not None:
            told.append(f"held for {left:.3f} s more")
        told.append(f"lease over in {known.lease_end - end:.3f} s by its own clock")
        told.append(f"end: {self._ways.get(event['identity']) or 'by itself'}")
        self.violations.append(
            f"{name} is held by a process that ended in good order: {id}: "
            + ", ".join(told)
        )
