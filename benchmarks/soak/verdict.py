"""What the journal and the database say of a soak, when it is over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.soak.journal import Event
from benchmarks.soak.left_locks import LeftLocks
from tests.support.history import Acquisition, violations


@dataclass
class Verdict:
    """The figures, and what must not have happened."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def complain(self, violations: Iterable[str]) -> None:
        self.violations += violations

    def measure(self, what: str, seconds: float) -> None:
        self.longest[what] = max(seconds, self.longest.get(what, 0.0))

    def __str__(self) -> str:
        rows = [
            *((name, str(n)) for name, n in sorted(self.counts.items())),
            *((f"error: {kind}", str(n)) for kind, n in sorted(self.errors.items())),
            *((f"longest {k}", f"{s:.1f} s") for k, s in sorted(self.longest.items())),
            ("violations", str(len(self.violations))),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}}  {value}" for name, value in rows)

    def as_json(self) -> str:
        return json.dumps(vars(self), indent=2)


def judge(events: Iterable[Event]) -> Verdict:
    """Return the figures, and which claims the journal shows to be broken."""
    verdict = Verdict()
    acquisitions: dict[str, Acquisition] = {}
    forced: dict[str, float] = {}
    left = LeftLocks(verdict.counts)
    for event in events:
        _count(event, verdict)
        _follow(event, acquisitions, forced)
        left.follow(event)
    for id, at in forced.items():
        if id in acquisitions:
            acquisitions[id].forced = at
    verdict.complain(violations(acquisitions.values()))
    verdict.complain(left.violations)
    return verdict


COUNTED = {
    "begin": "bodies",
    "end": "bodies that ended well",
    "extended": "extensions",
    "wrote": "fenced writes",
    "refused": "fenced writes refused",
    "forced": "releases by an operator",
    "skip": "skips",
    "told": "losses told",
    "harm": "",
    "fault": "",
}


def _count(event: Event, verdict: Verdict) -> None:
    what = event["what"]
    if what in COUNTED:
        verdict.counts[COUNTED[what] or str(event["kind"])] += 1
    if what == "added":
        verdict.counts[f"elements added: {event['guard']}"] += 1
    if what == "begin" and event["tick"]:
        verdict.counts["bodies of ticks"] += 1
    if what == "reaped":
        verdict.counts["workers that ended in good order"] += 1
    if what == "ended" and event["way"]:  # else it ended by itself
        verdict.counts[f"ends: {event['way']}"] += 1
    if what == "endless":
        verdict.complain([f"{event['worker']} did not end after SIGTERM"])
    if what == "error":
        verdict.errors[event["kind"]] += 1
    if what == "call":
        verdict.measure(f"call: {event['name']}", event["took"])
    if what == "told":
        verdict.measure("telling of a loss", event["late"])
    if what == "stall":
        verdict.measure("stall of the machine", event["took"])
    if what == "drift":
        verdict.measure("drift of the wall clock", event["took"])
    if what == "hang":
        where = "\n".join(event["where"])
        verdict.complain([f"{event['name']} did not return in time:\n{where}"])
    if what == "untold":
        verdict.complain([f"the loss of {event['name']} ({event['way']}) was not told"])
    if what == "died":
        verdict.complain([f"{event['worker']} ended by itself: {event['why']}"])


def _follow(
    event: Event, acquisitions: dict[str, Acquisition], forced: dict[str, float]
) -> None:
    if event["what"] == "begin":
        fields = {key: event[key] for key in ("name", "id", "asked", "way", "tick")}
        acquisitions[event["id"]] = Acquisition(begun=event["at"], **fields)
    elif event["what"] == "force":
        forced.setdefault(event["holder"], event["at"])
    elif (body := acquisitions.get(event.get("id", ""))) is None:
        return
    elif event["what"] == "token":
        body.token = event["token"]
    elif event["what"] == "valid":
        body.last = event["at"]
    elif event["what"] == "released":
        body.released, body.succeeded = event["at"], event["succeeded"]
