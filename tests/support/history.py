"""
A history of acquisitions, checked as a whole: fencing tokens give its order.

Everything is found in linear time, apart from the sort by token.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

from django_shedlock.locks.lock import Lock


@dataclass
class Acquisition:
    """
    One acquisition, by CLOCK_MONOTONIC, which all processes of a host share.

    Its holder asked for the lock, began its body, and knew the lock as valid by its own
    clock until ``last``. These are instants of the holder, so no stall of anybody makes
    that time longer. ``forced`` is when an operator began to release the lock: until
    its next beat, the holder can't know of that.
    """

    name: str
    id: str
    asked: float
    begun: float
    way: str = "hold"
    tick: Any = None
    token: int | None = None
    last: float | None = None
    forced: float = inf
    released: float | None = None
    succeeded: bool = False

    @property
    def end(self) -> float:
        """Return until when nobody else may begin."""
        return -inf if self.last is None else min(self.last, self.forced)

    def __str__(self) -> str:
        return f"{self.way} {self.name} {self.token} of {self.id}"


@contextmanager
def recorded(history: list[Acquisition], lock: Lock, asked: float) -> Iterator[None]:
    """Add the lock to the history, as valid for as long as the body takes."""
    begun, token = time.monotonic(), lock.fencing_token
    entry = Acquisition(lock.name, lock.locked_by, asked, begun, token=token)
    entry.tick = lock.tick
    history.append(entry)
    try:
        yield
    finally:
        until = time.monotonic()
        if lock.is_active:
            entry.last = until


def violations(acquisitions: Iterable[Acquisition]) -> Iterator[str]:
    """Return what must not have happened, as a sentence each."""
    of_names: dict[str, list[Acquisition]] = defaultdict(list)
    for acquisition in acquisitions:
        of_names[acquisition.name].append(acquisition)
    for of_name in of_names.values():
        with_token = [each for each in of_name if each.token is not None]
        yield from _disorders(sorted(with_token, key=lambda each: each.token or 0))
        yield from _repeated_ticks(of_name)
        yield from (
            f"{each} ran, and nobody knows with which token"
            for each in of_name
            if each.token is None and each.last is not None
        )


def _disorders(in_order: list[Acquisition]) -> Iterator[str]:
    # All before a body have lower tokens: each was over, or had asked, when it began.
    longest = latest = before = None
    for body in in_order:
        if before is not None and body.token == before.token:
            yield f"{body} has the token of {before}"
        if longest is not None and body.begun < longest.end:
            by = f"{longest.end - body.begun:.3f} s"
            yield f"{body} began {by} before the end of {longest}"
        if latest is not None and body.begun < latest.asked:
            yield f"{latest} asked after {body} had begun, and has no higher token"
        longest = body if longest is None or body.end > longest.end else longest
        latest = body if latest is None or body.asked > latest.asked else latest
        before = body


def _repeated_ticks(of_name: list[Acquisition]) -> Iterator[str]:
    # A tick is run once by each trigger, and not at all after a success.
    first: dict[Any, Acquisition] = {}
    successes: dict[Any, float] = {}
    ticks = [body for body in of_name if body.tick is not None]
    for body in ticks:
        if body.succeeded and body.released is not None:
            earliest = successes.get(body.tick, inf)
            successes[body.tick] = min(body.released, earliest)
    for body in ticks:
        other = first.setdefault((body.tick, body.way), body)
        if other is not body:
            yield f"{body} ran {body.tick} by {body.way}, as {other} did"
        if body.asked > successes.get(body.tick, inf):
            yield f"{body} ran {body.tick} again after its success"


def stale_writes(writes: Iterable[tuple[str, int, int]]) -> Iterator[str]:
    """
    Return which writes were committed when the lock was a later holder's.

    ``writes`` are names, tokens and the tokens that were known of their locks then, in
    the order in which they were committed.
    """
    highest: dict[str, int] = {}
    for name, token, token_of_lock in writes:
        newest = max(token_of_lock, highest.get(name, 0))
        if token < newest:
            yield f"{name} {token} wrote after {name} {newest} had begun"
        highest[name] = max(newest, token)
