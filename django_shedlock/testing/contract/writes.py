"""What one step of the store compares and writes, for ``EntryLockProvider``."""

from dataclasses import replace
from typing import Any

from django_shedlock.providers.entries import Entry, EntryLockProvider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.testing.contract.harness import (
    MINUTE,
    Contract,
    configure,
    force_release,
    take_from,
)

EntryProvider = EntryLockProvider[Any, Any]


class WriteContract(Contract):
    """``write()`` changes only the very record that was read."""

    base: type[object] = EntryLockProvider

    def add_field(self, provider: Any, name: str) -> None:
        """Let a newer version add "colour". Override this if ``others`` is unused."""
        entry, version, _ = provider.read(name)
        others = {**entry.others, "colour": "red"}
        assert provider.write(name, replace(entry, others=others), version)

    def has_field(self, provider: Any, name: str) -> bool:
        """Return whether the record has that field, as it was added."""
        return bool(provider.read(name)[0].others.get("colour") == "red")

    def test_each_write_counts(self, provider: EntryProvider) -> None:
        """Only one write follows each read, even if it leaves the lease alone."""
        take_from(provider, configure())
        for failures in (1, 2):
            entry, version, _ = provider.read("job")
            assert entry is not None
            assert provider.write("job", replace(entry, failures=failures), version)
            late = replace(entry, failures=7)
            assert not provider.write("job", late, version)
            entry, _, _ = provider.read("job")
            assert entry is not None
            assert entry.failures == failures

    def test_record_that_was_created_meanwhile(self, provider: EntryProvider) -> None:
        """Of two callers that saw no record, one creates it."""
        entry, version, now = provider.read("job")
        assert entry is None
        lock = take_from(provider, configure())
        assert not provider.write("job", Entry.free(now), version)
        assert provider.release(lock)

    def test_record_that_was_extended_meanwhile(self, provider: EntryProvider) -> None:
        """Nobody writes what was read before the holder extended its lease."""
        lock = take_from(provider, configure())
        entry, version, _ = provider.read("job")
        assert entry is not None
        assert provider.extend(lock, 2 * MINUTE)
        assert not provider.write("job", entry, version)
        assert provider.status("job").remaining > MINUTE  # type: ignore[union-attr]

    def test_record_that_was_deleted_meanwhile(self, provider: EntryProvider) -> None:
        """What was read is not written over a deletion, nor over the next record."""
        if self.forget_record is None:
            return
        old = take_from(provider, configure())
        entry, version, _ = provider.read("job")
        assert entry is not None
        self.forget_record(provider, "job")
        assert not provider.write("job", entry, version)
        assert provider.read("job")[0] is None
        new = take_from(provider, configure())
        assert not provider.write("job", entry, version)
        assert not provider.release(old)
        assert provider.release(new)

    def test_fields_of_a_newer_version_stay(self, provider: EntryProvider) -> None:
        """Fields that this version does not know survive each of its steps."""
        lock = take_from(provider, configure())
        self.add_field(provider, "job")
        provider.request_run("job", "alice", "again")
        assert provider.extend(lock, MINUTE)
        provider.note_unrecorded("job")
        assert provider.release(lock)
        provider.register("job", Schedule("@hourly", "UTC"))
        take_from(provider, configure())
        assert force_release(provider)
        assert self.has_field(provider, "job")
