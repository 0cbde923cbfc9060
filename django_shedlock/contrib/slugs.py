"""Names of locks as the slugs of monitors, for Sentry and for pings."""

import re
from hashlib import sha256

SLUG_MAX_LENGTH = 50
"""Sentry cuts longer ones."""


def slug_of(name: str) -> str:
    """
    Return the name in lower-case letters, digits, "-" and "_", as services want it.

    What does not fit, or has nothing to keep, is told apart by a part of its hash.
    """
    slug = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")
    if 0 < len(slug) <= SLUG_MAX_LENGTH and not slug.isdecimal():
        return slug
    return f"{slug[:41] or 'lock'}-{sha256(name.encode()).hexdigest()[:8]}"
