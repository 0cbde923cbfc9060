"""The benchmarks, in a form that takes seconds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.redis_servers import redis_servers
from tests.support.stores import SQLITE_VARIABLE

pytestmark = pytest.mark.sqlite_only


def measured(
    benchmark: str, folder: Path, *given: str, **options: int
) -> tuple[str, list[str]]:
    arguments = [*given, *(f"--{name}={value}" for name, value in options.items())]
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{benchmark}", *arguments],
        cwd=ROOT,
        env={**os.environ, SQLITE_VARIABLE: str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    title, *lines = done.stdout.splitlines()
    return title, lines


def test_console_is_measured(tmp_path: Path) -> None:
    """Each page is measured with few and with many runs, and its queries counted."""
    title, lines = measured("console", tmp_path, runs=150, rounds=1, locks=2)
    assert title.startswith("sqlite:")
    assert len(lines) > 8
    for line in lines:
        found = re.search(
            r"150 runs +\d+ ms +ratio +\d+\.\d +"
            r"processor +\d+ ms, +\d+\.\d x users +(\d+) queries$",
            line,
        )
        assert found, line
        assert 0 < int(found[1]) < 17


def test_records_are_measured(tmp_path: Path) -> None:
    """Each command and view is measured in a process of its own."""
    title, lines = measured("records", tmp_path, records=1500)
    assert title == "sqlite: 1500 records, 300 of each kind of finding"
    assert len(lines) == 7
    for line in lines:
        found = re.search(r" +(\d+\.\d+) s +(\d+) MB, \d+ MB of it new$", line)
        assert found, line
        assert float(found[2]) > 10


FEW = {
    "rounds": 3,
    "processes": 2,
    "waiters": 3,
    "records": 20,
    "names": 10,
    "seconds": 1,
}


def test_locks_are_measured(tmp_path: Path) -> None:
    """Each way to lock is measured beside the raw one of its store, in one run."""
    url = os.environ.get("SHEDLOCK_TEST_POSTGRES_URL")
    given = [f"--url={url}"] if url else []
    result = tmp_path / "result.json"
    with redis_servers(tmp_path, 1) as [server]:
        given += [f"--redis={server.url}", f"--json={result}"]
        title, lines = measured("locks", tmp_path, *given, **FEW)
    assert title.startswith("cores: ")
    found = json.loads(result.read_text("utf-8"))
    pairs, tries = found["ways"].values()
    of_redis = found["redis"].values()
    assert {"hold()", "decorator", "inside atomic()", "with a schedule"} <= set(pairs)
    assert all("redis-py Lock" in rows for rows in of_redis)
    for rows in (pairs, tries, *of_redis):
        raw, *others = rows
        assert rows[raw]["ratio"] == 1
        assert all(rows[other]["ratio"] > 0 for other in others)
        assert {*rows} <= {line.partition("  ")[0] for line in lines}
    assert all(row["a second"] > 0 for row in found["crowds"]["acquisitions"].values())
    [waited] = found["crowds"]["waiters"].values()
    assert waited["got it"] == FEW["waiters"]
    assert list(found["sizes"]["records"]) == ["1 records", "20 records"]
    assert found["sizes"]["updates"]["of all updates"]["HOT in %"] > 0


def test_imports_are_measured(tmp_path: Path) -> None:
    """The package is measured beside what it needs of Django."""
    title, [django, own] = measured("imports", tmp_path, rounds=1)
    assert title.endswith("median of 1")
    assert re.fullmatch(r"django +\d+\.\d ms +ratio 1\.00", django)
    assert re.fullmatch(r"django_shedlock +\d+\.\d ms +ratio \d\.\d\d", own)
