"""What the journal of a soak of the beats tells, in the order in which rules ask."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

from benchmarks.soak.beats.works import LOOK_INTERVAL_SECONDS, Work
from benchmarks.soak.journal import Event

CLOCK_STEP_SECONDS = 0.02
"""By so much instants of the store's clock and of CLOCK_MONOTONIC may differ here."""

# Note [The clocks of the soak]
# The journal has instants of CLOCK_MONOTONIC. All hosts of the soak share that clock,
# however wrong their wall clocks are. Ticks and requests are instants of the store's
# clock, which is this machine's. The event "clock" has the difference of the two. So
# all instants here are those of CLOCK_MONOTONIC.


@dataclass
class Span:
    """A time from ``begin`` to ``end``."""

    begin: float
    end: float = inf

    def contains(self, at: float) -> bool:
        """Return whether the instant is within it."""
        return self.begin <= at <= self.end

    def meets(self, begin: float, end: float) -> bool:
        """Return whether it shares an instant with that time."""
        return self.begin <= end and begin <= self.end


@dataclass
class Beat:
    """One process of ``shedlock beat``."""

    host: str
    pid: int
    version: int
    started: float
    ready: float = inf
    stops: list[float] = field(default_factory=list)
    """When it got SIGTERM."""
    killed: float = inf
    gone: float = inf

    @property
    def last(self) -> float:
        """When it began to end, in whatever way."""
        return min([self.killed, self.gone, *self.stops])


@dataclass
class Hold:
    """One acquisition, as its process knew it."""

    id: str
    name: str
    host: str
    pid: int
    parent: int
    tick: float | None
    trigger: str
    request: float | None
    acquired: float
    lease: float
    at_least: float = 0.0
    released: float = inf
    why: str | None = None
    """What ended the body, by the name of its class."""
    last: float = 0.0
    """When its body was last known to live; when it was acquired if it had none."""

    @property
    def end(self) -> float:
        """When at the latest the lock was free again, if nobody else freed it."""
        if self.released == inf:
            return self.last + self.lease + 1
        return max(self.released, self.acquired + self.at_least)


@dataclass
class Body:
    """One body. It lived from ``begun`` to ``last``, and perhaps for longer."""

    id: str
    name: str
    host: str
    pid: int
    parent: int
    version: int
    tick: float | None
    trigger: str
    request: float | None
    begun: float
    lease: float
    lease_end: float
    keep_alive: bool
    rerun: bool
    last: float
    last_held: float = -inf
    """When its process last knew the lock as held."""
    how: str | None = None
    """``ended``, ``raised`` or ``interrupted``; ``None`` if it was killed."""
    ended: float = inf
    token: int | None = None
    lost: float = inf

    @property
    def is_whole(self) -> bool:
        """Whether it came to an end of its own."""
        return self.how in {"ended", "raised"}

    @property
    def is_by_schedule(self) -> bool:
        """Whether nobody asked for it."""
        return self.trigger != "operator"

    def __str__(self) -> str:
        return f"the body of {self.name} in {self.id}"


@dataclass
class Request:
    """A run that an operator asked for, between two instants."""

    name: str
    asked: float
    done: float
    is_sure: bool = True
    is_open: bool = False
    """Whether it was still open at the end."""


@dataclass
class Paused:
    """A pause that began and ended between two instants each."""

    name: str
    asked: float
    done: float
    earliest_end: float
    latest_end: float
    is_sure: bool = True


@dataclass
class DeadHolder:
    """
    A lock that a dead process held.

    The process was dead at ``dead``. The lock was still held at ``last``.
    """

    id: str
    name: str
    host: str
    pid: int
    locked_at: float
    dead: float
    last: float


