"""Records that can't be read: they hide no other lock, and nobody overwrites them."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.schedules.cron import Schedule
from django_shedlock.testing.contract.harness import (
    MINUTE,
    Contract,
    configure,
    status_of,
    take_from,
    try_from,
)

ANY_SCHEDULE = Schedule("@hourly", "UTC")
TICK = LockConfiguration("job", MINUTE, schedule=ANY_SCHEDULE)


def entry_with(**changed: str) -> bytes:
    """Return the JSON of an entry with these values, as JSON."""
    times = dict.fromkeys(("locked_at", "lock_until", "lock_at_least_until"), "1")
    pairs = {"locked_by": '"me"', **times, **changed}.items()
    text = ", ".join(f'"{field}": {value}' for field, value in pairs)
    return f"{{{text}}}".encode()


FLAWS = (
    b"",
    b"[]",
    b"no JSON",
    b'{"locked_by": 1}',
    b"gr\xfcn",
    b"[" * 100_000,
    entry_with(lock_until="NaN"),
    entry_with(lock_until="1e999"),
    entry_with(lock_until="null"),
    entry_with(lock_until="1" * 400),
    entry_with(locked_at="[]"),
    entry_with(locked_by='"\\ud800"'),
)
"""What is no JSON of an ``Entry``."""


def shown_flaw(flaw: Any) -> str:
    """Return the flaw as a part of a test's name."""
    text = flaw.decode(errors="replace") if isinstance(flaw, bytes) else str(flaw)
    return text[-40:]


class ChangesOfRecord:
    """The calls that change the record of a held lock, with their arguments."""

    def __init__(self, lock: Lock, status: LockStatus):
        self._provider, self._lock = lock.provider, lock
        self._status = status

    def extend(self) -> None:
        self._provider.extend(self._lock, MINUTE)

    def heartbeat(self) -> None:
        self._provider.heartbeat(self._lock)

    def release(self) -> None:
        self._provider.release(self._lock)

    def account_for_loss(self) -> None:
        self._provider.account_for_loss(self._lock, has_ended=True)

    def force_release(self) -> None:
        self._provider.replace(self._status, ZERO)

    def force_extend(self) -> None:
        self._provider.replace(self._status, 2 * MINUTE)

    def pause_again(self) -> None:
        by = "paused by alice"
        self._provider.replace(self._status, 2 * MINUTE, locked_by=by)

    def request_run(self) -> None:
        self._provider.request_run("job", "alice", "again")

    def withdraw_request(self) -> None:
        self._provider.withdraw_request("job", self._status.locked_at)

    def note_unrecorded(self) -> None:
        self._provider.note_unrecorded("job")

    def register(self) -> None:
        self._provider.register("job", ANY_SCHEDULE)


CHANGES = [name for name in vars(ChangesOfRecord) if not name.startswith("_")]


class BadRecordContract(Contract):
    """A record that can't be read is shown as such, until a person corrects it."""

    hooks: tuple[str, ...] = ("spoil_record", "raw_record")

    @pytest.fixture(params=FLAWS, ids=shown_flaw)
    def flaw(self, request: pytest.FixtureRequest) -> Any:
        """Return what a record has to be that can't be read; see ``spoil_record``."""
        return request.param

    def take_spoilt(self, provider: LockProvider, flaw: Any) -> tuple[Lock, LockStatus]:
        """Acquire a lock, and spoil its record; return it as it was before."""
        assert self.spoil_record is not None
        lock = take_from(provider, configure())
        status = status_of(provider)
        self.spoil_record(provider, "job", flaw)
        return lock, status

    def raw(self, provider: LockProvider) -> object:
        assert self.raw_record is not None
        return self.raw_record(provider, "job")

    def test_bad_record_hides_no_other(self, provider: LockProvider, flaw: Any) -> None:
        """It is shown and counted as one lock, with the reason; so are the others."""
        take_from(provider, configure("a"))
        self.take_spoilt(provider, flaw)
        take_from(provider, configure("z"))
        first, bad, last = provider.statuses()
        assert (first.name, bad.name, last.name) == ("a", "job", "z")
        assert not first.unreadable
        assert not last.unreadable
        assert first.state is last.state is LockState.RUNNING
        assert bad.unreadable
        assert status_of(provider).unreadable
        assert provider.count() == 3
        assert [s.name for s in provider.statuses(LockQuery(names=["job"]))] == ["job"]

    @pytest.mark.parametrize("wanted", [configure(), TICK], ids=["plain", "tick"])
    def test_bad_record_is_not_acquired(
        self, provider: LockProvider, flaw: Any, wanted: LockConfiguration
    ) -> None:
        """The error names the lock, and says to correct or delete its record."""
        if not provider.keeps_ticks:
            wanted = replace(wanted, schedule=None)
        self.take_spoilt(provider, flaw)
        before = self.raw(provider)
        with pytest.raises(LockProviderError, match=r"'job'.*([Cc]orrect|delete)"):
            try_from(provider, wanted)
        assert self.raw(provider) == before

    @pytest.mark.parametrize("change", CHANGES)
    def test_bad_record_is_not_overwritten(
        self, provider: LockProvider, flaw: Any, change: str
    ) -> None:
        """A person finds the record as it was, whatever was tried in the meantime."""
        changes = ChangesOfRecord(*self.take_spoilt(provider, flaw))
        before = self.raw(provider)
        with suppress(LockProviderError):
            getattr(changes, change)()
        assert self.raw(provider) == before
        assert status_of(provider).unreadable
