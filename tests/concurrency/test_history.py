"""The checker of histories finds each kind of violation, in linear time."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.history import Acquisition, stale_writes, violations

WAYS = ("scheduler", "catch-up")


@dataclass
class History:
    """Acquisitions of one lock in the order in which the store granted them."""

    bodies: list[Acquisition] = field(default_factory=list)
    writes: list[tuple[str, int, int]] = field(default_factory=list)

    def found(self, chance: random.Random) -> list[str]:
        """Return what the checker finds, in whatever order it gets the bodies."""
        shuffled = chance.sample(self.bodies, len(self.bodies))
        return [*violations(shuffled), *stale_writes(self.writes)]


def valid_history(chance: random.Random, count: int, name: str = "job") -> History:
    """Return what a lock may show: holders that stall, fail, catch up, are forced."""
    history, granted, token = History(), 0.0, 0
    for number in range(count):
        token += chance.choice([1, 1, 1, 5])  # some of the killed say nothing
        later = granted + chance.uniform(1, 10)
        body = Acquisition(
            name,
            f"{name}-{number}",
            asked=granted - chance.uniform(0, 20),
            begun=chance.uniform(granted, later),
            way="scheduler",
            tick=number,
            token=token,
        )
        kind = chance.choice(["ends", "ends", "stalls", "fails", "is forced", "dies"])
        body.last = body.released = chance.uniform(body.begun, later)
        body.succeeded = kind == "ends"
        if kind == "stalls":
            body.begun, body.last = later + chance.uniform(0, 99), None
            body.released = body.begun + 1
        if kind == "is forced":
            body.last, body.forced = later + 5, body.last
            body.released = body.last
        if kind == "dies":
            body.released = None
            if chance.random() < 0.5:
                body.token = body.last = None
        history.bodies.append(body)
        if body.token is not None and kind != "stalls":
            writes = [(name, token, token)] * chance.randrange(3)
            history.writes += writes
        granted = later
    missed = [body for body in history.bodies if not body.succeeded]
    for tick in {body.tick for body in chance.sample(missed, len(missed) // 2)}:
        begun = granted + chance.uniform(0, 1)
        granted, token = begun + 1, token + 1
        late = Acquisition(
            name, f"{name}-late-{tick}", begun, begun, "catch-up", tick, token, begun
        )
        history.bodies.append(late)
    return history


def two(
    history: History, chance: random.Random, wanted: Callable[..., bool]
) -> list[Acquisition]:
    """Return one body and a later one, which are as wanted."""
    bodies = history.bodies
    pairs = [
        [earlier, later]
        for number, later in enumerate(bodies)
        for earlier in bodies[:number]
        if wanted(earlier, later)
    ]
    return chance.choice(pairs) if pairs else []


def have_tokens(earlier: Acquisition, later: Acquisition) -> bool:
    return earlier.token is not None and later.token is not None


def overlap(history: History, chance: random.Random) -> list[Acquisition]:
    pair = two(history, chance, have_tokens)
    for earlier, later in [pair] if pair else []:
        earlier.last, earlier.forced = later.begun + 0.001, float("inf")
    return pair


def repeat_token(history: History, chance: random.Random) -> list[Acquisition]:
    pair = two(history, chance, have_tokens)
    for earlier, later in [pair] if pair else []:
        later.token = earlier.token
    return pair


def swap_tokens(history: History, chance: random.Random) -> list[Acquisition]:
    def are_apart(earlier: Acquisition, later: Acquisition) -> bool:
        return have_tokens(earlier, later) and earlier.begun < later.asked

    pair = two(history, chance, are_apart)
    for earlier, later in [pair] if pair else []:
        earlier.token, later.token = later.token, earlier.token
    return pair


def lose_token(history: History, chance: random.Random) -> list[Acquisition]:
    ran = [body for body in history.bodies if body.last is not None]
    chosen = chance.sample(ran, min(1, len(ran)))
    for body in chosen:
        body.token = None
    return chosen


def run_tick_twice(history: History, chance: random.Random) -> list[Acquisition]:
    pair = two(history, chance, lambda earlier, later: earlier.way == later.way)
    for earlier, later in [pair] if pair else []:
        later.tick = earlier.tick
    return pair


def run_tick_after_success(
    history: History, chance: random.Random
) -> list[Acquisition]:
    def is_after(earlier: Acquisition, later: Acquisition) -> bool:
        ended = earlier.released
        return bool(earlier.succeeded and ended and later.asked > ended)

    pair = two(history, chance, is_after)
    for earlier, later in [pair] if pair else []:
        later.tick, later.way = earlier.tick, WAYS[1]
    return pair


def write_late(history: History, chance: random.Random) -> list[Acquisition]:
    pair = two(history, chance, have_tokens)
    for earlier, later in [pair] if pair else []:
        assert earlier.token is not None
        assert later.token is not None
        # Whether the later one has written, or has only got the lock.
        if chance.random() < 0.5:
            history.writes.append((later.name, later.token, later.token))
            history.writes.append((earlier.name, earlier.token, earlier.token))
        else:
            history.writes = [(earlier.name, earlier.token, later.token)]
    return pair


MUTATIONS = [
    (overlap, "before the end of"),
    (repeat_token, "has the token of"),
    (swap_tokens, "has no higher token"),
    (lose_token, "nobody knows with which token"),
    (run_tick_twice, "ran {earlier.tick} by {earlier.way}"),
    (run_tick_after_success, "ran {earlier.tick} again after its success"),
    (write_late, "wrote after"),
]


@given(st.randoms(use_true_random=False), st.integers(0, 30))
def test_valid_history_passes(chance: random.Random, count: int) -> None:
    """Stalls, failures, releases by force and ticks that are caught up are allowed."""
    both = valid_history(chance, count)
    other = valid_history(chance, count, "other")
    both.bodies += other.bodies
    both.writes += other.writes
    assert both.found(chance) == []


@pytest.mark.parametrize(("mutate", "sentence"), MUTATIONS)
@given(chance=st.randoms(use_true_random=False), count=st.integers(2, 30))
def test_one_violation_is_found(
    mutate: Callable[[History, random.Random], list[Acquisition]],
    sentence: str,
    chance: random.Random,
    count: int,
) -> None:
    """Each kind, anywhere in a history that is valid without it."""
    history = valid_history(chance, count)
    harmed = mutate(history, chance)
    if harmed:
        expected = sentence.format(earlier=harmed[0])
        assert any(expected in each for each in history.found(chance))


@pytest.mark.parametrize(("mutate", "sentence"), MUTATIONS)
def test_every_mutation_is_tried(mutate: Any, sentence: str) -> None:
    """No kind is passed over because no history offers a place for it."""
    chance = random.Random(1)
    assert all(mutate(valid_history(chance, 30), chance) for _ in range(10))


def steps_of(work: Callable[[], object]) -> int:
    """Return how many lines of Python are run."""
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        steps += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize("has_stalls", [False, True])
def test_check_takes_linear_time(has_stalls: bool) -> None:
    """Ten times the acquisitions take ten times the steps, also if all overlap."""

    def bodies(count: int) -> Iterator[Acquisition]:
        for number in range(count):
            begun = 0 if has_stalls else number
            yield Acquisition(
                "job", f"{number}", begun, begun, tick=number, token=number, last=begun
            )

    def steps(count: int) -> int:
        history = [*bodies(count)]
        return steps_of(lambda: [*violations(history)])

    assert steps(2000) < 10.5 * steps(200)
    assert steps(2000) < 60 * 2000
