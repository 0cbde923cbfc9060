"""Who intervenes from the command line, and why."""

from __future__ import annotations

import getpass
import os
from argparse import ArgumentParser


def add_reason(parser: ArgumentParser) -> None:
    """Let the operator say why."""
    parser.add_argument(
        "--reason", default="", help="why, for the log and whoever gets the signal"
    )


def operator() -> str:
    """Return the name of the system's user; a container's may have a number only."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
