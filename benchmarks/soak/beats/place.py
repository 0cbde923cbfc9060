"""Where a process of the soak runs: its host, its store, and the soak's journal."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VARIABLE = "SHEDLOCK_BEAT_SOAK"


@dataclass(frozen=True)
class Place:
    """What a process of the project has to know, which its environment says."""

    host: str
    version: int
    database: dict[str, Any]
    journal: str
    broken: str | None = None
    """Which part of the library is taken out."""

    @classmethod
    def of_environment(cls) -> Place:
        """Return this process's."""
        return cls(**json.loads(os.environ[VARIABLE]))

    def as_environment(self) -> dict[str, str]:
        """Return what a process needs to be there."""
        return {VARIABLE: json.dumps(asdict(self))}

    @property
    def path(self) -> Path:
        """The journal's path."""
        return Path(self.journal)
