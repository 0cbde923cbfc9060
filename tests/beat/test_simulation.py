"""The rules of the beat and of the record, in thousands of simulated worlds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_shedlock.beat import looks
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState, Trigger
from tests.beat.properties import Property, common, without
from tests.beat.simulation import (
    SCHEDULES,
    BeatRules,
    Store,
    around,
    known_ticks,
    simulate,
)

Break = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Let lost locks of simulated processes not fill the log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def failures(seeds: Iterable[int]) -> list[str]:
    """Return the histories of these seeds that have a violation."""
    histories = map(simulate, seeds)
    return [str(history) for history in histories if history.violations]


def test_the_rules_hold() -> None:
    """No property is violated in 100 worlds."""
    assert not failures(range(100))


@settings(derandomize=True)
@given(st.integers(min_value=100, max_value=2**32))
def test_the_rules_hold_in_other_worlds(seed: int) -> None:
    """No property is violated in other worlds: 3,000 of them each night."""
    assert not failures([seed])


def test_a_seed_gives_the_same_history() -> None:
    """A failure can be looked at again by its seed alone."""
    # A pause draws a random identity.
    first, second = (
        [(event.at, event.kind, event.lock, event.tick) for event in history.events]
        for history in (simulate(7), simulate(7))
    )
    assert first == second
    assert len(first) > 20


def test_a_history_is_readable() -> None:
    """The first line has the settings, and each other line an event."""
    text = str(simulate(1))
    assert text.startswith("seed 1, grace ")
    assert "body begun" in text
    assert text.endswith("No violation.")


def test_known_ticks_are_right() -> None:
    """The simulation's memory of ticks agrees with ``Schedule``."""
    chance, begin = Random(1), datetime(2026, 3, 2, tzinfo=UTC)
    for text in SCHEDULES:
        schedule = Schedule(text, "UTC")
        for _ in range(50):
            moment = begin + timedelta(seconds=chance.choice([60, 0.5, 7]) * 997)
            begin += timedelta(seconds=31)
            right = schedule.around(moment)
            assert around(schedule, moment) == right
            with known_ticks():
                assert next(schedule.ticks_until(moment)) == right[0]
                assert next(schedule.ticks_after(moment)) == right[1]


def test_intervals() -> None:
    """The judge's arithmetic of time is right."""
    assert common([(0, 5), (7, 9)], [(4, 8)]) == [(4, 5), (7, 8)]
    assert without([(0, 5), (7, 9)], [(4, 8)]) == [(0, 4), (8, 9)]


# Each of these switches one rule off.


def excludes(patch: pytest.MonkeyPatch) -> None:
    """A held lock refuses."""
    real = LockStatus.refusal

    def refusal(self: LockStatus, start: object, decision: object) -> object:
        is_free = self.pause is None and (decision is None or decision.is_allowed)
        return None if is_free else real(self, start, decision)

    patch.setattr(LockStatus, "refusal", refusal)
    in_use = property(lambda self: self is LockState.PAUSED)
    patch.setattr(LockState, "is_held", in_use)
    patch.setattr(LockState, "is_in_use", in_use)


def looks_back(patch: pytest.MonkeyPatch) -> None:
    """A beat starts a tick from before its first look."""
    real = ScheduleState.owed_tick

    def owed_tick(
        self: ScheduleState,
        schedule: Schedule,
        grace: timedelta,
        now: datetime,
        since: datetime,
    ) -> datetime | None:
        tick = real(self, schedule, grace, now, since)
        return tick if tick is not None and tick >= since else None

    patch.setattr(ScheduleState, "owed_tick", owed_tick)


def registration_sets_tick(patch: pytest.MonkeyPatch) -> None:
    """A new schedule owes no past tick."""
    real = ScheduleState.registered

    def registered(self: ScheduleState, *given: object) -> ScheduleState:
        state = real(self, *given)
        return replace(state, tick=self.tick, due_at=self.due_at or given[1])

    patch.setattr(ScheduleState, "registered", registered)


def pause_sets_tick(patch: pytest.MonkeyPatch) -> None:
    """The end of a pause owes no tick of it."""

    def paused_until(self: ScheduleState, *given: object) -> ScheduleState:
        return self

    patch.setattr(ScheduleState, "paused_until", paused_until)


def keeps_registration_after_pause(patch: pytest.MonkeyPatch) -> None:
    """A registration after a pause keeps its tick."""
    real = ScheduleState.paused_until

    def paused_until(
        self: ScheduleState, end: datetime, schedule: Schedule | None, now: datetime
    ) -> ScheduleState:
        return real(self, end, schedule, end)

    patch.setattr(ScheduleState, "paused_until", paused_until)


def never_began_gives_back(patch: pytest.MonkeyPatch) -> None:
    """A body that never began gives its tick back."""
    patch.setattr(ScheduleState, "given_back", lambda self: self)


def remembers_repeated_tick(patch: pytest.MonkeyPatch) -> None:
    """A tick is given back by ``rerun`` once."""
    real = ScheduleState.given_back_once

    def given_back_once(self: ScheduleState) -> ScheduleState:
        return real(replace(self, repeated_tick=None))

    patch.setattr(ScheduleState, "given_back_once", given_back_once)


