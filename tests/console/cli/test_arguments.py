"""The arguments that several subcommands have."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from django_shedlock.cli.base import positive


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("2", 2), ("010", 10)])
def test_positive_number(text: str, number: int) -> None:
    """One is the least number of rows to show, or of jobs at once."""
    assert positive(text) == number


@pytest.mark.parametrize(
    "text", ["0", "-1", "+1", "1.5", "1e3", "", " 1", "ten", "²", "٣"]
)
def test_no_positive_number(text: str) -> None:
    """Anything else is refused, and named."""
    with pytest.raises(ArgumentTypeError, match="is not a positive number") as refused:
        positive(text)
    assert str(refused.value).startswith(repr(text))
