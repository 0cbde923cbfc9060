"""
The helpers of ``django_shedlock.testing`` as pytest fixtures.

A project names this module in its top ``conftest.py``::

    pytest_plugins = ["django_shedlock.testing.fixtures"]
"""

from collections.abc import Callable, Iterator

import pytest

from django_shedlock.testing import (
    HeldElsewhere,
    held_elsewhere,
    locked_in_memory,
    unlocked,
)


@pytest.fixture
def shedlock_unlocked() -> Iterator[None]:
    """Run every job of the test without a lock."""
    with unlocked():
        yield


@pytest.fixture
def shedlock_in_memory() -> Iterator[None]:
    """Keep the locks of the test in memory, so that it needs no database."""
    with locked_in_memory():
        yield


@pytest.fixture
def shedlock_held_elsewhere() -> Callable[..., HeldElsewhere]:
    """Return ``held_elsewhere()``, in which a job is skipped."""
    return held_elsewhere
