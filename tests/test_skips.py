"""The skips that a process counts."""

from __future__ import annotations

import os
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


def test_forked_child_has_skipped_nothing() -> None:
    """A child begins at zero, also if its parent was counting at that moment."""
    skips.add("a", "job")
    with skips._mutex:
        child = os.fork()
        if child == 0:
            os._exit(skips.take("a", "job"))
    _, status = os.waitpid(child, 0)
    assert (os.waitstatus_to_exitcode(status), skips.take("a", "job")) == (0, 1)
