"""The package's own locks, which are no jobs of the project."""

from django_shedlock.locks.patterns import matches_any

CATCH_UP_LOCK = "shedlock.catch-up"
"""The lock whose record says when a catch-up was last seen, on any host."""
BEAT_LOCK_PREFIX = "shedlock.beat:"
"""The lock of the beat on a host is called this and the host's name."""
OWN_LOCK_PATTERNS: tuple[str, ...] = (
    *(CATCH_UP_LOCK, f"*.{CATCH_UP_LOCK}"),
    *(f"{BEAT_LOCK_PREFIX}*", f"*.{BEAT_LOCK_PREFIX}*"),
)
"""Patterns of their names, in whatever namespace."""


def is_own_lock(name: str) -> bool:
    """Return whether the lock of this full name is the package's own."""
    return matches_any(name, OWN_LOCK_PATTERNS)
