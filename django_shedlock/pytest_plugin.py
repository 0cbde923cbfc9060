"""The helpers of ``django_shedlock.test`` as pytest fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest


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
def shedlock_held_elsewhere() -> Callable[[str], AbstractContextManager[None]]:
    """Return ``held_elsewhere()``, in which a job is skipped."""
    from django_shedlock.test import held_elsewhere

    return held_elsewhere
