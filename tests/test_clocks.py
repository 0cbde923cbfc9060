"""The pauses between two tries."""

from __future__ import annotations

from datetime import timedelta

from django_shedlock.clocks import LONGEST_PAUSE, SHORTEST_PAUSE, Backoff

HOUR = timedelta(hours=1)


def test_pauses_grow_to_a_second() -> None:
    """Each pause is jittered below a ceiling that doubles, up to a second."""
    backoff = Backoff(HOUR)
    pauses = [backoff.pause() or 0 for _ in range(12)]
    ceilings = [min(SHORTEST_PAUSE * 2**n, LONGEST_PAUSE) for n in range(12)]
    for pause, ceiling in zip(pauses, ceilings, strict=True):
        assert ceiling / 2 <= pause <= ceiling


def test_two_waiters_do_not_march_in_step() -> None:
    """The jitter sets apart two that began to wait at the same moment."""
    first, second = Backoff(HOUR), Backoff(HOUR)
    assert [first.pause() for _ in range(5)] != [second.pause() for _ in range(5)]
