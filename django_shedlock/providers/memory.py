"""Locks in this process's memory: for tests, and for projects of one process."""

from collections.abc import Iterable
from datetime import datetime
from typing import Never

from django_shedlock.clocks import host_now, uptime
from django_shedlock.forking import renewed_in_child
from django_shedlock.mutexes import Mutex
from django_shedlock.providers.entries import Entry, EntryLockProvider, Read


class MemoryLockProvider(EntryLockProvider[Entry | None, Never]):
    """
    Keeps the locks of one process in its memory, by its host's ``uptime()``.

    It excludes threads and tasks. Each other process has its own locks, so it guards
    nothing between pods. A forked child begins without locks. The host's wall clock
    chooses the ticks.
    """

    is_shared = False
    deletes_records = True

    def __init__(
        self,
        alias: str,
        *,
        keep_alive: bool = False,
        history_database: str | None = None,
    ):
        super().__init__(
            alias, keep_alive=keep_alive, history_database=history_database
        )
        self.forget()
        renewed_in_child(self)

    def forget(self) -> None:
        """Forget the locks: a forked child is another process with its own locks."""
        self._entries: dict[str, Entry] = {}
        self._mutex = Mutex()

    def read(self, name: str) -> Read[Entry | None]:
        """See EntryLockProvider.read(). The entry is its own version."""
        entry = self._entries.get(name)
        return entry, entry, self.clock()

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        with self._mutex:
            if self._entries.get(name) is not version:
                return False
            self._entries[name] = entry
            return True

    def delete(self, name: str, version: Entry | None) -> bool:
        with self._mutex:
            if self._entries.get(name) is not version:
                return False
            self._entries.pop(name, None)
            return True

    def names(self) -> Iterable[str]:
        with self._mutex:
            return list(self._entries)

    def clock(self) -> float:
        """Return the seconds of the clock that ends the leases."""
        return uptime()

    def wall_clock(self, now: float) -> datetime:
        """Return this host's clock."""
        return host_now()
