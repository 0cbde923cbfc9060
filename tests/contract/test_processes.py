"""Broken rules of races between processes, and of wrong clocks, fail a test."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.entries import Entry, EntryLockProvider
from django_shedlock.testing.contract.races import RaceContract, overlaps
from django_shedlock.testing.contract.wrong_clocks import WRONG_BY, WrongClockContract


class FilesWithoutCompare(EntryLockProvider):
    """Keeps locks in a folder, for all processes, and does not compare."""

    haste = 60
    """Its clock's; else processes wait a minute for a lock that nobody has."""

    def __init__(self, alias: str, *, folder: str, **options: Any):
        super().__init__(alias, **options)
        self.folder = Path(folder)

    def read(self, name: str) -> tuple[Entry | None, None, float]:
        path = self.folder / name
        entry = Entry.from_json(path.read_text()) if path.exists() else None
        return entry, None, self.clock()

    def write(self, name: str, entry: Entry, version: None) -> bool:
        new = self.folder.parent / f"{name} of {os.getpid()}"
        new.write_text(entry.to_json())
        time.sleep(0.005)
        new.rename(self.folder / name)
        return True

    def names(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]

    def clock(self) -> float:
        return time.monotonic() * self.haste


class FilesByTheirClock(FilesWithoutCompare):
    """Its clock is that of the files, which no process can set."""

    def clock(self) -> float:
        clock = self.folder.parent / "clock"
        clock.touch()
        return clock.stat().st_mtime


class ReadsWithTheHostsClock(FilesByTheirClock):
    """Each host ends leases by its own clock."""

    def read(self, name: str) -> tuple[Entry | None, None, float]:
        return *super().read(name)[:2], time.time()


class TellsTheHostsClock(FilesByTheirClock):
    """Its clock is the host's, for all but the leases."""

    def wall_clock(self, now: float) -> datetime:
        return datetime.now(UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder."""
    path = tmp_path / "locks"
    path.mkdir()
    return path


class Races(RaceContract):
    """What processes are asked that share a folder of locks."""

    backend = FilesWithoutCompare


class WrongClocks(WrongClockContract):
    """What is asked of a host whose clock is wrong."""

    backend = FilesByTheirClock


def test_race_of_processes_is_found(folder: Path) -> None:
    """The race of sixteen processes finds a provider that compares nothing."""
    options = {"folder": str(folder)}
    provider = FilesWithoutCompare("default", **options)
    with pytest.raises(AssertionError):
        Races().test_one_of_sixteen_processes_wins(provider, options)


def test_lost_step_is_found(folder: Path, tmp_path: Path) -> None:
    """A number that processes count up without exclusion is too low."""
    options = {"folder": str(folder)}
    provider = FilesWithoutCompare("default", **options)
    counter = tmp_path / "counter"
    counter.write_text("0")
    with pytest.raises(AssertionError):
        Races().test_processes_never_overlap(provider, options, counter)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["1 10 20", "2 19 29"], [("2", "1")]),
        (["1 10 20", "2 21 31"], []),
        (["1 10 20", "1", "2 19 29"], []),
        (["2 19 29", "1 10 20"], [("1", "2")]),
        (["2 21 31", "1 22 20"], []),
    ],
    ids=["overlap", "expired", "released", "written late", "began too late"],
)
def test_overlap_is_found(
    tmp_path: Path, lines: list[str], found: list[tuple[str, str]]
) -> None:
    """Two that began in each other's leases; who was held up until its end did not."""
    journal = tmp_path / "journal"
    journal.write_text("\n".join(lines))
    assert overlaps(journal) == found


HELD = "test_held_lock_on_a_host_with_a_wrong_clock"
EXPIRED = "test_expired_lock_on_a_host_with_a_wrong_clock"
WRITTEN = "test_what_a_host_with_a_wrong_clock_writes"


@pytest.mark.parametrize(
    ("backend", "name", "by"),
    [
        (ReadsWithTheHostsClock, HELD, WRONG_BY),
        (ReadsWithTheHostsClock, HELD, -WRONG_BY),
        (ReadsWithTheHostsClock, EXPIRED, -WRONG_BY),
        (ReadsWithTheHostsClock, WRITTEN, WRONG_BY),
        (ReadsWithTheHostsClock, WRITTEN, -WRONG_BY),
        (TellsTheHostsClock, HELD, WRONG_BY),
        (TellsTheHostsClock, WRITTEN, -WRONG_BY),
    ],
)
def test_clock_of_the_host_is_found(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: type[LockProvider],
    name: str,
    by: timedelta,
) -> None:
    """Hosts whose clocks differ would not agree on who holds a lock."""
    options = {"folder": str(folder)}
    test = getattr(WrongClocks(), name)
    test(FilesByTheirClock("default", **options), options, by)
    for record in folder.iterdir():
        record.unlink()
    monkeypatch.setattr(WrongClocks, "backend", backend)
    with pytest.raises(AssertionError):
        test(backend("default", **options), options, by)