class Story:
    """All that the journal tells."""

    def __init__(self, events: Iterable[Event], works: Iterable[Work]):
        self.works = {work.name: work for work in works}
        self.events = [*events]
        self.wall = next((e["wall"] for e in self.events if e["what"] == "clock"), 0.0)
        self.begin = min((e["at"] for e in self.events), default=0.0)
        self.end = max((e["at"] for e in self.events), default=0.0)
        self.calm = self.end
        """When the last fault was over."""
        self.beats: list[Beat] = []
        self.holds: dict[str, Hold] = {}
        self.bodies: dict[str, Body] = {}
        self.killed: dict[int, list[float]] = defaultdict(list)
        self.host_kills: list[float] = []
        self.outages: dict[str, list[Span]] = defaultdict(list)
        self.stalls: list[Span] = []
        self.requests: list[Request] = []
        self.pauses: list[Paused] = []
        self.dead_holders: dict[str, DeadHolder] = {}
        self.reports: list[tuple[float, str]] = []
        self.versions: dict[int, float] = {}
        """When the first process of each version started."""
        for event in self.events:
            handle = getattr(self, f"_on_{event['what'].replace(' ', '_')}", None)
            if handle is not None:
                handle(event)
        self.bodies_of = self._by_name(self.bodies.values())
        self.holds_of: dict[str, list[Hold]] = defaultdict(list)
        for hold in self.holds.values():
            self.holds_of[hold.name].append(hold)
        self._begun_of = {
            name: [body.begun for body in bodies]
            for name, bodies in self.bodies_of.items()
        }

    def bodies_begun(self, name: str, begin: float, end: float) -> list[Body]:
        """Return the job's bodies that began in that time."""
        begun = self._begun_of.get(name, [])
        first, last = bisect_left(begun, begin), bisect_left(begun, end)
        return self.bodies_of.get(name, [])[first:last]

    def beat_of(self, pid: int) -> Beat | None:
        """Return the beat with this process number."""
        return next((beat for beat in reversed(self.beats) if beat.pid == pid), None)

    def was_cut_off(self, host: str, begin: float, end: float) -> bool:
        """Return whether the host could not reach the store at some time then."""
        return any(outage.meets(begin, end) for outage in self.outages[host])

    def moment(self, seconds: float | None) -> float | None:
        """Return the instant of CLOCK_MONOTONIC; see Note [The clocks of the soak]."""
        return None if seconds is None else seconds - self.wall

    def ticks(self, interval: float, begin: float, end: float) -> Iterator[float]:
        """Return the ticks of that time; they are counted from the epoch."""
        number = -(-(begin + self.wall) // interval)
        while (tick := number * interval - self.wall) <= end:
            yield tick
            number += 1

    def is_tick_of(self, interval: float, tick: float) -> bool:
        """Return whether a schedule with that interval has the tick."""
        off = (tick + self.wall) % interval
        return min(off, interval - off) < CLOCK_STEP_SECONDS

    @staticmethod
    def _by_name(bodies: Iterable[Body]) -> dict[str, list[Body]]:
        by_name: dict[str, list[Body]] = defaultdict(list)
        for body in sorted(bodies, key=lambda each: each.begun):
            by_name[body.name].append(body)
        return by_name

    # What each kind of event tells.

    def _on_calm(self, event: Event) -> None:
        self.calm = event["at"]

    def _on_started(self, event: Event) -> None:
        beat = Beat(event["host"], event["pid"], event["version"], event["at"])
        self.beats.append(beat)
        self.versions.setdefault(beat.version, beat.started)

    def _on_deploy(self, event: Event) -> None:
        self.versions.setdefault(event["version"], event["at"])

    def _on_ready(self, event: Event) -> None:
        self._beat(event).ready = event["at"]

    def _on_stopping(self, event: Event) -> None:
        self._beat(event).stops.append(event["at"])

    def _on_gone(self, event: Event) -> None:
        self._beat(event).gone = event["at"]

    def _on_killing(self, event: Event) -> None:
        for pid in event["pids"]:
            self.killed[pid].append(event["at"])
        if event["of"] == "host":
            self.host_kills.append(event["at"])
        if event["of"] != "child":
            beat = self._beat(event)
            beat.killed = min(event["at"], beat.killed)

    def _on_away(self, event: Event) -> None:
        for host in event["hosts"]:
            self.outages[host].append(Span(event["at"]))

    def _on_back(self, event: Event) -> None:
        for host in event["hosts"]:
            for outage in self.outages[host]:
                if outage.end == inf and outage.begin == event["since"]:
                    outage.end = event["at"]

    def _on_stall(self, event: Event) -> None:
        self.stalls.append(Span(event["at"] - event["took"], event["at"]))

    def _on_acquired(self, event: Event) -> None:
        self.holds[event["id"]] = Hold(
            event["id"],
            event["name"],
            event["host"],
            event["pid"],
            event["parent"],
            self.moment(event["tick"]),
            event["trigger"],
            self.moment(event["request"]),
            acquired=event["at"],
            lease=event["lease"],
            at_least=event["at_least"],
            last=event["at"],
        )

    def _on_begin(self, event: Event) -> None:
        self.bodies[event["id"]] = Body(
            event["id"],
            event["name"],
            event["host"],
            event["pid"],
            event["parent"],
            event["version"],
            self.moment(event["tick"]),
            event["trigger"],
            self.moment(event["request"]),
            begun=event["at"],
            lease=event["lease"],
            lease_end=event["lease_end"],
            keep_alive=event["keep_alive"],
            rerun=event["rerun"],
            last=event["at"],
        )

    def _on_alive(self, event: Event) -> None:
        body = self.bodies[event["id"]]
        body.last = max(body.last, event["at"])
        if event.get("is_held"):
            body.last_held = max(body.last_held, event["at"])
        if body.id in self.holds:
            self.holds[body.id].last = body.last

    def _on_end(self, event: Event) -> None:
        body = self.bodies[event["id"]]
        body.how, body.ended = event["how"], event["at"]
        body.last = max(body.last, event["at"])

    def _on_token(self, event: Event) -> None:
        self.bodies[event["id"]].token = event["token"]

    def _on_released(self, event: Event) -> None:
        if event["id"] in self.holds:
            hold = self.holds[event["id"]]
            hold.released, hold.why = event["at"], event["why"]

    def _on_lost(self, event: Event) -> None:
        if event["id"] in self.bodies:
            self.bodies[event["id"]].lost = event["at"]

    def _on_request(self, event: Event) -> None:
        times = event["asked"], event["at"]
        self.requests.append(Request(event["name"], *times, event["is_sure"]))

    def _on_open_request(self, event: Event) -> None:
        of_name = [each for each in self.requests if each.name == event["name"]]
        of_name[-1].is_open = True

    def _on_pause(self, event: Event) -> None:
        # A pause may replace another one, and may be shorter.
        for former in self.pauses:
            if former.name == event["name"]:
                former.earliest_end = min(event["asked"], former.earliest_end)
                if event["is_sure"]:
                    former.latest_end = min(event["at"], former.latest_end)
        lasting = event["lasting"]
        self.pauses.append(
            Paused(
                event["name"],
                event["asked"],
                event["at"],
                event["asked"] + lasting,
                event["at"] + lasting,
                event["is_sure"],
            )
        )

    def _on_resume(self, event: Event) -> None:
        of_name = [each for each in self.pauses if each.name == event["name"]]
        of_name[-1].earliest_end = min(event["asked"], of_name[-1].earliest_end)
        if event["is_sure"]:
            of_name[-1].latest_end = min(event["at"], of_name[-1].latest_end)

    def _on_dead_holder(self, event: Event) -> None:
        known = self.dead_holders.get(event["id"])
        if known is None:
            locked_at = self.moment(event["locked_at"]) or 0.0
            who = (event["id"], event["name"], event["host"], event["pid"])
            known = DeadHolder(*who, locked_at, event["dead"], event["at"])
            self.dead_holders[event["id"]] = known
        known.last = max(known.last, event["at"])

    def _on_log(self, event: Event) -> None:
        self.reports.append((event["at"], event["text"]))

    def _beat(self, event: Event) -> Beat:
        found = self.beat_of(event["pid"])
        assert found is not None
        return found


def time_left(spans: Iterable[Span], begin: float, end: float) -> float:
    """Return the longest time between these instants that none of the spans meets."""
    longest, at = 0.0, begin
    for span in sorted(spans, key=lambda each: each.begin):
        if span.begin > end:
            break
        longest = max(longest, span.begin - at)
        at = max(at, span.end)
    return max(longest, end - at)


def longest_look() -> float:
    """Return the seconds within which a beat surely looks twice."""
    return 2 * LOOK_INTERVAL_SECONDS + 2
