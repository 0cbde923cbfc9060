"""The acquisitions under which a process was started: it inherits their identities."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

HELD_BY_VARIABLE = "SHEDLOCK_HELD_BY"


def inherited_identities() -> list[str]:
    """Return the identities of the acquisitions that started this process, if any."""
    return os.environ.get(HELD_BY_VARIABLE, "").split()


@contextmanager
def passed_to_children(locked_by: str) -> Iterator[None]:
    """Let each process that the body starts inherit the identity."""
    before = inherited_identities()
    if locked_by in before:  # the caller has re-entered the lock
        yield
        return
    _pass_on([*before, locked_by])
    try:
        yield
    finally:
        # Not what it was before: another body may have begun or ended meanwhile.
        _pass_on([each for each in inherited_identities() if each != locked_by])


def _pass_on(identities: list[str]) -> None:
    if identities:
        os.environ[HELD_BY_VARIABLE] = " ".join(identities)
    else:
        os.environ.pop(HELD_BY_VARIABLE, None)
