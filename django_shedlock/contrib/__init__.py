"""What connects other software. Here: what several of its apps need."""

import atexit
import re
from collections.abc import Callable
from hashlib import sha256
from multiprocessing import parent_process

LONGEST_SLUG = 50
"""Sentry cuts longer ones."""


def at_end_of_child(work: Callable[[], object]) -> None:
    """Call ``work``, once, at the end of a process that a beat has started."""
    if parent_process() is not None:  # it calls nothing that its parent registered
        atexit.unregister(work)
        atexit.register(work)


def slug_of(name: str) -> str:
    """
    Return the name in lower-case letters, digits, "-" and "_", as services want it.

    What does not fit, or has nothing to keep, is told apart by a part of its hash.
    """
    slug = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")
    if 0 < len(slug) <= LONGEST_SLUG and not slug.isdecimal():
        return slug
    return f"{slug[:41] or 'lock'}-{sha256(name.encode()).hexdigest()[:8]}"
