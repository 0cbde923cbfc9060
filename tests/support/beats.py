"""``shedlock beat`` on hosts whose clock, and their store's, is a file of the test."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from django.test import override_settings

from django_shedlock import current_lock, scheduler_lock
from django_shedlock.beat import loop as beat
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.status import LockStatus
from django_shedlock.processes.process_signals import ProcessSignals
from django_shedlock.providers.base import ALL_LOCKS, LockQuery
from django_shedlock.providers.database import DatabaseLockProvider
from tests.support.clocks import store_clock
from tests.support.jobs import only_jobs_of
from tests.support.runs import is_alive
from tests.support.waiting import NEVER_SECONDS, wait_for
from tests.support.warm import Command

PAUSE = 0.01
"""Seconds between two looks at the file, whatever the beat would wait for."""
JOB_END_SECONDS = 5
"""The jobs of a host that was killed go on for so long."""
KEPT: list[object] = []
"""What a host's process must not lose."""
STUBBORN = 'trap "" TERM; sleep 1000 & wait'


class Beats:
    """Hosts that start one job each minute of a clock that the test sets."""

    def __init__(self, folder: Path, stack: ExitStack):
        self.folder = folder
        self._stack = stack
        self.now = datetime.now(UTC).replace(second=30, microsecond=0)
        self.step(timedelta(0))

    def start(
        self,
        *args: str,
        body: Callable[[Path], None] | None = None,
        prepare: Callable[[], object] = bool,
        options: dict[str, Any] | None = None,
    ) -> Command:
        """Start one more host, which calls ``prepare`` before its beat begins."""
        ours = partial(_prepare, self.folder, body or _write, options)
        started = Command("shedlock", "beat", *args, prepare=[ours, prepare])
        self._stack.callback(_end, started)
        return started

    def step(self, by: timedelta = timedelta(minutes=1)) -> datetime:
        """Set the clock forward; return the newest tick."""
        self.now += by
        new = self.folder / "new"
        new.write_text(self.now.isoformat())
        new.replace(self.folder / "clock")
        return self.now.replace(second=0)

    def hourly(self) -> dict[str, Any]:
        """Return the options of a job whose next tick comes within a minute."""
        following = self.now + timedelta(minutes=1)
        return {"schedule": f"{following.minute} * * * *"}

    def ticks(self) -> list[datetime]:
        """Return the ticks of the runs so far, in their order."""
        ledger = self.folder / "ledger"
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        return [datetime.fromisoformat(line) for line in lines]


def _end(host: Command) -> None:
    jobs: list[int] = []
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(host.pid).children(recursive=True)
        jobs += (each.pid for each in family)
    host.kill()
    try:
        wait_for(lambda: not any(map(is_alive, jobs)), JOB_END_SECONDS)
    except AssertionError:  # the test has failed before it let them end
        for job in filter(is_alive, jobs):
            with suppress(ProcessLookupError):
                os.kill(job, signal.SIGKILL)
    # When the last of them has ended, nobody can write any more.
    host.communicate()
    host.end()


@contextmanager
def beats_in(folder: Path) -> Iterator[Beats]:
    """Give the body hosts, and end them after it."""
    with ExitStack() as stack:
        yield Beats(folder, stack)


def when_it_waits(host: Command) -> str:
    """Wait until the host waits for its next tick; return what it says at start."""
    lines: list[str] = []
    while not lines or "next at" not in lines[-1]:
        lines.append(host.stdout.readline())
        assert lines[-1], host.communicate()
    return "".join(lines)


def _prepare(
    folder: Path, body: Callable[[Path], None], options: dict[str, Any] | None
) -> None:
    def now() -> datetime:
        return datetime.fromisoformat((folder / "clock").read_text())

    def wait_shortly(signals: ProcessSignals, seconds: float) -> None:
        wait(signals, min(seconds, PAUSE))

    def may_be_away(
        provider: DatabaseLockProvider, query: LockQuery = ALL_LOCKS
    ) -> Iterator[LockStatus]:
        if (folder / "away").exists():
            with (folder / "asked").open("a") as asked:
                asked.write("!")
            raise LockProviderError("away")
        return read(provider, query)

    read = DatabaseLockProvider.statuses
    wait = ProcessSignals.wait
    patches: list[Any] = [
        override_settings(
            INSTALLED_APPS=["django_shedlock", "django_shedlock.beat"],
            SHEDLOCK_GRACE="1m",
        ),
        only_jobs_of(),
        store_clock(now),
        patch.object(beat, "uptime", lambda: now().timestamp()),
        patch.object(ProcessSignals, "wait", wait_shortly),
        patch.object(DatabaseLockProvider, "statuses", may_be_away),
    ]
    for each in patches:
        each.__enter__()
    options = {"schedule": "* * * * *", **(options or {})}
    job = scheduler_lock("each minute", **options)(partial(_run, body, folder))
    KEPT.extend([job, *patches])


def _run(body: Callable[[Path], None], folder: Path) -> None:
    body(folder)


def _write(folder: Path) -> None:
    with (folder / "ledger").open("a") as ledger:
        tick = current_lock().tick
        assert tick is not None
        print(tick.astimezone(UTC).isoformat(), file=ledger)


def write_and_wait(folder: Path) -> None:
    """Be a job that goes on until it is told to end, and then tidies up."""
    try:
        _write(folder)  # the test sends its signal as soon as it sees that
        while True:  # a signal just before a pause() is handled after the next one
            time.sleep(PAUSE)
    finally:
        (folder / "tidied up").touch()


def write_and_wait_for_leave(folder: Path) -> None:
    """Be a job that goes on until the test lets it end."""
    _write(folder)
    wait_for((folder / "leave").exists, NEVER_SECONDS)
    (folder / "finished").touch()


def write_and_die(folder: Path) -> None:
    """Be a job whose host has no memory left."""
    _write(folder)
    os.kill(os.getpid(), signal.SIGKILL)


def write_and_leave_a_thread(folder: Path) -> None:
    """Be a job that leaves a thread behind, for which its process waits."""
    (folder / "pids").write_text(str(os.getpid()))
    _write(folder)
    if len((folder / "ledger").read_text().splitlines()) == 1:
        threading.Thread(target=time.sleep, args=[1000]).start()


def write_and_go_on(folder: Path) -> None:
    """Be a job that does not end, with a process that does not either."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    started = subprocess.Popen(["sh", "-c", STUBBORN])
    (folder / "pids").write_text(f"{os.getpid()} {started.pid}")
    _write(folder)
    started.wait()


def process_ids(folder: Path) -> list[int]:
    """Return the processes of a job that goes on."""
    file = folder / "pids"
    text = wait_for(lambda: file.exists() and file.read_text())
    return [int(pid) for pid in text.split()]
