"""
Explore how threads can be interleaved: ``frontrun python -m`` this module.

frontrun schedules the threads that it starts, and no others. So a timetable's thread is
one of them here: what it runs is called as it would call it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.support.lean_settings"
django.setup()

from django_shedlock import background as threads  # noqa: E402
from django_shedlock.background import Timetable  # noqa: E402
from django_shedlock.providers import memory  # noqa: E402
from django_shedlock.providers.entries import Entry  # noqa: E402
from django_shedlock.providers.memory import MemoryLockProvider  # noqa: E402
from tests.support.waiting import STARTUP_PATIENCE  # noqa: E402


class CarelessProvider(MemoryLockProvider):
    """Compares, and then sets, without a mutex."""

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        if self._entries.get(name) is not version:
            return False
        self._entries[name] = entry
        return True


class CarelessTimetable(Timetable):
    """Finds that nothing is left to do, and ends its thread a moment later."""

    def _next(self) -> Any:
        with self._changed:
            is_empty = not self.entries
        if is_empty:
            self._thread = None
            return None
        return super()._next()


class Started:
    """A thread that is alive, and does nothing beside those of frontrun."""

    def __init__(self, **how: object):
        pass

    def start(self) -> None:
        pass

    def is_alive(self) -> bool:
        return True


class Writes:
    """Several threads that write the first entry of one lock."""

    def __init__(self, backend: type[MemoryLockProvider]):
        self._provider = backend("default")
        self._written: dict[int, bool] = {}

    def write(self, number: int) -> None:
        self._written[number] = self._provider.write("job", Entry.free(0), None)

    def is_right(self) -> bool:
        return sum(self._written.values()) == 1


class LastWork:
    """A timetable's thread that does its only work, and a thread that adds more."""

    def __init__(self, timetable: type[Timetable]):
        self._timetable = timetable("test")
        self._done: list[str] = []
        self._timetable.add("first", lambda: self._done.append("first"))
        self._thread = self._timetable._thread

    def run(self) -> None:
        self._timetable._run()

    def add(self) -> None:
        self._timetable.add("second", lambda: self._done.append("second"))

    def is_right(self) -> bool:
        """Return whether the second is done, or another thread was started for it."""
        is_new = self._timetable._thread not in {None, self._thread}
        return "second" in self._done or is_new


def explore(setup: Callable[[], Any], *workers: Callable[[Any], None]) -> Any:
    """Return whether it is right in all ways to interleave, and how many there are."""
    import frontrun

    result = frontrun.explore(
        setup=setup,
        workers=list(workers),
        invariant=lambda state: state.is_right(),
        timeout_per_run=STARTUP_PATIENCE,
        deadlock_timeout=STARTUP_PATIENCE,
    )
    return result.property_holds, result.num_explored


def main() -> None:
    """Print as JSON what came of each, and of its broken twin."""

    def condition(lock: Any) -> threading.Condition:
        return threading.Condition(lock)  # frontrun replaces it while it explores

    def mutex() -> Any:
        return threading.RLock()  # so it does with this one

    with patch.object(memory, "Mutex", mutex):
        found = {
            backend.__name__: explore(
                lambda b=backend: Writes(b),
                *(lambda writes, n=number: writes.write(n) for number in range(3)),
            )
            for backend in (MemoryLockProvider, CarelessProvider)
        }
    started = SimpleNamespace(Thread=Started, Condition=condition)
    no_connections = SimpleNamespace(close_all=lambda: None)
    with patch.multiple(
        threads,
        threading=started,
        connections=no_connections,
        Mutex=mutex,
    ):
        for timetable in (Timetable, CarelessTimetable):
            timetable.idle_seconds = 0.01
            setup = lambda t=timetable: LastWork(t)  # noqa: E731
            found[timetable.__name__] = explore(setup, LastWork.run, LastWork.add)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
