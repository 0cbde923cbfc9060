"""Whether the durations of a lock fit between two ticks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.core.checks import CheckMessage, Warning

from django_shedlock.configuration import LockConfiguration
from django_shedlock.durations import format_duration


def find_too_long(
    job: str, lock: LockConfiguration, interval: timedelta
) -> Iterator[CheckMessage]:
    """Warn of durations for which a tick is skipped that comes ``interval`` later."""
    between = f"the time between two ticks ({format_duration(interval)})"
    if lock.lock_at_least_for >= interval:
        yield Warning(
            f"{job} starves: lock_at_least_for "
            f"({format_duration(lock.lock_at_least_for)}) of its lock {lock.name!r} is "
            f"not shorter than {between}, so its own next tick is skipped.",
            hint="Take half of that, or less; a minute is mostly enough.",
            id="shedlock.W008",
        )
    if lock.lock_at_most_for >= interval:
        yield Warning(
            f"{job} waits for the dead: lock_at_most_for ({lock.lease}) of its lock "
            f"{lock.name!r} is not shorter than {between}, so after a crash a tick is "
            "skipped.",
            hint="Make it shorter, with keep_alive=True if the job may take longer.",
            id="shedlock.W010",
        )
