"""
Additions to a set under a lock, in the manner of Jepsen: a read, a pause and a write.

An element is the fencing token of the lock under which it was added. So a set also
tells in which order it was written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum

from django_shedlock import LockLost
from django_shedlock.locks.lock import Lock
from tests.models import ElementSet
from tests.support.history import stale_writes


class Guard(StrEnum):
    """
    What keeps a holder from writing that is late, and does not know it.

    With ``TOKEN`` the row refuses a token below the greatest that it has seen. It has
    to see that of a reader, too: else a late holder may write after the next one's
    read. ``TOKEN_ON_WRITE`` shows that mistake.
    """

    FENCE = "fence"
    TOKEN = "token"
    TOKEN_ON_WRITE = "token-on-write"
    NONE = "none"


def claim(name: str, token: int, **values: object) -> None:
    """Let the row see the token; raise ``LockLost`` if it has seen a greater one."""
    row = ElementSet.objects.filter(name=name, token__lte=token)
    if not row.update(token=token, **values):
        raise LockLost(f"{name!r} was acquired after {token}.")


class Addition:
    """One element on its way into the set that has the name of its lock."""

    def __init__(self, lock: Lock, guard: Guard):
        self.element = lock.fencing_token
        self._lock, self._guard = lock, guard

    def read(self) -> None:
        """Read the set; raise ``LockLost`` if the row knows a later holder."""
        if self._guard is Guard.TOKEN:
            claim(self._lock.name, self.element)
        self._seen = ElementSet.objects.get(name=self._lock.name).elements

    def write(self) -> None:
        """Write what was read, and the element; raise ``LockLost`` if it is late."""
        elements = json.dumps([*json.loads(self._seen), self.element])
        if self._guard is Guard.FENCE:
            self._lock.fence()
        if self._guard in {Guard.FENCE, Guard.NONE}:
            row = ElementSet.objects.filter(name=self._lock.name)
            row.update(elements=elements)
        else:
            claim(self._lock.name, self.element, elements=elements)


def elements_of(name: str) -> list[int]:
    """Return the elements of the set, in the order in which they were added."""
    row = ElementSet.objects.get(name=name)
    return [int(element) for element in json.loads(row.elements)]


def lost_elements(name: str, added: Iterable[int]) -> Iterator[str]:
    """Return which elements a set does not have that its writers know as added."""
    there = elements_of(name)
    missing = sorted({*added} - {*there})
    yield from (f"{name} lost {element} after it was added" for element in missing)
    yield from stale_writes((name, element, element) for element in there)
