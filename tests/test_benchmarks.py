"""The benchmarks, in a form that takes seconds."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis

from django_shedlock.background import losses
from tests.support.paths import ROOT
from tests.support.redis_servers import redis_servers
from tests.support.stores import SQLITE_VARIABLE

pytestmark = pytest.mark.sqlite_only

LONGEST = 300
"""Seconds after which a benchmark hangs."""


def run(
    benchmark: str, folder: Path, *given: str, **options: float
) -> subprocess.CompletedProcess[str]:
    arguments = [*given, *(f"--{name}={value}" for name, value in options.items())]
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{benchmark}", *arguments],
        cwd=ROOT,
        env={**os.environ, SQLITE_VARIABLE: str(folder)},
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )


def measured(
    benchmark: str, folder: Path, *given: str, **options: float
) -> tuple[str, list[str]]:
    done = run(benchmark, folder, *given, **options)
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


FEW: dict[str, Any] = {
    "rounds": 3,
    "processes": 2,
    "waiters": 3,
    "records": 20,
    "names": 10,
    "seconds": 0.3,
    "kept": 30,
    "ending": 30,
    "lease": 2,
}
LEFT_OVER = ("held", "held 1", "free 1", "job")
"""Keys as a run leaves them that is killed, if they have no prefix of their own."""
RIVALS = {
    "select_for_update(skip_locked)",
    "django-pglock",
    "dislock",
    "redis-py Lock",
    "Java's ShedLock, its statements",
}


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The file with the numbers of all sections, and the lines that are printed."""
    folder = tmp_path_factory.mktemp("locks")
    url = os.environ.get("SHEDLOCK_TEST_POSTGRES_URL")
    given = [f"--url={url}"] if url else []
    result = folder / "result.json"
    with redis_servers(folder, 1) as [server]:
        client = redis.Redis.from_url(server.url)
        for key in LEFT_OVER:
            client.set(key, "left over")
        given += [f"--redis={server.url}", f"--json={result}", "--jdbc=missing.jar"]
        title, lines = measured("locks", folder, *given, **FEW)
    assert title.startswith("cores: ")
    return result, lines


def test_ways_to_lock_are_measured(locks: tuple[Path, list[str]]) -> None:
    """Each way is measured beside the hand-written one, or says why it is not."""
    found, lines = json.loads(locks[0].read_text("utf-8")), locks[1]
    tables = found["ways"]
    pairs, tries = tables["acquire and release"], tables["a first refusal"]
    of_redis = found["redis"].values()
    for title in ("acquire and release", "a first refusal"):
        assert list(tables[f"{title}, prepared"]) == list(tables[title])
        assert set(tables[f"{title}, other libraries"]) > RIVALS
    assert {"raw psycopg, release as durable as ours", "inside atomic()"} <= set(pairs)
    assert {"execute()", "execute(), not logged", "a skipped tick"} <= set(tries)
    assert all(next(iter(rows)) == "redis-py Lock" for rows in of_redis)
    for rows in tables.values():
        assert next(iter(rows)).startswith("by hand, ")
    for rows in (*tables.values(), *of_redis):
        first, *others = rows
        assert rows[first]["ratio"] == 1
        assert all("left out" in rows[way] or rows[way]["ratio"] > 0 for way in others)
        assert {*rows} <= {line.partition("  ")[0] for line in lines}
    java = "Java's ShedLock, its statements"
    assert any(re.fullmatch(f"{java} +no (JDK|driver.*)", line) for line in lines)


def test_crowds_and_sizes_are_measured(locks: tuple[Path, list[str]]) -> None:
    """Callers, records and locks are counted, few of them and many."""
    found = json.loads(locks[0].read_text("utf-8"))
    assert all(row["a second"] > 0 for row in found["crowds"]["acquisitions"].values())
    [waited] = found["crowds"]["waiters"].values()
    assert waited["got it"] == FEW["waiters"]
    records = ["1 records", "10 records", "20 records"]
    assert list(found["sizes"]["records"]) == records
    assert found["sizes"]["updates"]["shedlock"]["HOT in %"] > 0
    threads = {title: row for title, row in found["many"].items() if "read" in title}
    assert len(threads) == 12
    for title, row in threads.items():
        count = int(title.split()[-2])
        most = count * (1 + ("atomic" in title))
        if "keep_alive" in title:
            # If the machine stalls, leases end, and several threads ask for them.
            most += 1 + losses.thread_limit
        assert 0 < row["connections"] <= most, title
    many = {title: found["many"][title] for title in found["many"].keys() - threads}
    assert len(many) == 4
    for title, row in many.items():
        assert 0 < row["connections"] <= 4 + losses.thread_limit, title
        assert 0 < row["threads"] < FEW["kept"], title


