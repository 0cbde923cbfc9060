"""What the journal and the database say of a soak, when it is over."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.soak.journal import Event


@dataclass
class Acquisition:
    """
    One body, by CLOCK_MONOTONIC.

    Its holder knew by its own clock that the lock was valid from ``first`` to ``last``.
    Both are instants of the holder, so no stall of anybody makes that time longer.
    """

    name: str
    id: str
    asked: float
    begun: float
    way: str
    tick: str | None
    token: int | None = None
    last: float | None = None
    released: float | None = None
    succeeded: bool = False

    @property
    def first(self) -> float:
        return self.begun

    def __str__(self) -> str:
        return f"{self.way} {self.name} {self.token} of {self.id}"


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
    for event in events:
        _count(event, verdict)
        _follow(event, acquisitions, forced)
    bodies: dict[str, list[Acquisition]] = defaultdict(list)
    for acquisition in acquisitions.values():
        bodies[acquisition.name].append(acquisition)
    for of_name in bodies.values():
        verdict.complain(overlaps(of_name, forced))
        verdict.complain(wrong_tokens(of_name))
        verdict.complain(repeated_ticks(of_name))
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
    if what == "begin" and event["tick"]:
        verdict.counts["bodies of ticks"] += 1
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


def overlaps(
    bodies: list[Acquisition], forced: dict[str, float] | None = None
) -> Iterator[str]:
    """
    Return which bodies ran while another one's lock was valid by its own clock.

    Until its next beat, a holder can't know that an operator released its lock.
    """
    before: Acquisition | None = None
    end = float("-inf")
    for body in sorted(bodies, key=lambda body: body.first):
        last = min(body.last or body.first, (forced or {}).get(body.id, float("inf")))
        if last < body.first or body.last is None:
            continue
        if before is not None and body.first < end:
            by = f"{end - body.first:.3f} s"
            yield f"{body} began {by} before the end of {before}"
        if last > end:
            before, end = body, last


def wrong_tokens(bodies: list[Acquisition]) -> Iterator[str]:
    """Return which bodies got no higher token than one before they asked."""
    with_token = [body for body in bodies if body.token is not None]
    begun = sorted(with_token, key=lambda body: body.begun)
    tokens = Counter(body.token for body in with_token)
    yield from (
        f"{name.name}: {tokens[name.token]} bodies have the token {name.token}"
        for name in with_token
        if tokens[name.token] > 1
    )
    highest, number = 0, 0
    for body in sorted(with_token, key=lambda body: body.asked):
        while number < len(begun) and begun[number].begun < body.asked:
            highest = max(highest, begun[number].token or 0)
            number += 1
        if (body.token or 0) <= highest:
            yield f"{body} has no higher token than the {highest} before it"


def repeated_ticks(bodies: list[Acquisition]) -> Iterator[str]:
    """Return which ticks were run twice by one trigger, or again after a success."""
    ticks: dict[Any, list[Acquisition]] = defaultdict(list)
    for body in bodies:
        if body.tick is not None:
            ticks[body.tick].append(body)
    for tick, runs in ticks.items():
        ways = Counter(body.way for body in runs)
        yield from (f"{n} runs of {tick} by {w}" for w, n in ways.items() if n > 1)
        successes = [body.released for body in runs if body.succeeded and body.released]
        for body in runs:
            if successes and body.asked > min(successes):
                yield f"{body} ran {tick} again after its success"


def stale_writes(writes: Iterable[tuple[str, int, int]]) -> Iterator[str]:
    """
    Return which fenced writes were committed when the lock was a later holder's.

    ``writes`` are names, tokens and the tokens that their locks had then, in the order
    of their primary keys: each was inserted while its transaction had the lock's row.
    """
    highest: dict[str, int] = {}
    for name, token, token_of_lock in writes:
        newest = max(token_of_lock, highest.get(name, 0))
        if token < newest:
            yield f"{name} {token} wrote after {name} {newest} had begun"
        highest[name] = max(newest, token)
