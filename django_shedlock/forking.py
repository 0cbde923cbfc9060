"""What a forked child makes anew: mutexes, threads, connections and clients."""

import os
from typing import Protocol, TypeVar
from weakref import WeakSet

from django_shedlock.signals import logger


class Renewable(Protocol):
    """Something that a forked child must not share with its parent."""

    def forget(self) -> None:
        """Be as new: without the parent's threads, sockets and mutexes."""


R = TypeVar("R", bound=Renewable)

# A child has none of its parent's threads, and must not share its sockets.
_renewed: WeakSet[Renewable] = WeakSet()


def renewed_in_child(thing: R) -> R:
    """Return ``thing``; its ``forget()`` is called in each child forked later."""
    _renewed.add(thing)
    return thing


def _renew_all() -> None:
    for thing in list(_renewed):
        try:
            thing.forget()
        except Exception:  # the others must still be renewed
            logger.exception("A forked child could not renew %r.", thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
