"""Operators in the soak of the beats: they pause, resume and ask for runs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from io import StringIO

import psutil
from django.core.management import CommandError, call_command
from django.db import Error

from benchmarks.soak.beats.works import WORKS
from benchmarks.soak.journal import Journal
from django_shedlock import LockProviderError
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers import get_provider

PAUSE_SECONDS = (1.5, 5)
"""Between two actions of an operator."""
LONGEST_PAUSE_OF_JOB_SECONDS = 12
LOOK_SECONDS = 0.4
"""Between two looks at all locks."""
NAMES = [work.name for work in WORKS]
FAILURES = (LockProviderError, Error)


class Operators:
    """Pause and resume jobs and ask for runs, until ``over`` is set."""

    def __init__(self, journal: Journal, seed: int, pace: float, over: threading.Event):
        self._journal = journal
        self._chance = random.Random(f"{seed} operators")
        self._pace = pace
        self._over = over
        self._actions: dict[Callable[[str], None], int] = {
            self._pause: 3,
            self._resume: 2,
            self._request: 4,
        }

    def run(self) -> None:
        """See the class."""
        while not self._over.wait(self._chance.uniform(*PAUSE_SECONDS) * self._pace):
            [action] = self._chance.choices([*self._actions], [*self._actions.values()])
            with suppress(*FAILURES):
                action(self._chance.choice(NAMES))

    def _pause(self, name: str) -> None:
        seconds = self._chance.randint(2, LONGEST_PAUSE_OF_JOB_SECONDS)
        asked, is_sure = time.monotonic(), False
        try:
            command(
                *("pause", name, "--for", f"{seconds}s", "--wait", "3s"),
                "--reason=soak",
            )
            is_sure = True
        except CommandError:  # its job runs; that would be no pause
            return
        finally:
            if is_sure:
                self._note_harm("pauses")
            self._journal.write(
                "pause", name=name, asked=asked, lasting=seconds, is_sure=is_sure
            )

    def _resume(self, name: str) -> None:
        paused = [s.name for s in statuses() if s.state is LockState.PAUSED]
        if paused:
            self._resume_one(self._chance.choice(sorted(paused)))

    def _resume_one(self, name: str) -> None:
        asked, is_sure = time.monotonic(), False
        try:
            command("resume", name, "--reason=soak")
            is_sure = True
        except CommandError:  # it has ended by itself
            return
        finally:
            if is_sure:
                self._note_harm("pauses ended")
            self._journal.write("resume", name=name, asked=asked, is_sure=is_sure)

    def _request(self, name: str) -> None:
        provider = get_provider()
        status = provider.status(name)
        if status is None or status.job.asked_at is not None:
            return
        asked, is_sure = time.monotonic(), False
        try:
            provider.request_run(name, "soak", "to see it run")
            is_sure = True
        finally:
            self._journal.write("request", name=name, asked=asked, is_sure=is_sure)
        self._note_harm("requests")

    def _note_harm(self, kind: str) -> None:
        self._journal.write("harm", kind=kind)


def command(*arguments: str) -> None:
    """Run a subcommand of ``shedlock``, and leave out what it prints."""
    call_command("shedlock", *arguments, stdout=StringIO(), stderr=StringIO())


def statuses() -> list[LockStatus]:
    """Return the locks of all jobs, read by no link that fails."""
    return [each for each in get_provider().statuses() if each.name in NAMES]


def open_requests() -> list[str]:
    """Return the jobs for which a request is open."""
    return [each.name for each in statuses() if each.job.asked_at is not None]


def note_dead_holders(journal: Journal, over: threading.Event) -> None:
    """Let the journal have each lock that a dead process holds, again and again."""
    while not over.wait(LOOK_SECONDS):
        asked = time.monotonic()
        with suppress(*FAILURES):
            for status in statuses():
                host, pid = split_identity(status.locked_by)
                if status.state is not LockState.RUNNING or pid is None:
                    continue
                if not is_alive(pid):
                    journal.write(
                        "dead holder",
                        at=asked,
                        dead=time.monotonic(),
                        id=status.locked_by,
                        name=status.name,
                        host=host,
                        pid=pid,
                        locked_at=status.locked_at.timestamp(),
                    )


def is_alive(pid: int) -> bool:
    """Return whether a process can still do anything."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
