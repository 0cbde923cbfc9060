"""The jobs of the soak of the beats: how often they run, for how long, and how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is special about a body."""

    PLAIN = "plain"
    STUBBORN = "ignores SIGTERM"
    FAMILY = "works in a process that it starts"
    LEAVER = "leaves a fork behind"
    FAILING = "fails now and then"


@dataclass(frozen=True)
class Work:
    """
    One job. Its body takes between ``shortest`` and ``longest`` seconds.

    It starts every so many seconds: one number for each version of the project, of
    which the last is followed by the first. ``lease`` and ``at_least`` are the lock's.
    """

    name: str
    intervals: tuple[int, ...]
    lease: int
    shortest: float
    longest: float
    keep_alive: bool = False
    rerun: bool = False
    at_least: int = 0
    kind: Kind = Kind.PLAIN

    def interval(self, version: int) -> int:
        """Return the seconds between two ticks, in this version of the project."""
        return self.intervals[version % len(self.intervals)]

    def options(self, version: int) -> dict[str, object]:
        """Return the options of the decorator."""
        options: dict[str, object] = {
            "schedule": f"every {self.interval(version)}s",
            "lock_at_most_for": self.lease,
            "lock_at_least_for": self.at_least,
            "keep_alive": self.keep_alive,
        }
        if self.rerun:
            options["rerun"] = True
        return options


# Most leases are longer than a beat may take to free the lock of a dead child, so that
# this is seen. Those that are kept alive end within an outage, and the body of
# "watched" goes on for longer.
WORKS = (
    Work("quick", (1,), 40, 0.02, 0.2),
    Work("steady", (2,), 40, 0.1, 1.0),
    Work("kept", (3,), 12, 0.5, 4.0, keep_alive=True),
    Work("again", (4,), 40, 0.5, 3.0, rerun=True),
    Work("kept-again", (5,), 12, 1.0, 6.0, keep_alive=True, rerun=True),
    Work("changing", (5, 4, 3), 40, 0.1, 1.0),
    Work("short", (5,), 2, 0.5, 3.0),
    Work("at-least", (6,), 40, 0.1, 0.5, at_least=3),
    Work("family", (6,), 40, 1.0, 3.0, rerun=True, kind=Kind.FAMILY),
    Work("stubborn", (7,), 40, 1.0, 5.0, kind=Kind.STUBBORN),
    Work("leaver", (8,), 40, 0.2, 1.0, kind=Kind.LEAVER),
    Work("failing", (9,), 40, 0.2, 1.0, rerun=True, kind=Kind.FAILING),
    Work("slow", (10,), 60, 4.0, 7.0),
    Work("long", (20,), 60, 3.0, 30.0, rerun=True),
    Work("watched", (15,), 12, 5.0, 20.0, keep_alive=True),
    Work("rare", (20,), 60, 1.0, 3.0),
)
"""In ten minutes they have more than 2,000 ticks."""

GRACE_SECONDS = 20
"""``SHEDLOCK_GRACE`` of the project."""
STOP_TIMEOUT_SECONDS = 8
KILL_AFTER_SECONDS = 3
EXIT_TIMEOUT_SECONDS = 5
"""``SHEDLOCK_EXIT_TIMEOUT`` of the project."""
LOOK_INTERVAL_SECONDS = 5
"""A beat looks at least so often."""
ANSWER_TIMEOUT_SECONDS = 5
"""So long a beat waits for an answer of its store."""
