"""
A host whose clock is wrong: ``faketime -f +1d python -m`` this ``DATABASE SCHEDULE``.

It does what each line of its input says, and answers with a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import tests.support.preload  # noqa: F401


class SkewedHost:
    """Such a host, as a test asks it."""

    def __init__(self, offset: str, database: str, schedule: str):
        module = [sys.executable, "-m", __name__, database, schedule]
        self._process = subprocess.Popen(
            ["faketime", "-f", offset, *module],
            env={**os.environ, "FAKETIME_DONT_FAKE_MONOTONIC": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str) -> dict[str, Any]:
        """Return what came of ``execute``, ``take`` or a subcommand of ``shedlock``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def end(self) -> None:
        """End it, as nothing more is to be done."""
        self._process.communicate()


def main(database: str, schedule: str) -> None:
    """Answer until the input ends."""
    from django.db import connections

    from django_shedlock import current_lock, scheduler_lock
    from django_shedlock.locks.status import LockHolder
    from django_shedlock.providers import get_provider
    from tests.support.commands import call
    from tests.support.jobs import only_jobs_of
    from tests.support.locks import configure, try_from

    def take() -> str:
        """Return who holds the lock after this host has tried to acquire it."""
        found = try_from(get_provider(), configure())
        return found.locked_by if isinstance(found, LockHolder) else "this host"

    connections["default"].settings_dict["NAME"] = database
    ran: list[str] = []
    commands: dict[str, Callable[[], Any]] = {"take": take}
    with only_jobs_of():

        @scheduler_lock("job", lock_at_most_for="1m", schedule=schedule)
        def job() -> None:
            ran.append(str(current_lock().tick))

        commands["execute"] = job
        for line in sys.stdin:
            ran.clear()
            command = commands.get(line.strip())
            result = call(*line.split()) if command is None else command()
            answer = {"clock": time.time(), "ran": ran, "result": result}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