def failed_is_not_interrupted(patch: pytest.MonkeyPatch) -> None:
    """A body that failed by itself gives no tick back."""

    def exception(self: looks.ChildEnd) -> BaseException | None:
        return None if self.has_succeeded else looks.KilledBodyError(self.killed_by)

    patch.setattr(looks.ChildEnd, "exception", property(exception))


def only_rerun_gives_back(patch: pytest.MonkeyPatch) -> None:
    """Without ``rerun`` an interrupted body gives no tick back."""
    gives_back = property(lambda self: self.was_interrupted)
    patch.setattr(Lock, "gives_tick_back", gives_back)


def catch_up_begins_once(patch: pytest.MonkeyPatch) -> None:
    """``catch-up`` begins no tick that was begun."""
    real = ScheduleState.decide

    def decide(
        self: ScheduleState,
        start: object,
        schedule: Schedule,
        grace: timedelta,
        now: datetime,
    ) -> object:
        decision = real(self, start, schedule, grace, now)
        if start.trigger is Trigger.CATCH_UP:
            is_overdue = self.overdue_since(now, grace) is not None
            return replace(decision, is_allowed=is_overdue)
        return decision

    patch.setattr(ScheduleState, "decide", decide)


def request_is_bound(patch: pytest.MonkeyPatch) -> None:
    """A start for a request needs the request that was read."""
    real = Store.acquire

    def acquire(self: Store, lock: object) -> object:
        start = lock.configuration.start
        if start.request is not None and not self.is_away and not self.is_hanging:
            entry, version, _ = self.read(lock.name)
            asked = replace(entry, asked_at=start.request.timestamp())
            self.write(lock.name, asked, version)
        return real(self, lock)

    patch.setattr(Store, "acquire", acquire)


def does_not_report(*kinds: looks.ReportKind) -> Break:
    """Make a beat leave out these reports."""

    def change(patch: pytest.MonkeyPatch) -> None:
        real = looks.Look.reports

        def reports(self: looks.Look, *given: object) -> list[looks.BeatReport]:
            return [each for each in real(self, *given) if each.kind not in kinds]

        patch.setattr(looks.Look, "reports", reports)

    return change


def reports_before_since(patch: pytest.MonkeyPatch) -> None:
    """A tick from before the first look is reported as well."""
    patch.setattr(looks.Look, "_was_owed", lambda self, tick: self.since <= tick)


Kind = looks.ReportKind
RULES: dict[str, tuple[Break, Property]] = {
    "a held lock refuses": (excludes, Property.ONE_BODY),
    "looks back over a restart": (looks_back, Property.NO_LOSS),
    "a registration sets the tick": (registration_sets_tick, Property.NOT_OWED),
    "the end of a pause sets the tick": (pause_sets_tick, Property.NOT_OWED),
    "a registration after a pause": (keeps_registration_after_pause, Property.NOT_OWED),
    "a body that never began gives back": (never_began_gives_back, Property.NO_LOSS),
    "remembers the repeated tick": (remembers_repeated_tick, Property.ONCE),
    "a failed body is not interrupted": (failed_is_not_interrupted, Property.ONCE),
    "only rerun gives back": (only_rerun_gives_back, Property.ONCE),
    "catch-up begins no begun tick": (catch_up_begins_once, Property.ONCE),
    "a request is bound": (request_is_bound, Property.REQUESTS),
    "reports ticks from before its first look": (
        reports_before_since,
        Property.NO_LOSS,
    ),
    "reports passed-over ticks": (does_not_report(Kind.PASSED_OVER), Property.NO_LOSS),
}
BEAT_RULES: dict[str, tuple[BeatRules, Property]] = {
    "releases what dead children hold": (
        BeatRules(settles=False),
        Property.NO_DEAD_HOLDER,
    ),
    "releases it again": (BeatRules(settles_again=False), Property.NO_DEAD_HOLDER),
    "waits for --stop-timeout": (
        BeatRules(waits_for_stop_timeout=False),
        Property.NO_CUT,
    ),
    "ends a body before its lease": (
        BeatRules(ends_before_lease=False),
        Property.ONE_BODY,
    ),
}
FIRST_SEEDS = {
    "a registration after a pause": 90,
    "a failed body is not interrupted": 100,
    "reports ticks from before its first look": 80,
    "ends a body before its lease": 320,
}
"""Where to look for a rare violation, so that the test is short."""
MOST_SEEDS = 150


def is_found(name: str, expected: Property, rules: BeatRules | None = None) -> bool:
    """Return whether one of the seeds has the expected violation."""
    first = FIRST_SEEDS.get(name, 0)
    return any(
        violation.property is expected
        for seed in range(first, first + MOST_SEEDS)
        for violation in simulate(seed, rules).violations
    )


@pytest.mark.parametrize("name", RULES)
def test_each_rule_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one rule of the record or a look, its property is violated."""
    change, expected = RULES[name]
    change(monkeypatch)
    assert is_found(name, expected), "without the rule nothing goes wrong"


@pytest.mark.parametrize("name", BEAT_RULES)
def test_each_rule_of_the_beat_is_needed(name: str) -> None:
    """Without one rule of the beat's loop, its property is violated."""
    rules, expected = BEAT_RULES[name]
    assert is_found(name, expected, rules), "without the rule nothing goes wrong"