def test_goals_are_beside_what_was_measured(locks: tuple[Path, list[str]]) -> None:
    """The last table compares the numbers with what is good enough."""
    found, lines = json.loads(locks[0].read_text("utf-8")), locks[1]
    goals = found["goals"]
    assert list(goals) == [line.partition("  ")[0] for line in lines[-len(goals) :]]
    title, way = "acquire and release with history", "hold() with history"
    recorded = goals["a pair with history"]
    assert recorded["found"] == found["ways"][title][way]["ratio"]
    assert recorded["prepared"] == found["ways"][f"{title}, prepared"][way]["ratio"]
    for goal in goals.values():
        side, limit = goal["goal"].split()
        above = goal["found"] - float(limit)
        is_met = above <= 0 if side == "<=" else above >= 0
        assert goal["result"] == ("met" if is_met else "missed")


def test_beats_are_measured(tmp_path: Path) -> None:
    """Each way to start jobs at their ticks is measured, or says why it is not."""
    url = os.environ.get("SHEDLOCK_TEST_POSTGRES_URL")
    given = [f"--url={url}"] if url else []
    result = tmp_path / "result.json"
    options = {"ticks": 1, "interval": 8, "idle-jobs": 5, "idle-seconds": 6}
    with redis_servers(tmp_path, 1) as [server]:
        given += [f"--redis={server.url}", f"--json={result}"]
        title, lines = measured("beats", tmp_path, *given, **options)
    assert title.startswith("cores: ")
    found = json.loads(result.read_text("utf-8"))
    first, *others = found["latency"].values()
    assert first["ratio"] == 1
    assert all("left out" in row or row["ratio"] > 0 for row in others)
    ways = {*found["latency"], *found["idle"]}
    assert ways <= {line.partition("  ")[0] for line in lines}
    assert found["latency"]["shedlock beat"]["begun"] == "1 of 1"
    assert found["latency"]["cron"] == {
        "left out": "left out, cron needs --interval 60"
    }
    assert found["idle"]["shedlock beat"]["transactions"] > 0


DISTRIBUTIONS = {"pglock": "django-pglock"}
"""Names that differ from those of their modules by more than a dash."""
OURS = {"asgiref", "cronsim", "django", "django_shedlock"}
"""What is installed with the package itself."""


@pytest.mark.parametrize("benchmark", ["locks", "beats"])
def test_the_group_installs_what_a_benchmark_imports(benchmark: str) -> None:
    """The group 'benchmarks' alone is enough to run it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    lines = project["dependency-groups"]["benchmarks"]
    installed = {re.split(r"[^\w-]", line)[0] for line in lines}
    modules, seen, imported = [f"benchmarks.{benchmark}"], set[Path](), set[str]()
    while modules:
        path = ROOT / f"{modules.pop().replace('.', '/')}.py"
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        for name in imports_of(path):
            first, *_ = name.split(".")
            if first in {"benchmarks", "tests"}:
                modules.append(name)
            elif first not in sys.stdlib_module_names | OURS:
                imported.add(DISTRIBUTIONS.get(first, first.replace("_", "-")))
    assert {"psycopg", "redis", "psutil"} <= imported
    assert imported <= installed


def imports_of(path: Path) -> set[str]:
    """Return the modules that it imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
    return found


def test_numbers_are_drawn(locks: tuple[Path, list[str]], tmp_path: Path) -> None:
    """The same numbers give the same picture, whose text is text."""
    pictures = tmp_path / "one.svg", tmp_path / "two.svg"
    for picture in pictures:
        done = run("plot", tmp_path, str(locks[0]), str(picture))
        if find_spec("matplotlib") is None:  # it is of another extra
            assert done.stderr == "No matplotlib: install the group 'benchmarks'.\n"
            return
        assert done.returncode == 0, done.stderr
    one, two = (picture.read_text("utf-8") for picture in pictures)
    assert one == two
    assert "<dc:date>" not in one
    words = ("records in the table", "acquire and release, ms", "processes")
    legend = ("raw statements, prepared", "django_shedlock with history")
    assert all(f">{text}</text>" in one for text in (*words, *legend))


def test_imports_are_measured(tmp_path: Path) -> None:
    """What a process pays for the package, and how many of its modules it loads."""
    title, lines = measured("imports", tmp_path, rounds=1)
    assert title.endswith("median of 1")
    row = r"(.+?) +\d+\.\d ms +\d+\.\d MB +(\d+) modules of ours"
    rows = [re.fullmatch(row, line) for line in lines]
    assert [found and found.groups() for found in rows] == [
        ("import django", "0"),
        ("import django_shedlock", "36"),
        ("from django_shedlock import scheduler_lock", "36"),
        ("  after the modules of Django", "36"),
        ("django.setup() without the app", "0"),
        ("django.setup() with the app", "46"),
    ]
