"""A pause: an operator holds a lock, so that its job does not run."""

import secrets
from dataclasses import dataclass
from typing import Self

from django_shedlock.durations import LONGEST_DURATION

PAUSE_PREFIX = "paused by "
"""How the identity of a pause begins: no host's name has a space."""
FOREVER = LONGEST_DURATION
"""The lease of a pause without an end."""


@dataclass(frozen=True)
class Pause:
    """
    An operator's own acquisition of a lock, so that its job does not run.

    ``identity`` is what the store keeps as ``locked_by``: it says who paused
    the job and why, whatever program reads it.
    """

    operator: str
    reason: str

    def identity(self) -> str:
        """Return a new ``paused by OPERATOR: REASON (random)`` that fits its column."""
        who = _on_one_line(self.operator).replace(": ", " ")[:100]
        text = f"{PAUSE_PREFIX}{who}: {_on_one_line(self.reason) or 'no reason given'}"
        token = f" ({secrets.token_hex(4)})"
        room = 255 - len(token)
        return (text if len(text) <= room else f"{text[: room - 1]}…") + token

    @classmethod
    def parse(cls, locked_by: str) -> Self | None:
        """Return the pause with this identity; ``None`` for any other holder."""
        if not locked_by.startswith(PAUSE_PREFIX):
            return None
        who, _, why = locked_by.removeprefix(PAUSE_PREFIX).partition(": ")
        return cls(who, why.rpartition(" (")[0] or why)


def _on_one_line(text: str) -> str:
    printable = (c if c.isprintable() else " " for c in text)
    return " ".join("".join(printable).split())
