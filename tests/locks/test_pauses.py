"""The identity of a pause, which every store keeps and people read."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockHolder

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("operator", "reason", "parsed"),
    [
        ("alice", "the mail server moves", Pause("alice", "the mail server moves")),
        ("alice", "see: (ticket 7)", Pause("alice", "see: (ticket 7)")),
        ("", "", Pause("", "no reason given")),
        ("a: b", " one\nline\0", Pause("a b", "one line")),
    ],
)
def test_identity_of_a_pause_tells_who_and_why(
    operator: str, reason: str, parsed: Pause
) -> None:
    """The identity of a pause is a unique, printable line with operator and reason."""
    identity = Pause(operator, reason).identity()
    assert identity != Pause(operator, reason).identity()
    assert identity.isprintable()
    assert Pause.parse(identity) == parsed
    assert LockHolder(identity, HOUR).reason == identity


def test_identity_of_a_pause_fits_its_column() -> None:
    """What is too long is cut, and shown to be."""
    identity = Pause("a" * 300, "b" * 300).identity()
    assert len(identity) == 255
    paused = Pause.parse(identity)
    assert paused is not None
    assert paused.operator == "a" * 100
    assert paused.reason.endswith("b…")


def test_other_holders_are_no_pauses() -> None:
    """Pause.parse() returns None for the identities of other holders."""
    assert Pause.parse("web-1:7:a") is None
    assert Pause.parse("") is None
