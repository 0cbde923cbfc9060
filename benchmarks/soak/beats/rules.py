"""
The rules that no soak of the beats may break, each over the whole story.

Each rule yields violations, and counts what only looks like one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from math import inf

from benchmarks.soak.beats.story import (
    CLOCK_STEP_SECONDS,
    Beat,
    Body,
    Hold,
    Request,
    Span,
    Story,
    longest_look,
    time_left,
)
from benchmarks.soak.beats.works import (
    ANSWER_TIMEOUT_SECONDS,
    GRACE_SECONDS,
    LOOK_INTERVAL_SECONDS,
    STOP_TIMEOUT_SECONDS,
    Work,
)
from tests.support.history import Acquisition
from tests.support.history import violations as disorders

SLACK_SECONDS = 3.0
"""For so long a busy machine may keep a beat from its work."""
AS_IT_ENDED_SECONDS = 0.5
"""So short before its process reports its end, a body may still be killed."""
AS_IT_BEGAN_SECONDS = 6.0
"""So long after its acquisition, a body may be cut before its first instruction."""
STOP_SLACK_SECONDS = 0.3
"""So much earlier than its beat a host may count the stop timeout."""
UNSEEN_SECONDS = 6.0
"""On a busy machine, a body may have been seen last so long before it was killed."""
LATE_REPORT_SECONDS = 1.0
"""So long after the end of an interrupted body, its loss may be reported."""
REPORT_SECONDS = 15.0
"""So long after the grace a lost tick may still be reported."""
DEAD_HOLD_SECONDS = 2 * LOOK_INTERVAL_SECONDS + ANSWER_TIMEOUT_SECONDS + SLACK_SECONDS
"""Two looks, the first of which may just wait for an answer that never comes."""


@dataclass(frozen=True)
class Violation:
    """What must not have happened to the lock ``name``, and when."""

    rule: str
    text: str
    name: str
    begin: float
    end: float


class Rule:
    """One rule; ``counts`` has the excused cases."""

    title: str

    def __init__(self, story: Story, counts: Counter[str]):
        self.story = story
        self.counts = counts

    def violations(self) -> Iterator[Violation]:
        """Return what breaks the rule."""
        raise NotImplementedError

    def excuse(self, why: str) -> None:
        """Count a case that only looks like a violation."""
        self.counts[f"excused, {self.title}: {why}"] += 1

    def violation(self, text: str, name: str, begin: float, end: float) -> Violation:
        return Violation(self.title, text, name, begin, end)


class OneBody(Rule):
    """Never two live bodies, except after a lease ended without ``keep_alive``."""

    title = "one body"

    def violations(self) -> Iterator[Violation]:
        for bodies in self.story.bodies_of.values():
            living: list[Body] = []
            for body in bodies:
                living = [each for each in living if each.last > body.begun]
                for other in living:
                    if not other.keep_alive and body.begun >= other.lease_end:
                        self.excuse("the lease had ended without keep_alive")
                        continue
                    by = f"{other.last - body.begun:.3f} s"
                    text = f"{body} began {by} before the end of {other}"
                    yield self.violation(text, body.name, other.begun, other.last)
                living.append(body)


class Tokens(Rule):
    """Fencing tokens grow, and nobody begins while the holder knows its lock."""

    title = "tokens"

    def violations(self) -> Iterator[Violation]:
        for name, bodies in self.story.bodies_of.items():
            known = [self._acquisition(each) for each in bodies if each.token]
            for text in disorders(known):
                begin, end = bodies[0].begun, bodies[-1].last
                yield self.violation(text, name, begin, end)

    def _acquisition(self, body: Body) -> Acquisition:
        return Acquisition(
            body.name,
            body.id,
            -inf,
            body.begun,
            way=body.trigger,
            token=body.token,
            last=None if body.last_held == -inf else body.last_held,
        )


class OnceEachTick(Rule):
    """
    A tick is begun once.

    It is begun once more only after its body was interrupted or killed, with ``rerun``.
    """

    title = "once each tick"

    def violations(self) -> Iterator[Violation]:
        for bodies in self.story.bodies_of.values():
            of_tick: dict[int, list[Body]] = {}
            for body in bodies:
                if body.tick is not None:
                    of_tick.setdefault(round(body.tick * 100), []).append(body)
            for same in of_tick.values():
                yield from self._of_tick(same)

    def _of_tick(self, bodies: list[Body]) -> Iterator[Violation]:
        repeated = 0
        for before, body in pairwise(bodies):
            if not body.is_by_schedule:
                continue
            repeated += 1
            was_cut = any(self._was_cut(each) for each in bodies[: bodies.index(body)])
            if repeated == 1 and body.rerun and was_cut:
                self.counts["ticks run again"] += 1
                continue
            tick = f"the tick {self.story.wall + (body.tick or 0):.0f}"
            text = f"{body} ({body.trigger}) began {tick} again after {before}, "
            text += f"which {before.how or 'was killed'}"
            yield self.violation(text, body.name, before.begun, body.last)

    def _was_cut(self, body: Body) -> bool:
        if not body.is_whole:
            return True
        hold = self.story.holds.get(body.id)
        kills = self.story.killed.get(body.pid, [])
        if any(0 <= at - body.ended < AS_IT_ENDED_SECONDS for at in kills):
            self.excuse("the body was killed as it ended")
            return True
        if hold is not None and hold.why in {"SystemExit", "KeyboardInterrupt"}:
            self.excuse("the body was interrupted as it ended")
            return True
        return False


class NotBefore(Rule):
    """A body never begins before its tick, whatever its host's clock says."""

    title = "not before the tick"

    def violations(self) -> Iterator[Violation]:
        for body in self.story.bodies.values():
            if body.tick is None or not body.is_by_schedule:
                continue
            early = body.tick - body.begun
            if early > CLOCK_STEP_SECONDS:
                text = f"{body} began {early:.3f} s before its tick"
                yield self.violation(text, body.name, body.begun, body.tick)


