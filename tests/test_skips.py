"""The skips that a process counts."""

from __future__ import annotations

from collections import Counter

import pytest

from django_shedlock import skips


def test_skips_are_counted_for_each_lock_until_taken() -> None:
    """A count belongs to one provider's lock, and begins again when it is read."""
    for provider, name in [("a", "job"), ("a", "job"), ("b", "job"), ("a", "other")]:
        skips.add(provider, name)
    assert [skips.take("a", "job"), skips.take("a", "job")] == [2, 0]
    assert [skips.take("b", "job"), skips.take("a", "other")] == [1, 1]


def test_names_without_end_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond the limit new names are not counted, and known ones are."""
    monkeypatch.setattr(skips, "_counts", Counter())
    monkeypatch.setattr(skips, "MOST_NAMES", 1)
    for name in ["first", "second", "first"]:
        skips.add("a", name)
    assert [skips.take("a", "first"), skips.take("a", "second")] == [2, 0]
