"""Patterns of names, such as ``"import:*"``."""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

WILDCARD = re.compile(r"\*|\?|\[!?]?[^]]*]?")
"""What a pattern has instead of characters, as the ``*`` in ``"import:*"``."""


def matches_any(name: str, patterns: Collection[str]) -> bool:
    """Return whether the name is one of the patterns, as "a[b]" may, or matches one."""
    return name in patterns or any(fnmatchcase(name, each) for each in patterns)
