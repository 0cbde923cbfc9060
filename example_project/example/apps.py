"""The example's app, and a host whose clock is wrong."""

from __future__ import annotations

import os
import time

from django.apps import AppConfig

CLOCK_VARIABLE = "SHEDLOCK_EXAMPLE_CLOCK_AHEAD"
"""How many seconds the clock of this process is ahead, for the demo's incident."""


class ExampleConfig(AppConfig):
    """Put this process on a host with a wrong clock, if the environment says so."""

    name = "example"

    def ready(self) -> None:
        """Set the clock before anything reads it."""
        if ahead := os.environ.get(CLOCK_VARIABLE):
            set_clock_ahead(float(ahead))


def set_clock_ahead(seconds: float) -> None:
    """Let ``time.time()``, by which the package compares clocks, show a later time."""
    # Not by libfaketime, which few machines have. With SQLite it could not show this
    # anyway: the database's clock is that of the process.
    right = time.time

    def wrong() -> float:
        return right() + seconds

    time.time = wrong
