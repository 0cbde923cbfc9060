"""What etcd keeps of a lock: a record for all, and the key of its holder's lease."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

from django_shedlock.providers.entries import Entry
from django_shedlock.providers.etcd.transactions import Known

ROUNDING = 1
"""Seconds that are added to a lease: two members' clocks tell a second, no more."""


class Lease(NamedTuple):
    """A lease of etcd, and how long it was granted; without one both are 0."""

    id: int = 0
    seconds: int = 0


class Version(NamedTuple):
    """What ``observe()`` has seen; ``write()`` changes only that."""

    record: Known
    holder: Known
    store: int
    clock: float
    entry: Entry
    lease: Lease

    def with_token(self, entry: Entry) -> Entry:
        """Return the entry with a token that grows even if the record was deleted."""
        if entry.fencing_token == self.entry.fencing_token:
            return entry
        token = max(entry.fencing_token, self.store + 1)
        return replace(entry, fencing_token=token)

    def keeps_lease(self, entry: Entry) -> bool:
        """Return whether the entry needs no other lease: only its ticks changed."""
        is_as_long = entry.lock_until == self.entry.lock_until
        return self.lease.id > 0 and entry.is_released and is_as_long

    def is_extension(self, entry: Entry) -> bool:
        """Return whether the holder of the lease keeps the lock."""
        is_same = entry.fencing_token == self.entry.fencing_token
        return self.lease.id > 0 and is_same and not entry.is_released

    def seconds(self, entry: Entry) -> int:
        """Return how long the lease of this entry has to be; 0 if it needs none."""
        left = entry.lock_until - self.clock
        return ceil(left) + ROUNDING if left > 0 else 0


def to_value(entry: Entry, lease: Lease, mark: str) -> bytes:
    """Return the value of both keys. ``mark`` tells one write from all others."""
    ours = {"lease_seconds": lease.seconds, "mark": mark}
    return json.dumps({**json.loads(entry.to_json()), **ours}).encode()


def parse(record: Known, holder: Known, clock: float) -> tuple[Entry | None, Lease]:
    """
    Return the entry, if there is one, and the lease.

    The lease of etcd decides whether the lock is held, whatever the clocks say, and
    also after somebody has deleted the record. Raises ``ValueError``.
    """
    if not record.revision and not holder.revision:
        return None, Lease()
    values = json.loads((record if record.revision else holder).value)
    entry, seconds = _parts(values)
    if not holder.revision:
        return replace(entry, lock_until=min(entry.lock_until, clock)), Lease()
    until = max(entry.lock_until, clock + ROUNDING)
    if seconds:
        until = min(until, clock + seconds)
    return replace(entry, lock_until=until), Lease(holder.lease, seconds)


def _parts(values: Any) -> tuple[Entry, int]:
    seconds = 0
    if isinstance(values, dict):
        values.pop("mark", None)
        seconds = values.pop("lease_seconds", 0)
    if not isinstance(seconds, int):
        raise ValueError(f"its lease_seconds {seconds!r} is no number")
    return Entry.from_json(json.dumps(values)), seconds
