"""What holds the locks under which a process was started: it inherits their names."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

HELD_BY_VARIABLE = "SHEDLOCK_HELD_BY"


def inherited_identities() -> list[str]:
    """
    Return the identities of the holders that started this process, if any.

    It has those that this process itself passes to its children, too.
    """
    return os.environ.get(HELD_BY_VARIABLE, "").split()


@contextmanager
def passed_to_children(locked_by: str) -> Iterator[None]:
    """Let each process that the body starts inherit the identity."""
    if locked_by in inherited_identities():  # the caller has re-entered the lock
        yield
        return
    pass_to_children(locked_by)
    try:
        yield
    finally:
        pass_no_more(locked_by)


def pass_to_children(identity: str) -> None:
    """Let each process that is started from now on inherit the identity."""
    _set_identities([*inherited_identities(), identity])


def pass_no_more(identity: str) -> None:
    """Let no process inherit the identity any more."""
    # Not what it was before: another body may have begun or ended meanwhile.
    _set_identities([each for each in inherited_identities() if each != identity])


def _set_identities(identities: list[str]) -> None:
    if identities:
        os.environ[HELD_BY_VARIABLE] = " ".join(identities)
    else:
        os.environ.pop(HELD_BY_VARIABLE, None)
