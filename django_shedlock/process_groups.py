"""Groups of processes: a child that leads one, and what it has started."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
STAT = re.compile(rb"\d+ \(.*\) (?P<state>\w) \d+ (?P<group>\d+) ", re.DOTALL)
"""How a line of proc_pid_stat(5) begins; a program's name may have any byte."""
ENDED = {b"Z", b"X"}


def is_empty(group: int) -> bool:
    """
    Return whether no process of the group runs, whose leader was waited for.

    The group's id is given to no other while it has a member, so don't use it once
    there is none.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's process
        return False
    # In a container the first process may wait for no orphan, so that they stay.
    states = set(_states(group))
    return bool(states) and states <= ENDED


def _states(group: int) -> Iterator[bytes]:
    # Without /proc nothing is known; then all are taken to run.
    for path in PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            stat = STAT.match(path.read_bytes())
            if stat is not None and int(stat["group"]) == group:
                yield stat["state"]
