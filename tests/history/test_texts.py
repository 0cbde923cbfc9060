"""Texts as the history keeps them: cut to their columns."""

from __future__ import annotations

from django_shedlock.history.texts import fitting
from django_shedlock.models import LockRun


def test_texts_fit_in_their_columns() -> None:
    """In each database, with characters that it refuses written otherwise."""
    cut = fitting(LockRun, operator="é" * 300, reason="a\0" + "b" * 3000)
    assert cut["operator"] == "é" * 255
    assert cut["reason"] == "a\\0" + "b" * 1997