class NotOwed(Rule):
    """A tick before its registration, or in a pause, is never begun."""

    title = "not owed"

    def violations(self) -> Iterator[Violation]:
        for body in self.story.bodies.values():
            if body.tick is None or not body.is_by_schedule:
                continue
            if not self._was_registered(body, body.tick):
                when = self.story.versions.get(body.version, inf)
                text = f"{body} began a tick of {when - body.tick:.3f} s before "
                text += f"anybody could register version {body.version}"
                yield self.violation(text, body.name, body.tick, body.begun)
            for pause in self.story.pauses:
                if (
                    pause.name == body.name
                    and pause.is_sure
                    and pause.done < body.tick < pause.earliest_end
                    and body.begun > pause.asked
                ):
                    text = f"{body} began a tick that came in a pause"
                    yield self.violation(text, body.name, pause.asked, body.begun)

    def _was_registered(self, body: Body, tick: float) -> bool:
        # Ticks of an earlier version, too, as long as that was registered before.
        work = self.story.works[body.name]
        return any(
            version <= body.version
            and since <= tick + CLOCK_STEP_SECONDS
            and self.story.is_tick_of(work.interval(version), tick)
            for version, since in self.story.versions.items()
        )


class NoneLost(Rule):
    """
    A tick younger than ``SHEDLOCK_GRACE`` is begun, passed over, or reported.

    That is asked only where a beat lived and reached its store for two looks while the
    lock was free. A tick is passed over if a later one is begun within the grace.
    """

    title = "none lost"

    def violations(self) -> Iterator[Violation]:
        cut_off = {
            host: [Span(each.begin, each.end + ANSWER_TIMEOUT_SECONDS) for each in all]
            for host, all in self.story.outages.items()
        }
        for work in self.story.works.values():
            holds = self._holds(work)
            for begin, end, interval in self._epochs(work):
                for tick in self.story.ticks(interval, begin, end):
                    self.counts["ticks"] += 1
                    if not self._was_begun(work, tick) and self._could_begin(
                        tick, holds, cut_off
                    ):
                        yield from self._judge(work, tick)

    def _epochs(self, work: Work) -> Iterator[tuple[float, float, int]]:
        """Return when only one schedule of the job was in use, and its interval."""
        begin, interval = self._first_look(), 0
        if begin == inf:
            return
        last = self.story.calm - GRACE_SECONDS
        for version, since in sorted(self.story.versions.items()):
            following = work.interval(version)
            if interval and following != interval:
                yield begin, min(since - GRACE_SECONDS, last), interval
                # The others go on with theirs until they have been replaced.
                begin = max(
                    (b.gone for b in self.story.beats if b.version < version),
                    default=since,
                )
                if begin == inf:
                    return
            interval = following
        yield begin, last, interval

    def _first_look(self) -> float:
        return min((beat.ready for beat in self.story.beats), default=inf)

    def _was_begun(self, work: Work, tick: float) -> bool:
        until = tick + GRACE_SECONDS
        for body in self.story.bodies_begun(work.name, tick, inf):
            if body.tick is None:
                continue
            if abs(body.tick - tick) < CLOCK_STEP_SECONDS:
                self.counts["ticks begun"] += 1
                return True
            if body.begun > until:
                late = body.tick > tick + 10 * GRACE_SECONDS
                if late:
                    return False
            elif body.tick > tick:
                self.counts["ticks passed over"] += 1
                return True
        return False

    def _holds(self, work: Work) -> list[Span]:
        """Return when the job's lock was not free, or may not have been."""
        spans = []
        holds = sorted(self.story.holds_of[work.name], key=lambda each: each.acquired)
        for hold, following in zip_longest(holds, holds[1:]):
            end = hold.end if following is None else min(hold.end, following.acquired)
            spans.append(Span(hold.acquired, max(end, hold.acquired)))
        for dead in self.story.dead_holders.values():
            if dead.name == work.name:
                spans.append(Span(dead.locked_at, dead.last + LOOK_INTERVAL_SECONDS))
        for pause in self.story.pauses:
            if pause.name == work.name:
                spans.append(Span(pause.asked, pause.latest_end))
        return spans

    def _could_begin(
        self, tick: float, holds: list[Span], cut_off: dict[str, list[Span]]
    ) -> bool:
        for beat in self.story.beats:
            begin = max(tick, beat.ready)
            end = min(tick + GRACE_SECONDS, beat.last)
            if end - begin < longest_look():
                continue
            hindered = [*holds, *cut_off.get(beat.host, []), *self.story.stalls]
            if time_left(hindered, begin, end) >= longest_look():
                return True
        return False

    def _judge(self, work: Work, tick: float) -> Iterator[Violation]:
        until = tick + GRACE_SECONDS
        for pause in self.story.pauses:
            if pause.name == work.name and pause.asked <= tick <= pause.latest_end:
                return self.excuse("it came in a pause")
        for at, text in self.story.reports:
            if tick <= at <= until + REPORT_SECONDS and repr(work.name) in text:
                return self.excuse("a beat reported it")
        for hold in self.story.holds_of[work.name]:
            if hold.tick is not None and abs(hold.tick - tick) < CLOCK_STEP_SECONDS:
                if self._died_with_its_host(hold):
                    return self.excuse("its host was killed before its body began")
                if was_cut_as_it_began(hold, self.story):
                    return self.excuse("its body was cut as it began")
        wall = self.story.wall + tick
        text = f"the tick {wall:.0f} of {work.name} was not begun, nor reported"
        yield self.violation(text, work.name, tick, until)

    def _died_with_its_host(self, hold: Hold) -> bool:
        # If only its beat was killed, the child goes on.
        beat = self.story.beat_of(hold.parent)
        if beat is None or beat.killed > hold.last + UNSEEN_SECONDS:
            return False
        return any(at >= beat.killed for at in self.story.killed.get(hold.pid, []))


