"""The worker processes of the demo; each line of input starts a job."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
READY, RAN, SKIPPED, FAILED = "ready", "ran", "skipped", "failed"
PATIENCE = 240
"""Seconds after which the demo fails because something is wrong."""


class WorkerFailed(Exception):
    """A worker ended, hung, or gave a wrong answer: see its own traceback."""


class Worker:
    """A separate process that fires a job on request, as a host's cron does."""

    def __init__(self, name: str):
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str(MANAGE), "demo_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "EXAMPLE_WORKER": name},
            # Only the demo gets Ctrl-C, and then ends its workers.
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        """Return when the worker waits for its first job."""
        self._answer({READY})

    def fire(self, trigger: str, tick: str) -> None:
        """Let the worker start a job now; ``outcome()`` returns the result."""
        assert self.process.stdin
        self.process.stdin.write(f"{trigger} {tick}\n")
        self.process.stdin.flush()

    def outcome(self) -> str:
        """Return whether the job ran, failed, or was skipped."""
        return self._answer({RAN, SKIPPED, FAILED})

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let the worker stand still meanwhile, as a host that is suspended."""
        # A stopped worker would not notice the end of the demo. The shell does, by the
        # end of its input.
        guard = subprocess.Popen(
            ["sh", "-c", f"read line; kill -KILL {self.process.pid}"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self.process.send_signal(signal.SIGSTOP)
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)
            guard.kill()
            guard.communicate()

    def kill(self) -> None:
        """End the worker as a host that loses power: at once, without clean-up."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End the worker, even in the middle of a job."""
        self.process.kill()
        self.process.communicate()

    def _answer(self, expected: set[str]) -> str:
        # There is one answer to each line, so the reader's buffer is empty.
        assert self.process.stdout
        answered, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        answer = self.process.stdout.readline().strip() if answered else "nothing"
        if answer not in expected:
            words = " or ".join(sorted(expected))
            raise WorkerFailed(f"{self.name} said {answer!r} instead of {words}.")
        return answer


@contextmanager
def workers(*names: str) -> Iterator[list[Worker]]:
    """Run one worker for each name, and end them all."""
    team: list[Worker] = []
    try:
        for name in names:
            team.append(Worker(name))
        for worker in team:
            worker.wait_until_ready()
        yield team
    finally:
        for worker in team:
            worker.close()
