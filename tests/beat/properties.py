"""
What beats must never do, judged from the log of what happened.

The judge knows what bodies did and what beats reported. It never reads a record. Each
excuse stands beside its property, and is as narrow as the design allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from math import inf

from django_shedlock.beat.looks import pause_after
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Trigger


class Kind(StrEnum):
    """What happened."""

    BEAT_STARTED = "beat started"
    LOOKED = "looked"
    LOOK_FAILED = "look failed"
    REPORTED = "reported"
    BEAT_STOPPING = "beat stops"
    BEAT_ENDED = "beat ended"
    BEAT_KILLED = "beat killed"
    CHILD_STARTED = "child started"
    REFUSED = "refused"
    BEGUN = "body begun"
    INTERRUPTED = "body interrupted"
    ENDED = "body ended"
    CHILD_CUT = "child cut"
    CHILD_KILLED = "child killed"
    CHILD_EXITED = "child exited"
    HELD = "lock held"
    FREED = "lock freed"
    STORE_FAILS = "store fails"
    STORE_ANSWERS = "store answers"
    CLOCK_SET = "clock set"
    PAUSED = "paused"
    RESUMED = "resumed"
    REQUESTED = "requested"
    REQUEST_EXPIRED = "request expired"
    REGISTERED = "registered"


@dataclass(frozen=True)
class Run:
    """
    What a child was started for; ``child`` is the identity of its acquisition.

    ``beat`` is empty if a command started it.
    """

    child: str
    lock: str
    schedule: str
    beat: str
    trigger: Trigger
    rerun: bool
    keep_alive: bool
    request: datetime | None = None


@dataclass(frozen=True)
class Event:
    """
    One line of a history.

    ``at`` is the real time in seconds, ``clock`` the store's clock, which may be set.
    ``who`` is the process. ``until`` is when a lease or a body will end, or the last of
    several ticks of which ``tick`` is the first.
    """

    at: float
    clock: float
    kind: Kind
    who: str = ""
    lock: str = ""
    tick: datetime | None = None
    until: float | None = None
    run: Run | None = None
    text: str = ""
    jobs: Mapping[str, str] = field(default_factory=dict)
    """The schedules of a beat, by the names of their locks."""

    def __str__(self) -> str:
        clock = datetime.fromtimestamp(self.clock, UTC).strftime("%H:%M:%S.%f")[:-3]
        tick = f"tick {self.tick:%H:%M:%S}" if self.tick else ""
        until = "" if self.until is None else f"until {_time(self.until)}"
        trigger = str(self.run.trigger) if self.run else ""
        jobs = ", ".join(f"{name}: {text}" for name, text in self.jobs.items())
        parts = (self.who, self.lock, trigger, tick, until, self.text, jobs)
        rest = " ".join(filter(None, parts))
        return f"{self.at:9.3f}  {clock}  {self.kind.value:17} {rest}"


def _time(seconds: float) -> str:
    if seconds < 10**6:  # a body ends by the real time
        return f"{seconds:.3f}"
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3]


@dataclass(frozen=True)
class Limits:
    """The settings of a history, in seconds."""

    grace: float
    stop_timeout: float
    look_interval: float
    places: int
    ends_at: float
    answer_timeout: float = 5

    @property
    def two_looks(self) -> float:
        """Two looks, with the statements of one look before the second."""
        return 2 * self.look_interval + 2

    @property
    def enough_looks(self) -> float:
        """For so long a beat must see a store that answers to start what is owed."""
        return 3 * self.look_interval + 2

    @property
    def patience(self) -> float:
        """For so long a tick may wait for room before it is reported."""
        return min(30, self.grace / 4)


class Property(StrEnum):
    """What must hold in each history."""

    ONE_BODY = "P1: never two live bodies of one lock"
    ONCE = "P2: each tick begun once, or once more with rerun"
    NO_LOSS = "P3: no owed tick lost without a report"
    NOT_OWED = "P4: no tick before the registration or within a pause begun"
    REQUESTS = "P5: a request carried out once, or expired, or its run abandoned"
    NO_DEAD_HOLDER = "P6: no lock held by a dead child of a living beat"
    NO_CUT = "P7: no body cut that ends within --stop-timeout"


@dataclass(frozen=True)
class Violation:
    """A property that does not hold, and when that shows."""

    property: Property
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.at:9.3f}  {self.property.value}: {self.text}"


SHORTEST_PERIOD = 60
"""Each tick is the newest one for at least so many seconds."""
Interval = tuple[float, float]


def common(first: Iterable[Interval], second: Iterable[Interval]) -> list[Interval]:
    """Return the time that is in both."""
    both = (
        (max(a, c), min(b, d)) for a, b in first for c, d in second if a < d and c < b
    )
    return sorted(both)


def without(first: Iterable[Interval], second: Iterable[Interval]) -> list[Interval]:
    """Return the time that is in the first only."""
    left = sorted(first)
    for start, end in second:
        parts = []
        for a, b in left:
            parts += [(a, min(b, start)), (max(a, end), b)]
        left = [(a, b) for a, b in parts if a < b]
    return left


@lru_cache
def ticks_between(schedule: str, start: float, end: float) -> Sequence[datetime]:
    """Return the ticks of a schedule, by its text, after the start up to the end."""
    expression, _, time_zone = schedule.rpartition(" ")
    ticks = []
    for tick in Schedule(expression, time_zone).ticks_after(
        datetime.fromtimestamp(start, UTC)
    ):
        if tick.timestamp() > end:
            return ticks
        ticks.append(tick)
    return ticks


@dataclass
class Body:
    """What a body did; ``end`` is when it ended, or was killed."""

    run: Run
    tick: datetime | None
    begun: float
    begun_clock: float
    planned_end: float
    end: float = inf
    was_interrupted: bool = False
    """Was it interrupted or killed?"""

    def __str__(self) -> str:
        return f"{self.run.child} ({self.run.trigger}, tick {self.tick})"


class Judge:
    """Finds the violations in one history."""

    def __init__(self, events: Sequence[Event], limits: Limits):
        self.events = events
        self.limits = limits
        self.end = limits.ends_at
        self.of_kind: dict[Kind, list[Event]] = defaultdict(list)
        for event in events:
            self.of_kind[event.kind].append(event)
        self.bodies = self._bodies()
        self.beats = self._beats()
        self.answering = self._answering()
        self.pauses = self._pauses()
        self.owing = self._owing()

    def violations(self) -> Iterator[Violation]:
        """Return what must not have happened."""
        yield from self.two_bodies()
        yield from self.repeated_ticks()
        yield from self.lost_ticks()
        yield from self.ticks_not_owed()
        yield from self.wrong_requests()
        yield from self.dead_holders()
        yield from self.cut_bodies()

    # What happened

    def _bodies(self) -> dict[str, Body]:
        bodies: dict[str, Body] = {}
        for event in self.events:
            body = bodies.get(event.who)
            if event.kind is Kind.BEGUN:
                assert event.run is not None
                assert event.until is not None
                bodies[event.who] = Body(
                    event.run, event.tick, event.at, event.clock, event.until
                )
            elif body is None or body.end < inf:
                continue
            elif event.kind in {Kind.ENDED, Kind.CHILD_KILLED}:
                body.end = event.at
                body.was_interrupted |= event.kind is Kind.CHILD_KILLED
            elif event.kind is Kind.INTERRUPTED:
                body.was_interrupted = True
        return bodies

    def _beats(self) -> dict[str, Interval]:
        """Return from its first answered look to its end, for each beat."""
        beats: dict[str, Interval] = {}
        ends = {Kind.BEAT_STOPPING, Kind.BEAT_ENDED, Kind.BEAT_KILLED}
        for event in self.events:
            if event.kind is Kind.LOOKED:
                beats.setdefault(event.who, (event.at, self.end))
            elif event.kind in ends and event.who in beats:
                start, end = beats[event.who]
                beats[event.who] = start, min(end, event.at)
        return beats

    def _answering(self) -> list[Interval]:
        start: float | None = 0.0
        intervals = []
        for event in self.events:
            if event.kind is Kind.STORE_FAILS and start is not None:
                intervals.append((start, event.at))
                start = None
            elif event.kind is Kind.STORE_ANSWERS and start is None:
                start = event.at
        if start is not None:
            intervals.append((start, self.end))
        return intervals

    def _pauses(self) -> dict[str, list[tuple[float, float]]]:
        """Return for each lock its pauses, by the store's clock."""
        pauses: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for event in self.events:
            if event.kind is Kind.PAUSED:
                assert event.until is not None
                pauses[event.lock].append((event.clock, event.until))
            elif event.kind is Kind.RESUMED:
                start, end = pauses[event.lock][-1]
                pauses[event.lock][-1] = start, min(end, event.clock)
        return pauses

    def _owing(self) -> dict[str, dict[str, list[Interval]]]:
        """
        Return when each lock owes the ticks of each schedule, by the store's clock.

        It does while a beat with this schedule lives, from its first look on. It also
        does from a registration on until another schedule is registered.
        """
        owing: dict[str, dict[str, list[Interval]]] = defaultdict(
            lambda: defaultdict(list)
        )
        ends = {Kind.BEAT_STOPPING, Kind.BEAT_ENDED, Kind.BEAT_KILLED}
        firsts: dict[str, float] = {}
        jobs = {each.who: each.jobs for each in self.of_kind[Kind.BEAT_STARTED]}
        registered: dict[str, tuple[str, float]] = {}
        for event in self.events:
            if event.kind is Kind.REGISTERED:
                assert event.until is not None
                before = registered.get(event.lock)
                if before is not None:
                    owing[event.lock][before[0]].append((before[1], event.clock))
                registered[event.lock] = event.text, event.until
            elif event.kind is Kind.LOOKED:
                assert event.until is not None
                firsts[event.who] = event.until
            elif event.kind in ends and event.who in firsts:
                since = firsts.pop(event.who)
                for lock, schedule in jobs[event.who].items():
                    owing[lock][schedule].append((since, event.clock))
        last = self.events[-1].clock
        for who, since in firsts.items():
            for lock, schedule in jobs[who].items():
                owing[lock][schedule].append((since, last))
        for lock, (schedule, since) in registered.items():
            owing[lock][schedule].append((since, last))
        return owing

    def owes(self, lock: str, schedule: str, due: float) -> bool:
        """Return whether the lock owes a tick of this schedule at that time."""
        return any(start < due <= end for start, end in self.owing[lock][schedule])

    def real_time(self, clock: float) -> float:
        """Return when the store's clock first showed this time."""
        ahead = self.events[0].clock - self.events[0].at
        since = 0.0
        for event in self.of_kind[Kind.CLOCK_SET]:
            if clock - ahead < event.at:
                break
            since, ahead = event.at, event.clock - event.at
        return max(clock - ahead, since)

    # The properties

    def two_bodies(self) -> Iterator[Violation]:
        """
        P1. An earlier body may go on if its lease is over, without ``keep_alive``.

        If the store's clock is set forward, a lease that is kept alive ends earlier
        than its holder can know, by so much.
        """
        leases: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for event in self.of_kind[Kind.HELD]:
            leases[event.who].append((event.at, event.until or 0))
        for one, other in self._overlaps():
            lease = max(
                (until for at, until in leases[one.run.child] if at <= other.begun),
                default=0,
            )
            was_over = lease <= other.begun_clock
            if was_over and not one.run.keep_alive:
                continue
            forward = sum(
                max(0, float(each.text))
                for each in self.of_kind[Kind.CLOCK_SET]
                if one.begun <= each.at <= other.begun
            )
            if was_over and other.begun + forward >= one.end:
                continue
            text = f"{other} began while {one} ran"
            yield Violation(Property.ONE_BODY, other.begun, text)

    def _overlaps(self) -> Iterator[tuple[Body, Body]]:
        of_locks: dict[str, list[Body]] = defaultdict(list)
        for body in sorted(self.bodies.values(), key=lambda body: body.begun):
            of_locks[body.run.lock].append(body)
        for bodies in of_locks.values():
            for index, other in enumerate(bodies):
                for one in bodies[:index]:
                    if other.begun < one.end:
                        yield one, other

    def repeated_ticks(self) -> Iterator[Violation]:
        """P2. An operator may run a tick again; nobody else may."""
        begun: dict[tuple[str, datetime], list[Body]] = defaultdict(list)
        for body in self.bodies.values():
            if body.tick is not None and body.run.trigger is not Trigger.OPERATOR:
                begun[body.run.lock, body.tick].append(body)
        for (lock, tick), bodies in begun.items():
            interrupted = [one for one in bodies if one.was_interrupted]
            may_repeat = bool(interrupted) and interrupted[0].run.rerun
            if len(bodies) > 1 + may_repeat:
                text = f"{lock}: {tick} begun by {', '.join(map(str, bodies))}"
                yield Violation(Property.ONCE, bodies[-1].begun, text)

    def lost_ticks(self) -> Iterator[Violation]:
        """
        P3. A tick is begun within the grace, covered, or reported.

        This holds if a beat could have started it: it saw a store that answers for long
        enough, within the grace, and before a pause of the job, or a changed schedule
        that counts from later on. A busy beat may wait before it reports. If it was
        not busy, and the lock was free, a report is not enough: the beat must have
        tried. If two versions of the schedule run side by side, a run of either covers
        the older ticks of the other. A child that acquires the lock for a tick, and
        dies with its beat, leaves an abandoned run.
        """
        abandoned = {(run.lock, tick) for run, tick in self.abandoned()}
        begun: dict[str, list[Body]] = defaultdict(list)
        for body in self.bodies.values():
            begun[body.run.lock].append(body)
        reports: dict[str, list[Event]] = defaultdict(list)
        for event in self.of_kind[Kind.REPORTED]:
            reports[event.lock].append(event)
        tried = {(e.lock, e.tick) for e in self.of_kind[Kind.CHILD_STARTED]}
        jobs = {each.who: each.jobs for each in self.of_kind[Kind.BEAT_STARTED]}
        last = self.events[-1].clock - self.limits.grace - self.limits.enough_looks
        known = [(lock, each) for lock in self.owing for each in self.owing[lock]]
        for lock, schedule in known:
            seen = [
                (beat, living)
                for beat, living in self.beats.items()
                if jobs[beat].get(lock) == schedule
            ]
            for tick in ticks_between(schedule, self.events[0].clock, last):
                due = tick.timestamp()
                if not self.owes(lock, schedule, due):
                    continue
                if any(start <= due <= end for start, end in self.pauses[lock]):
                    continue
                if (lock, tick) in abandoned:
                    continue
                # A child may start in time, and begin its body a moment later.
                in_time = self.real_time(due + self.limits.grace)
                in_time += self.limits.answer_timeout
                if any(
                    (body.tick == tick and body.begun <= in_time)
                    or (
                        body.tick is not None
                        and body.tick > tick
                        and body.run.schedule != schedule
                    )
                    for body in begun[lock]
                ):
                    continue
                is_reported = any(
                    self.covers(event, tick, begun[lock]) for event in reports[lock]
                )
                start, end = self.real_time(due), due + self.limits.grace
                end = min([end, *(p for p, _ in self.pauses[lock] if p > due)])
                end = min([end, *self.registrations_after(lock, due)])
                for beat, living in seen:
                    could = common([living], self.answering)
                    could = common(could, [(start, self.real_time(end))])
                    busy = self._busy(beat, lock)
                    if not is_reported and self._is_enough(could, busy):
                        text = f"{lock}: {tick} of {schedule} was never begun"
                        yield Violation(Property.NO_LOSS, start, text)
                        break
                    newest = common(
                        could, [(start, self.real_time(due + SHORTEST_PERIOD))]
                    )
                    free = without(without(newest, busy), self._held(lock))
                    if (lock, tick) not in tried and self._is_enough(free, ()):
                        text = f"{lock}: no beat tried to begin {tick} of {schedule}"
                        yield Violation(Property.NO_LOSS, start, text)
                        break

    def _is_enough(self, could: Iterable[Interval], busy: Iterable[Interval]) -> bool:
        """Return whether a beat had enough time to start a tick, or to report it."""
        enough, could = self.limits.enough_looks, list(could)
        has_waited = any(b - a >= enough + self.limits.patience for a, b in could)
        return has_waited or any(b - a >= enough for a, b in without(could, busy))

    def abandoned(self) -> Iterator[tuple[Run, datetime]]:
        """Return which ticks were acquired by children that died with their beats."""
        runs = {event.who: event.run for event in self.of_kind[Kind.CHILD_STARTED]}
        for event in self.of_kind[Kind.HELD]:
            run = runs.get(event.who)
            if run is None or event.tick is None or event.who in self.bodies:
                continue
            if not run.beat or self.beat_end(run.beat) < self.end:
                yield run, event.tick

    def registrations_after(self, lock: str, due: float) -> Iterator[float]:
        """Return when changed schedules came that owe no tick of that time."""
        for event in self.of_kind[Kind.REGISTERED]:
            assert event.until is not None
            if event.lock == lock and event.until >= due:
                yield event.clock

    @staticmethod
    def covers(report: Event, tick: datetime, bodies: Iterable[Body]) -> bool:
        """
        Return whether this report is about the tick.

        If several ticks in a row were passed over, the report names the newest. A job
        that may still run after its lease has ended is reported with its first tick.
        """
        if report.text == "expired" and report.tick is not None:
            return report.tick <= tick and tick.timestamp() <= report.clock
        if report.tick == tick or report.text != "passed over":
            return report.tick == tick
        assert report.tick is not None
        return tick < report.tick and not any(
            body.tick is not None and tick < body.tick <= report.tick for body in bodies
        )

    def ticks_not_owed(self) -> Iterator[Violation]:
        """P4. A registration counts from the first look of the first beat with it."""
        for body in self.bodies.values():
            if body.tick is None or body.run.trigger is Trigger.OPERATOR:
                continue
            lock, due = body.run.lock, body.tick.timestamp()
            is_owed = any(
                self.owes(lock, each, due)
                and body.tick in ticks_between(each, due - 1, due)
                for each in self.owing[lock]
            )
            if not is_owed:
                text = f"{body} began a tick from before the registration"
                yield Violation(Property.NOT_OWED, body.begun, text)
            for start, end in self.pauses[lock]:
                if start < due <= end and body.begun_clock >= start:
                    text = f"{body} began a tick of the pause {_time(start)}"
                    yield Violation(Property.NOT_OWED, body.begun, text)

    def wrong_requests(self) -> Iterator[Violation]:
        """
        P5. A request is open while its lock is held, or no beat can start its job.

        It may also be gone with an acquisition whose child never began, if the beat of
        that child is dead: that run is abandoned.
        """
        carried_out: dict[tuple[str, datetime], list[Body]] = defaultdict(list)
        for body in self.bodies.values():
            if body.run.request is not None:
                carried_out[body.run.lock, body.run.request].append(body)
        for (lock, asked_at), bodies in carried_out.items():
            if len(bodies) > 1:
                text = f"{lock}: that of {asked_at} by {', '.join(map(str, bodies))}"
                yield Violation(Property.REQUESTS, bodies[-1].begun, text)
        expired = {(e.lock, e.tick) for e in self.of_kind[Kind.REQUEST_EXPIRED]}
        requests = self.of_kind[Kind.REQUESTED]
        for event in requests:
            key = event.lock, event.tick
            newer = [e.at for e in requests if e.lock == event.lock and e.at > event.at]
            if key in carried_out or key in expired or self._is_abandoned(event):
                continue
            end = min([self.end, *newer])
            could = without([(event.at, end)], self._held(event.lock))
            could = common(could, self.answering)
            for beat, interval in self.beats.items():
                free = without(common(could, [interval]), self._busy(beat, event.lock))
                # After a child that never began, the pauses grow.
                if any(b - a > 45 + self.limits.enough_looks for a, b in free):
                    text = f"{event.lock}: that of {event.tick} was not carried out"
                    yield Violation(Property.REQUESTS, event.at, text)
                    break

    def _is_abandoned(self, request: Event) -> bool:
        holders = {event.who for event in self.of_kind[Kind.HELD]}
        for event in self.of_kind[Kind.CHILD_STARTED]:
            run = event.run
            if (
                run is not None
                and (run.lock, run.request) == (request.lock, request.tick)
                and event.who in holders
                and event.who not in self.bodies
                and self.beat_end(run.beat) < self.end
            ):
                return True
        return False

    def _held(self, lock: str) -> list[Interval]:
        """Return when somebody held the lock."""
        held, start = [], None
        for event in self.events:
            if event.lock != lock or event.kind not in {Kind.HELD, Kind.FREED}:
                continue
            if start is not None:
                held.append((start, event.at))
                start = None
            if event.kind is Kind.HELD:
                assert event.until is not None
                start = event.at
                end = self.real_time(event.until)
        if start is not None:
            held.append((start, min(end, self.end)))
        return held

    def _busy(self, beat: str, lock: str) -> list[Interval]:
        """
        Return when a beat could not start a child of this lock.

        It had no room, or still ran one, or waited after some that were killed before
        their bodies began.
        """
        running: dict[str, str] = {}
        start, busy, attempts = None, [], 0
        for event in self.events:
            if event.run is None or event.run.beat != beat:
                continue
            if event.kind is Kind.CHILD_STARTED:
                running[event.who] = event.run.lock
            elif event.kind in {Kind.CHILD_EXITED, Kind.CHILD_KILLED}:
                running.pop(event.who, None)
            if event.run.lock == lock and event.who in self.bodies:
                attempts = 0
            elif event.run.lock == lock and event.kind is Kind.CHILD_KILLED:
                attempts += 1
                pause = pause_after(attempts).total_seconds()
                busy.append((event.at, event.at + pause))
            is_busy = len(running) >= self.limits.places or lock in running.values()
            if is_busy and start is None:
                start = event.at
            elif not is_busy and start is not None:
                busy.append((start, event.at))
                start = None
        return busy if start is None else [*busy, (start, self.end)]

    def beat_end(self, beat: str) -> float:
        """Return when this beat's process was gone."""
        ends = (*self.of_kind[Kind.BEAT_ENDED], *self.of_kind[Kind.BEAT_KILLED])
        return min((event.at for event in ends if event.who == beat), default=self.end)

    def dead_holders(self) -> Iterator[Violation]:
        """P6. Two looks at a store that answers are enough to release its lock."""
        held: dict[str, list[Interval]] = defaultdict(list)
        current: dict[str, tuple[str, float, float]] = {}
        for event in self.events:
            if event.kind not in {Kind.HELD, Kind.FREED}:
                continue
            if event.lock in current:
                who, start, until = current.pop(event.lock)
                end = min(event.at, self.real_time(until))
                held[who].append((start, end))
            if event.kind is Kind.HELD:
                current[event.lock] = event.who, event.at, event.until or 0
        for who, start, until in current.values():
            held[who].append((start, min(self.real_time(until), self.end)))
        for event in (
            *self.of_kind[Kind.CHILD_KILLED],
            *self.of_kind[Kind.CHILD_EXITED],
        ):
            run = event.run
            if run is None or not run.beat or event.who not in held:
                continue
            beat = self.beats.get(run.beat)
            if beat is None:
                continue
            late = common(held[event.who], [(event.at, self.beat_end(run.beat))])
            late = common(late, self.answering)
            if any(end - start > self.limits.two_looks for start, end in late):
                text = f"{event.who} is dead, and still holds {run.lock}"
                yield Violation(Property.NO_DEAD_HOLDER, event.at, text)

    def cut_bodies(self) -> Iterator[Violation]:
        """P7. A beat that stops waits for bodies that end soon enough."""
        stops = {event.who: event.at for event in self.of_kind[Kind.BEAT_STOPPING]}
        for event in self.of_kind[Kind.CHILD_CUT]:
            body = self.bodies.get(event.who)
            if body is None or event.run is None or event.run.beat not in stops:
                continue
            limit = stops[event.run.beat] + self.limits.stop_timeout
            if (
                event.text == "stop"
                and event.at < body.end
                and body.planned_end <= limit
            ):
                yield Violation(Property.NO_CUT, event.at, f"{body} was cut")


def longest_grace(limits: Limits) -> timedelta:
    """Return the grace as a duration."""
    return timedelta(seconds=limits.grace)
