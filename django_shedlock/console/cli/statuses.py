"""The exit statuses of ``manage.py shedlock``."""

from __future__ import annotations

from enum import IntEnum

from django_shedlock.wrapper import launcher


class ExitStatus(IntEnum):
    """
    One status for each kind of error, whatever the subcommand.

    ``check`` ends with its verdict: 0, 1, or 2 as monitoring agents expect it. ``run``
    ends with the status of its command, or with one of those from 123 on.
    """

    DONE = 0
    FAILED = 1
    WRONG_CALL = 2
    RUNNING = 3
    UNKNOWN = 4
    NOT_HELD = 5
    NOT_MAILED = 6
    PAUSED = 7
    LOST = 123
    STORE_FAILED = 125
    CANNOT_START = launcher.CANNOT_START
    NOT_FOUND = launcher.NOT_FOUND
    UNREAD = 141
    """A shell's exit status for SIGPIPE: the output's reader has stopped."""