class RequestOnce(Rule):
    """A request is carried out once, or it has expired, or is abandoned."""

    title = "a request once"

    def violations(self) -> Iterator[Violation]:
        for request in self.story.requests:
            bodies = self._bodies(request)
            if len(bodies) > 1:
                text = f"the request for {request.name} was carried out by "
                text += " and ".join(map(str, bodies))
                end = bodies[-1].last
                yield self.violation(text, request.name, request.asked, end)
            elif not bodies:
                yield from self._judge_missing(request)
            else:
                self.counts["requests carried out"] += 1

    def _bodies(self, request: Request) -> list[Body]:
        bodies = self.story.bodies_of.get(request.name, [])
        return [body for body in bodies if self._is_for(body, request)]

    def _is_for(self, run: Body | Hold, request: Request) -> bool:
        at = run.request
        if at is None or run.name != request.name:
            return False
        return Span(
            request.asked - CLOCK_STEP_SECONDS, request.done + CLOCK_STEP_SECONDS
        ).contains(at)

    def _judge_missing(self, request: Request) -> Iterator[Violation]:
        end = self.story.end
        if request.is_open:
            text = f"the request for {request.name} is still open at the end"
            yield self.violation(text, request.name, request.asked, end)
            return
        for hold in self.story.holds_of[request.name]:
            if not self._is_for(hold, request):
                continue
            if self._was_left(hold):
                return self.excuse("abandoned before its body began")
            if was_cut_as_it_began(hold, self.story):
                return self.excuse("its body was cut as it began")
        was_stored = request.is_sure or any(
            self._is_for(hold, request) for hold in self.story.holds_of[request.name]
        )
        if not was_stored:
            return self.excuse("nobody knows whether it was stored")
        if any(at > request.asked for at in self.story.host_kills):
            # A child that was killed just after its UPDATE has written nothing.
            return self.excuse("abandoned before its acquisition was known")
        text = f"the request for {request.name} is gone, and was never carried out"
        yield self.violation(text, request.name, request.asked, end)

    def _was_left(self, hold: Hold) -> bool:
        beat = self.story.beat_of(hold.parent)
        return beat is not None and beat.killed < inf


