"""The hosts of the soak of the beats: each runs one beat, by a clock of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil

from benchmarks.soak.beats.place import Place
from benchmarks.soak.beats.works import (
    EXIT_TIMEOUT_SECONDS,
    KILL_AFTER_SECONDS,
    STOP_TIMEOUT_SECONDS,
)
from benchmarks.soak.journal import Journal
from tests.support.paths import ROOT
from tests.support.proxies import Proxy
from tests.support.zookeeper_servers import libfaketime

MANAGE = [sys.executable, "-m", "benchmarks.soak.beats.project.manage"]
FIRST_LOOK = "Starting these jobs"
"""What a beat prints when it has looked for the first time."""
END_SLACK_SECONDS = 10
"""For so long the end of a beat may be late on a busy machine."""
LONGEST_END_SECONDS = (
    STOP_TIMEOUT_SECONDS + KILL_AFTER_SECONDS + EXIT_TIMEOUT_SECONDS + END_SLACK_SECONDS
)


def clock_set(seconds: int) -> dict[str, str]:
    """Return the environment of a process whose wall clock is that far off."""
    library = libfaketime()
    if library is None or not seconds:
        return {}
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


class Host:
    """A host whose network to the store is ``link``."""

    def __init__(
        self,
        name: str,
        link: Proxy,
        database: dict[str, Any],
        journal: Path,
        *,
        jobs: int,
        ahead_seconds: int,
        broken: str | None = None,
    ):
        self.name = name
        self.link = link
        self._database = {**database, "HOST": "127.0.0.1", "PORT": str(link.port)}
        self._path = journal
        self._journal = Journal(journal)
        self._jobs = jobs
        self._ahead = ahead_seconds
        self._broken = broken
        self._log = journal.with_name(f"log of {name}")
        self._output: IO[bytes] = self._log.open("ab")
        self._beat: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._is_ready = False
        self._is_killed = False
        self._stop_count = 0
        self.ending_at: float | None = None
        """When its beat must have ended, if it was asked to."""

    def command(self, version: int, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command of the project on this host."""
        where = (self._database, str(self._path), self._broken)
        place = Place(self.name, version, *where)
        return subprocess.Popen(
            [*MANAGE, "shedlock", *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
                **place.as_environment(),
                **clock_set(self._ahead),
            },
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def start(self, version: int) -> None:
        """Start its beat, in this version of the project."""
        self._log_start = self._log.stat().st_size
        at = time.monotonic()
        self._is_ready = self._is_killed = False
        self._stop_count = 0
        self.ending_at = None
        self._beat = self.command(
            version,
            "beat",
            f"--jobs={self._jobs}",
            f"--stop-timeout={STOP_TIMEOUT_SECONDS}s",
            f"--kill-after={KILL_AFTER_SECONDS}s",
        )
        self._write("started", at=at, version=version)

    @property
    def is_running(self) -> bool:
        """Whether it has a beat that runs."""
        return self._beat is not None and self._beat.poll() is None

    @property
    def pid(self) -> int:
        """The process of its beat."""
        assert self._beat is not None
        return self._beat.pid

    def note_first_look(self) -> None:
        """Let the journal have when the beat has looked for the first time."""
        if self._is_ready or not self.is_running:
            return
        with self._log.open(errors="replace") as lines:
            lines.seek(self._log_start)
            self._is_ready = FIRST_LOOK in lines.read()
        if self._is_ready:
            self._write("ready")

    def note_end(self) -> bool:
        """Let the journal have if the beat has ended since; return whether it has."""
        if self._beat is None or self._beat.poll() is None:
            return False
        status = self._beat.returncode
        # Before it has handlers, and at its very end, a signal ends it at once.
        has_handlers = self._is_ready and self._stop_count < 2
        usual = {0} if has_handlers else {0, -signal.SIGTERM}
        is_asked = self._is_killed or (self.ending_at is not None and status in usual)
        self._write("gone", status=status, is_asked=is_asked, words=self._last_words())
        self._beat = None
        return True

    def stop(self, pid: int | None = None) -> None:
        """Ask the beat to end, unless it is another one than that process."""
        if self.is_running and pid in {None, self.pid}:
            self._write("stopping")
            self._stop_count += 1
            if self.ending_at is None:
                self.ending_at = time.monotonic() + LONGEST_END_SECONDS
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the beat alone."""
        self._kill([self.pid], "beat")

    def crash(self) -> None:
        """Kill all that runs on the host; the beat first, so that it sees nothing."""
        processes = [self.pid, *(each.pid for each in self._descendants())]
        self._kill(processes, "host")
        # What was started meanwhile belongs to the host as well.
        others = [each for each in self._orphans() if each not in processes]
        self._kill(others, "host")

    def kill_child(self, pid: int) -> None:
        """Kill one child of the beat, and nothing that it has started."""
        self._kill([pid], "child")

    def children(self) -> list[int]:
        """Return the processes that the beat has started."""
        try:
            return [each.pid for each in psutil.Process(self.pid).children()]
        except psutil.NoSuchProcess:
            return []

    def close(self) -> None:
        """End what runs; close the log."""
        if self._beat is not None and self._beat.poll() is None:
            self.crash()
            self._beat.wait()
        self._output.close()

    def _kill(self, pids: list[int], what: str) -> None:
        self._write("killing", pids=pids, of=what)
        if what != "child":
            self._is_killed = True
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _descendants(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _orphans(self) -> list[int]:
        # All of them are in the beat's session, which nobody else can be in.
        found = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.Error):
                if os.getsid(process.pid) == self.pid:
                    found.append(process.pid)
        return found

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[self._log_start :][-2000:]

    def _write(self, what: str, **details: Any) -> None:
        self._journal.write(what, host=self.name, pid=self.pid, **details)
