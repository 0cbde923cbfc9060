"""Names that match a shell's patterns, as in ``"import:*"``."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

from django.db.models import Q

WILDCARD = re.compile(r"\*|\?|\[!?]?[^]]*]?")


def matches(name: str, patterns: Collection[str]) -> bool:
    """Return whether the name is, or matches, one of the patterns; or there is none."""
    return not patterns or matches_any(name, patterns)


def matches_any(name: str, patterns: Collection[str]) -> bool:
    """Return whether the name is, or matches, one of the patterns."""
    # A name may itself have what a pattern gives a meaning to, as "[".
    return name in patterns or any(fnmatchcase(name, each) for each in patterns)


def may_match(patterns: Collection[str]) -> Q:
    """Return a condition on ``name`` that all matching names fulfil, and few others."""
    condition = Q()
    for pattern in patterns:
        condition |= Q(name=pattern)
        if WILDCARD.search(pattern):
            condition |= _parts(pattern)
    return condition


def _parts(pattern: str) -> Q:
    beginning, *others = WILDCARD.split(pattern)
    parts = Q(name__startswith=beginning)
    for part in filter(None, others):
        parts &= Q(name__contains=part)
    return parts
