"""What a process of the soak's project logs, for the journal."""

from __future__ import annotations

import logging
import os

from benchmarks.soak.beats.place import Place
from benchmarks.soak.journal import Journal


class NoteReports(logging.Handler):
    """Writes each warning of the package into the journal."""

    def __init__(self, level: int = logging.WARNING):
        super().__init__(level)
        place = Place.of_environment()
        self._host, self._journal = place.host, Journal(place.path)

    def emit(self, record: logging.LogRecord) -> None:
        """See the class."""
        self._journal.write(
            "log",
            host=self._host,
            pid=os.getpid(),
            level=record.levelname,
            text=record.getMessage(),
        )
