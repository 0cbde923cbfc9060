"""``manage.py shedlock`` in this process."""

from __future__ import annotations

import io

from django.core.management import call_command


def run(*args: str) -> str:
    """Call the command with these arguments, and return what it prints."""
    out = io.StringIO()
    call_command("shedlock", *args, stdout=out)
    return out.getvalue()
