"""The helpers of ``django_shedlock.test`` as pytest fixtures."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_shedlock.test import HeldElsewhere


@pytest.fixture
def shedlock_unlocked() -> Iterator[None]:
    """Run every job of the test without a lock."""
    from django_shedlock.test import unlocked

    with unlocked():
        yield


@pytest.fixture
def shedlock_in_memory() -> Iterator[None]:
    """Keep the locks of the test in memory, so that it needs no database."""
    from django_shedlock.test import locked_in_memory

    with locked_in_memory():
        yield


@pytest.fixture
def shedlock_held_elsewhere() -> "Callable[..., HeldElsewhere]":
    """Return ``held_elsewhere()``, in which a job is skipped."""
    from django_shedlock.test import held_elsewhere

    return held_elsewhere
