"""Integrations of other software. This module has what several of them need."""

import atexit
from collections.abc import Callable
from multiprocessing import parent_process


def at_end_of_child(work: Callable[[], object]) -> None:
    """Call ``work`` once at the end of this process, if a beat has started it."""
    if parent_process() is not None:  # such a process calls no functions of its parent
        atexit.unregister(work)
        atexit.register(work)
