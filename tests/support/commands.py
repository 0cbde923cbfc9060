"""``manage.py shedlock`` in this process."""

from __future__ import annotations

import io

from django.core.management import CommandError, call_command


def run(*args: str) -> str:
    """Call the command with these arguments, and return what it prints."""
    out = io.StringIO()
    call_command("shedlock", *args, stdout=out)
    return out.getvalue()


def call(*args: str) -> tuple[int, str, str]:
    """Return the exit status, and what is printed on stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("shedlock", *args, stdout=out, stderr=err)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue(), err.getvalue()
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    return 0, out.getvalue(), err.getvalue()
