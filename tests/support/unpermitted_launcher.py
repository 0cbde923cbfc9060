"""The launcher of ``shedlock run``; its command runs as another user, as with sudo."""

from __future__ import annotations

import errno
import os
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAUNCHER = ROOT / "django_shedlock" / "processes" / "launcher.py"


def refuse(pid: int, number: int) -> None:
    """Fail as the kernel does; print a line for each signal."""
    os.write(1, b"failed\n")
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


os.kill = refuse
sys.argv[0] = str(LAUNCHER)
runpy.run_path(str(LAUNCHER), run_name="__main__")
