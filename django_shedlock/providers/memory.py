"""Locks in this process's memory: for tests, and for projects of one process."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django_shedlock.clocks import host_now, uptime
from django_shedlock.mutexes import Mutex, renewed_in_child
from django_shedlock.providers.entries import Entry, EntryLockProvider


class MemoryLockProvider(EntryLockProvider):
    """
    Excludes the threads and tasks of one process, by its host's ``uptime()``.

    Other processes have their own locks, so it guards nothing between pods. A forked
    child begins with none. Ticks are chosen by its wall clock.
    """

    is_shared = False

    def __init__(self, alias: str, **options: Any):
        super().__init__(alias, **options)
        self.forget()
        renewed_in_child(self)

    def forget(self) -> None:
        """Forget the locks: a forked child is another process, and has its own."""
        self._entries: dict[str, Entry] = {}
        self._mutex = Mutex()

    def read(self, name: str) -> tuple[Entry | None, Entry | None, float]:
        """See EntryLockProvider.read(). The entry is its own version."""
        entry = self._entries.get(name)
        return entry, entry, self.clock()

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        with self._mutex:
            if self._entries.get(name) is not version:
                return False
            self._entries[name] = entry
            return True

    def names(self) -> Iterable[str]:
        with self._mutex:
            return list(self._entries)

    def clock(self) -> float:
        """Return the seconds of the clock that ends its leases."""
        return uptime()

    def wall_clock(self, now: float) -> datetime:
        """Return this host's clock."""
        return host_now()
