"""Threads of a test, of which none may fail unseen, or leave a connection behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connections

from django_shedlock import background as package_threads
from django_shedlock.background import Timetable
from tests.support.waiting import PATIENCE, wait_for


def threads_named(name: str) -> set[threading.Thread]:
    """Return the library's threads of this name, as in ``"keep alive"``."""
    full = f"django_shedlock {name}"
    return {thread for thread in threading.enumerate() if thread.name == full}


def meeting_of(count: int) -> threading.Barrier:
    """Return the barrier at which so many threads of a race meet."""
    return threading.Barrier(count, timeout=PATIENCE)


@contextmanager
def running_threads(
    count: int, work: Callable[[], object], meeting: threading.Barrier | None = None
) -> Iterator[None]:
    """
    Run ``work`` in that many threads beside the body; fail if one of them does.

    If one fails, or the body does, nobody waits at their ``meeting`` any more. The
    first error is raised, and not those that follow from it.
    """
    failures: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        if meeting:
            meeting.abort()

    def are_over() -> bool:
        return not any(thread.is_alive() for thread in threads)

    def run() -> None:
        try:
            work()
        except BaseException as error:
            fail(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    except BaseException as error:
        fail(error)
    with suppress(AssertionError):
        wait_for(are_over, timeout=1 if failures and not meeting else PATIENCE)
    if failures:
        raise failures[0]
    assert are_over(), "a thread has not ended"


def run_threads(
    count: int, work: Callable[[], object], meeting: threading.Barrier | None = None
) -> None:
    """Run ``work`` in that many threads, and fail if one of them does."""
    with running_threads(count, work, meeting):
        pass


class NewThreads:
    """The threads of this name that began since then, whatever other tests left."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._before = threads_named(name)

    def __len__(self) -> int:
        return len(threads_named(self._name) - self._before)


def noted_wait(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return what is set as soon as work in the background waits for a place."""
    waits, wait = threading.Event(), package_threads.wait

    def noting(*arguments: Any) -> Any:
        waits.set()
        return wait(*arguments)

    monkeypatch.setattr(package_threads, "wait", noting)
    return waits


def is_idle(timetable: Timetable) -> bool:
    """Return whether its thread does nothing, and has no mutex or connection."""
    with timetable._mutex:
        thread = timetable._thread
        is_there = thread is not None and thread.is_alive()
        return not is_there or bool(timetable._changed._waiters)


@contextmanager
def counted_starts() -> Iterator[list[str]]:
    """Note the name of each thread that is started in the body."""
    started: list[str] = []
    start = threading.Thread.start

    def note(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    with patch.object(threading.Thread, "start", note):
        yield started