class NoDeadHolder(Rule):
    """No lock is held by a dead child of a living beat for longer than two looks."""

    title = "no dead holder"

    def violations(self) -> Iterator[Violation]:
        for dead in self.story.dead_holders.values():
            beat = self._living_beat(dead.host, dead.pid, dead.id, dead.locked_at)
            if beat is None:
                self.excuse("its beat was gone")
                continue
            since = max(dead.dead, beat.ready)
            until = min(dead.last, beat.last)
            outages = self.story.outages[dead.host]
            free = time_left([*outages, *self.story.stalls], since, until)
            self.counts["dead holders"] += 1
            if free > DEAD_HOLD_SECONDS:
                text = f"{dead.name} was held by the dead process {dead.id} for "
                text += f"{free:.1f} s, while its beat lived and reached the store"
                yield self.violation(text, dead.name, dead.locked_at, dead.last)

    def _living_beat(
        self, host: str, pid: int, id: str, locked_at: float
    ) -> Beat | None:
        hold = self.story.holds.get(id)
        if hold is not None:
            return self.story.beat_of(hold.parent)
        # It did not come so far that it said so. An orphan of another beat may be late.
        for beat in self.story.beats:
            if beat.host == host and beat.ready <= locked_at <= beat.last:
                others = (b for b in self.story.beats if b.host == host)
                is_late = any(0 < beat.started - b.killed < 60 for b in others)
                return None if is_late else beat
        return None


class NoneCut(Rule):
    """No body is cut that ends within ``--stop-timeout``, nor without a reason."""

    title = "none cut"

    def violations(self) -> Iterator[Violation]:
        for body in self.story.bodies.values():
            if body.is_whole:
                continue
            cut = body.ended if body.how == "interrupted" else body.last
            reason = self._reason(body, cut)
            self.counts[f"bodies cut: {reason}"] += 1
            if reason is None:
                did = "was interrupted" if body.how else "died"
                text = f"{body} {did} without a reason"
                beat = self.story.beat_of(body.parent)
                if beat is not None and beat.stops:
                    after = f"{cut - beat.stops[0]:.1f} s after the SIGTERM of its beat"
                    text += f", {after}, which must wait {STOP_TIMEOUT_SECONDS} s"
                elif beat is not None and beat.killed <= cut + UNSEEN_SECONDS:
                    text += ", when its beat was killed"
                yield self.violation(text, body.name, body.begun, cut)
        self.counts.pop("bodies cut: None", None)

    def _reason(self, body: Body, cut: float) -> str | None:
        kills = self.story.killed.get(body.pid, [])
        if body.how is None and any(at <= cut + UNSEEN_SECONDS for at in kills):
            return "killed by the soak"
        beat = self.story.beat_of(body.parent)
        if beat is not None and beat.stops:
            first, *others = beat.stops
            if cut >= first + STOP_TIMEOUT_SECONDS - STOP_SLACK_SECONDS:
                return "longer than --stop-timeout"
            if others and cut >= others[0] - STOP_SLACK_SECONDS:
                return "a second SIGTERM"
        later = UNSEEN_SECONDS if body.how is None else LATE_REPORT_SECONDS
        if body.lost <= cut + later:
            return "its lock was lost"
        begin = cut - body.lease - SLACK_SECONDS
        if body.keep_alive and self.story.was_cut_off(body.host, begin, cut):
            return "its lease could not be extended"
        return None


def was_cut_as_it_began(hold: Hold, story: Story) -> bool:
    """
    Return whether its process was killed or interrupted after it had told its beat.

    It reports the begin of its body before the body's first instruction. It is
    interrupted only when its beat ends.
    """
    if hold.id in story.bodies:
        return False
    until = hold.acquired + AS_IT_BEGAN_SECONDS
    kills = story.killed.get(hold.pid, [])
    if any(hold.acquired <= at <= until for at in kills):
        return True
    beat = story.beat_of(hold.parent)
    stops = [] if beat is None else beat.stops
    return (
        hold.why in {"SystemExit", "KilledBodyError"}
        and hold.released <= until
        and any(at <= hold.released for at in stops)
    )


RULES: tuple[Callable[[Story, Counter[str]], Rule], ...] = (
    OneBody,
    Tokens,
    OnceEachTick,
    NotBefore,
    NotOwed,
    NoneLost,
    RequestOnce,
    NoDeadHolder,
    NoneCut,
)
