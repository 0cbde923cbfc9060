"""Java's ShedLock, by the statements that it sends through PostgreSQL's driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.tables import LeftOut, Timed

SOURCE = Path(__file__).with_name("ShedLock.java")


class Java(Timed):
    """One of its ways: to acquire and release (``pair``), or to fail (``try``)."""

    def __init__(self, process: subprocess.Popen[str], command: str):
        self._process = process
        self._command = command

    def __call__(self) -> float:
        """Return the seconds by Java's own clock."""
        print(self._command, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline() if self._process.stdout else ""
        return int(answer) / 1e9


def ways(
    settings: dict[str, Any], jdbc: str, warm_up: int, stack: ExitStack
) -> tuple[Java | LeftOut, Java | LeftOut]:
    """Return both ways, or why they are left out. Java compiles what it often does."""
    reason = ""
    if shutil.which("javac") is None:
        reason = "no JDK"
    elif not Path(jdbc).exists():
        reason = "no driver: give --jdbc"
    elif settings["HOST"].startswith("/"):
        reason = "its driver needs TCP"
    if reason:
        return LeftOut(reason), LeftOut(reason)
    process = stack.enter_context(start(settings, jdbc))
    if process.stdout is None or process.stdout.readline() != "ready\n":
        return LeftOut("Java failed"), LeftOut("Java failed")
    both = Java(process, "pair"), Java(process, "try")
    for way in both * warm_up:
        way()
    return both


def start(settings: dict[str, Any], jdbc: str) -> subprocess.Popen[str]:
    """Add its record, and start Java."""
    from django_shedlock import execute

    execute(list, "java", lock_at_most_for="1m", history=False)
    host, port = settings["HOST"] or "127.0.0.1", settings["PORT"] or 5432
    database = f"{host}:{port}/{settings['NAME']}"
    url = f"jdbc:postgresql://{database}?connectTimeout=10&socketTimeout=10"
    # With Django's columns, which have a time zone, Java's own has to be UTC.
    # The password is in the environment, since anybody can see a command line.
    return subprocess.Popen(  # noqa: S603
        ["java", "-Duser.timezone=UTC", "-cp", jdbc, str(SOURCE), url],  # noqa: S607
        env={
            **os.environ,
            "PGUSER": settings["USER"],
            "PGPASSWORD": settings["PASSWORD"],
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
