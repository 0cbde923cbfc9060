"""What a program inherits from the process that starts it, besides its streams."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from django.conf import settings
from django.db import connections


def initial_environment(
    started_with_file: Path = Path("/proc/self/environ"),
) -> dict[str, str]:
    """
    Return the environment without what Django, ``manage.py`` and Python have changed.

    If the system does not keep it in ``started_with_file``, only the ``TZ`` of the
    settings is left out.
    """
    environment = dict(os.environ)
    environment.pop("", None)  # a program can't be started with it
    try:
        entries = os.fsdecode(started_with_file.read_bytes()).split("\0")
    except OSError:
        if environment.get("TZ") == settings.TIME_ZONE:
            del environment["TZ"]
        return environment
    started_with = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    for name in ("DJANGO_SETTINGS_MODULE", "LC_CTYPE", "TZ"):
        environment.pop(name, None)
        if name in started_with:
            environment[name] = started_with[name]
    return environment


def open_standard_streams() -> None:
    """Give the numbers of closed streams to ``/dev/null``, and to no other file."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)


def stream_for_program(stream: TextIO | None) -> int | None:
    """Return a standard stream for ``subprocess``; nothing if it was always closed."""
    # Another file of this process may have the number of such a stream by now.
    return subprocess.DEVNULL if stream is None else None


def inheritable_files(folder: str = "/dev/fd") -> set[int]:
    """
    Return the open file descriptors above 2 that a new program inherits.

    ``folder`` lists the descriptors of this process. Django's connections are left out,
    because MySQL's client lets its sockets be inherited. So call this before the
    package makes connections of its own.
    """
    numbers: set[int] = set()
    with suppress(OSError):
        numbers = {int(name) for name in os.listdir(folder)}  # noqa: PTH208
    numbers -= {0, 1, 2}
    for wrapper in connections.all(initialized_only=True):
        with suppress(Exception):  # each driver raises another error without a socket
            numbers.discard(wrapper.connection.fileno())
    inheritable = set()
    for number in numbers:
        with suppress(OSError):  # listing the folder opened this one
            if os.get_inheritable(number):
                inheritable.add(number)
    return inheritable
