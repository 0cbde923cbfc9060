"""Why the record of a lock was not taken, read after an UPDATE that did not match."""

from __future__ import annotations

from typing import Any

from django_shedlock.clocks import aware
from django_shedlock.configuration import ZERO
from django_shedlock.holders import LockHolder
from django_shedlock.locks import Lock
from django_shedlock.states import LockState
from django_shedlock.triggers import Trigger


def is_to_take(record: Any, lock: Lock) -> bool:
    """Return whether the lock may be taken after all, by what the record says now."""
    # The record of a schedule may be free, and its tick not run, though our UPDATE did
    # not match: it was held until just now, it is new and registered only, or its tick
    # is none of those around our clock.
    occasion = lock.configuration.occasion
    if occasion.schedule is None or record.locked_by == lock.locked_by:
        return False
    is_kept_only = record.state == LockState.HELD_AT_LEAST
    by_force = is_kept_only and occasion.trigger is Trigger.OPERATOR
    if record.remaining > ZERO and not by_force:
        return False
    allowed: bool = record.progress.allows(occasion, aware(record.clock))
    return allowed


def holder_of(record: Any, lock: Lock) -> LockHolder | None:
    """Return who holds the lock, or has run its tick; ``None`` if it is ours."""
    # If the reply to our own UPDATE or INSERT was lost, the holder is us.
    if record.locked_by == lock.locked_by:
        return None
    occasion, clock = lock.configuration.occasion, aware(record.clock)
    return LockHolder(
        record.locked_by,
        remaining=max(record.remaining, ZERO),
        tick=record.progress.done(occasion, clock, is_held=record.remaining > ZERO),
    )
