"""What connects other software. Here: what several of its apps need."""

import atexit
from collections.abc import Callable
from multiprocessing import parent_process


def at_end_of_child(work: Callable[[], object]) -> None:
    """Call ``work``, once, at the end of a process that a beat has started."""
    if parent_process() is not None:  # it calls nothing that its parent registered
        atexit.unregister(work)
        atexit.register(work)
