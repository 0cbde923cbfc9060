"""Turn names of locks into the slugs of monitors, for Sentry and for pings."""

import re
from hashlib import sha256


def slug_of(name: str, max_length: int = 50) -> str:
    """
    Return the name in lower-case letters, digits, "-" and "_", as services want it.

    Sentry cuts a slug that is longer than 50 characters. A name that makes a longer
    slug, or none, ends in a part of its hash, so that its slug differs from others.
    """
    slug = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")
    if 0 < len(slug) <= max_length and not slug.isdecimal():
        return slug
    ending = f"-{sha256(name.encode()).hexdigest()[:8]}"
    return (slug[: max_length - len(ending)] or "lock") + ending
