"""What a command inherits: what this process itself was started with."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from django.conf import settings
from django.db import connections

STARTED_WITH = Path("/proc/self/environ")
CHANGED = (b"DJANGO_SETTINGS_MODULE", b"LC_CTYPE", b"TZ")
"""Variables that ``manage.py``, Python (PEP 538) and Django's settings set."""
DESCRIPTORS = "/dev/fd"
STANDARD = 2
"""The last of the standard streams."""


def environment() -> dict[bytes, bytes]:
    """
    Return the environment, in which those of ``CHANGED`` are as they were at the start.

    Where the system does not tell, only the ``TZ`` of the settings is left out.
    """
    now = _named(os.environb)
    try:
        started_with = _parsed(STARTED_WITH.read_bytes())
    except OSError:
        if now.get(b"TZ") == os.fsencode(settings.TIME_ZONE or ""):
            del now[b"TZ"]
        return now
    kept = {name: value for name, value in now.items() if name not in CHANGED}
    given = {name: started_with[name] for name in CHANGED if name in started_with}
    return kept | given


def descriptors() -> list[int]:
    """
    Return the open file descriptors above 2 that a new program inherits.

    Without Django's connections: MySQL's client lets its sockets be inherited. Ask also
    before the package's own connections are made.
    """
    try:
        numbers = [int(name) for name in os.listdir(DESCRIPTORS)]  # noqa: PTH208
    except OSError:
        return []
    left_out = {*range(STANDARD + 1), *_sockets()}
    return [number for number in numbers if number not in left_out and _is_open(number)]


def _sockets() -> Iterator[int]:
    for wrapper in connections.all(initialized_only=True):
        fileno = getattr(wrapper.connection, "fileno", None)
        if fileno is not None:
            with suppress(Exception):  # each driver has its own error for a closed one
                yield fileno()


def _parsed(block: bytes) -> dict[bytes, bytes]:
    variables = (entry.partition(b"=") for entry in block.split(b"\0"))
    return _named({name: value for name, separator, value in variables if separator})


def _named(variables: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    # Python can't pass on a variable without a name.
    return {name: value for name, value in variables.items() if name}


def _is_open(number: int) -> bool:
    with suppress(OSError):  # the one with which the others were listed
        return os.get_inheritable(number)
    return False
