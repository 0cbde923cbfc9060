"""The worker processes of the demo, told by lines what to run and when."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"


class Worker:
    """A process of its own that fires a job when told to, as a host's cron does."""

    def __init__(self, name: str):
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str(MANAGE), "demo_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "EXAMPLE_WORKER": name},
        )
        self._expect("ready")

    def fire(self, job: str, tick: str) -> None:
        """Let the worker run ``job`` now; ``outcome()`` tells what became of it."""
        assert self.process.stdin
        self.process.stdin.write(f"{job} {tick}\n")
        self.process.stdin.flush()

    def outcome(self) -> str:
        """Return what the job returned, or ``skipped``."""
        return self._line()

    def kill(self) -> None:
        """End the worker as a dying host does: at once, and without a word."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def _expect(self, word: str) -> None:
        line = self._line()
        if line != word:
            raise RuntimeError(f"{self.name} said {line!r} instead of {word!r}")

    def _line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()


@contextmanager
def workers(*names: str) -> Iterator[list[Worker]]:
    """Run one worker of each name, and leave none behind."""
    started: list[Worker] = []
    try:
        for name in names:
            started.append(Worker(name))
        yield started
    finally:
        for worker in started:
            worker.close()
