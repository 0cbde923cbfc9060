"""How far a store's clock is from this process's."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.utils import timezone

TOLERANCE = timedelta(seconds=30)
"""Schedulers that are further apart start jobs at times that nobody expects."""


def host_now() -> datetime:
    """Return this process's own clock, which decides nothing."""
    return datetime.now(UTC)


def clock_difference(read: Callable[[], datetime]) -> timedelta:
    """
    Return by how much the clock that is read is ahead of this process's, at the least.

    A store that answers late may have looked at its clock at any time until then.
    Raises what ``read`` raises.
    """
    asked = time.time()
    moment = read()
    answered = time.time()
    told = timestamp(moment)
    return timedelta(seconds=told - min(max(told, asked), answered))


def timestamp(moment: datetime) -> float:
    """Return the instant in seconds; without a zone it is in the project's own."""
    return aware(moment).timestamp()


def aware(moment: datetime) -> datetime:
    """
    Return the instant in UTC; without a zone it is in the project's own.

    In other zones Python adds to what the clock on the wall shows, and takes the second
    of two hours that read alike for the first.
    """
    known = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
    return known.astimezone(UTC)
