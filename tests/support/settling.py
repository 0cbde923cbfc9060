"""What locks still write in the background when a test has ended."""

from __future__ import annotations

import time
from typing import Any
from weakref import WeakSet

LONGEST = 2.0
"""Seconds: the store of a test may hang, or be gone."""

_providers: WeakSet[Any] = WeakSet()


def install() -> None:
    """Know each provider that is made in this process from now on."""
    from django_shedlock.providers.base import LockProvider

    make = LockProvider.__init__

    def note(self: LockProvider, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        _providers.add(self)

    LockProvider.__init__ = note  # type: ignore[method-assign]


def wait_until_settled() -> None:
    """Wait until the losses are told and recorded."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until and _is_busy():
        time.sleep(0.002)


def _is_busy() -> bool:
    from django_shedlock.background import losses

    is_telling = losses.entries or any(not each.done() for each in losses._under_way)
    return bool(is_telling) or any(each.history.entries for each in list(_providers))
