"""The text of an error, whatever its ``__str__`` does."""

from __future__ import annotations

import pytest

from django_shedlock.exceptions import message_of
from tests.support.locks import Silent


def test_message() -> None:
    """The message of an error is its text."""
    assert message_of(ValueError("no such file")) == "no such file"


@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt])
def test_message_that_raises(raised: type[BaseException]) -> None:
    """An error without a message is told by what its ``str()`` raises."""
    expected = f"(no message: str() raised {raised.__name__})"
    assert message_of(Silent(raised)) == expected


def test_signal_during_the_message() -> None:
    """Ctrl-C is raised by no ``str()``, so it is not swallowed."""

    class Interrupted(Exception):
        is_first = True

        def __str__(self) -> str:
            if self.is_first:
                self.is_first = False
                raise KeyboardInterrupt
            return "the message"

    with pytest.raises(KeyboardInterrupt):
        message_of(Interrupted())
