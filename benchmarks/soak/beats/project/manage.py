"""The command line of the soak's project: ``python -m`` this module."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import time

from django.core.management import execute_from_command_line

from benchmarks.soak.beats.place import Place

PR_SET_PDEATHSIG = 1


def sleep(seconds: float) -> None:
    """Sleep by another call of the kernel than ``time.sleep()``."""
    select.select([], [], [], seconds)


def main() -> None:
    """Run a command on the host that the environment names."""
    place = Place.of_environment()
    # The only way to have several hosts on one machine without being root.
    socket.gethostname = lambda: place.host
    if "FAKETIME" in os.environ:  # its library refuses the usual call
        time.sleep = sleep
    # The soak may be killed; nothing of it shall stay. Forks do not inherit this.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    module = "benchmarks.soak.beats.project.settings"
    os.environ["DJANGO_SETTINGS_MODULE"] = module
    execute_from_command_line(["manage.py", *sys.argv[1:]])


if __name__ == "__main__":
    main()
