"""Types of arguments, which let argparse refuse what they can't read."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import timedelta

from django_shedlock.configuration import ZERO
from django_shedlock.durations import parse_duration


def duration(text: str) -> timedelta:
    """Return a duration that is not negative."""
    try:
        parsed = parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if parsed < ZERO:
        raise ArgumentTypeError(f"{text!r} must not be negative")
    return parsed


def interval(text: str) -> float:
    """Return the seconds of a duration that is not zero, either."""
    parsed = duration(text)
    if not parsed:
        raise ArgumentTypeError(f"{text!r} must be positive")
    return parsed.total_seconds()


def positive(text: str) -> int:
    """Return a whole number from 1 on."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def status(text: str) -> int:
    """Return an exit status."""
    if not text.isascii() or not text.isdecimal() or int(text) > 255:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 to 255")
    return int(text)
