"""Writes the lines of the demo as things happen."""

from __future__ import annotations

from django.core.management.base import BaseCommand

from example.workers import RAN


class Screen:
    """Writes for a command, in its style."""

    def __init__(self, command: BaseCommand):
        self._stdout = command.stdout
        self._style = command.style

    def title(self, text: str) -> None:
        """Write a heading."""
        self.write(f"\n{self._style.MIGRATE_HEADING(text)}")

    def write(self, line: str) -> None:
        """Write a line at once, even into a pipe."""
        self._stdout.write(line)
        self._stdout.flush()

    def outcome(self, outcome: str, width: int = 0) -> str:
        """Return the outcome in its colour."""
        colour = self._style.SUCCESS if outcome == RAN else self._style.WARNING
        return str(colour(outcome.ljust(width)))
