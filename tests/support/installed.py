"""Apps that are installed for a while, with their receivers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.dispatch import Signal
from django.test import modify_settings

from django_shedlock import signals


@contextmanager
def installed(app: str) -> Iterator[None]:
    """Install the app; in the body only it is connected to the signals."""
    every = [value for value in vars(signals).values() if isinstance(value, Signal)]
    kept = [(signal, signal.receivers[:]) for signal in every]
    around_body = signals.around_body[:]
    try:
        with modify_settings(INSTALLED_APPS={"append": app}):
            yield
    finally:
        signals.around_body[:] = around_body
        for signal, receivers in kept:
            signal.receivers = receivers
            signal.sender_receivers_cache.clear()
