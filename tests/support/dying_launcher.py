"""The launcher of ``shedlock run``, killed as soon as it has forked the command."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAUNCHER = ROOT / "django_shedlock" / "processes" / "launcher.py"

fork = os.fork


def fork_and_die() -> int:
    """Leave the child alone."""
    if fork():
        os.kill(os.getpid(), signal.SIGKILL)
    return 0


os.fork = fork_and_die
sys.argv[0] = str(LAUNCHER)
runpy.run_path(str(LAUNCHER), run_name="__main__")
