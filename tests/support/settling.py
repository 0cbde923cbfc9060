"""What locks still write in the background when a test has ended."""

from __future__ import annotations

import time
from typing import Any
from weakref import WeakSet

import pytest
from django.test import TestCase, TransactionTestCase

LOOK_LIMIT = 1000
"""
The wait ends after so many looks: the store of a test may hang, or be gone.

It counts looks because seconds pass even while this process gets no CPU time.
"""

_providers: WeakSet[Any] = WeakSet()


def install() -> None:
    """Know each provider that is made in this process from now on."""
    from django_shedlock.providers.base import LockProvider

    make = LockProvider.__init__

    def note(self: LockProvider, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        _providers.add(self)

    LockProvider.__init__ = note  # type: ignore[method-assign]


def commits(item: pytest.Item) -> bool:
    """Return whether the test commits, so that its tables are emptied after it."""
    case = getattr(item, "cls", None)
    if case is not None and issubclass(case, TransactionTestCase):
        return not issubclass(case, TestCase)
    marker = item.get_closest_marker("django_db")
    return marker is not None and bool(marker.kwargs.get("transaction"))


def wait_until_settled(*, with_late_releases: bool) -> None:
    """
    Wait until the losses are told and recorded, and perhaps until late releases are.

    A late release writes its row of the history after the release for which a test
    waits. In a test that does not commit it may wait for that test's own transaction.
    """
    for _ in range(LOOK_LIMIT):
        if not _is_busy(with_late_releases=with_late_releases):
            return
        time.sleep(0.002)


def _is_busy(*, with_late_releases: bool) -> bool:
    from django_shedlock.background import losses
    from django_shedlock.execution.keep_alive import late_releases
    from tests.support.threads import is_idle

    if with_late_releases and not is_idle(late_releases):
        return True
    is_telling = losses.entries or any(not each.done() for each in losses._under_way)
    return bool(is_telling) or any(each.history.entries for each in list(_providers))
