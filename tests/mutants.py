"""
Break the core in one place at a time, and see the tests fail.

``python -m tests.mutants`` draws a sample of mutants, always the same for one seed.
Each is a copy of the repository in which cosmic-ray changed one operator, number,
condition or decorator. ``mutants.toml`` has to explain each that passes the tests of
the core and of its concurrency.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import cache_from_source
from itertools import chain
from pathlib import Path

import pytest

from tests.support.mutations import Mutant, draw
from tests.support.paths import ROOT
from tests.support.stores import STORE_VARIABLE, SUFFIX_VARIABLE, missing_reason

PACKAGE = "django_shedlock"
EXPLANATIONS = Path(__file__).with_name("mutants.toml")
SEED = 1
SILENCE = 240
"""Seconds without a word from pytest after which a test counts as hanging."""

CORE = (
    *(f"providers/{each}.py" for each in ("__init__", "base", "entries", "memory")),
    *("providers/servers.py", "providers/database/*.py", "sql/*.py"),
    *("locks/lock.py", "locks/status.py"),
    *(
        "execution/active.py",
        "execution/executor.py",
        "execution/keep_alive.py",
        "execution/cancellation.py",
        "background.py",
    ),
    *("history/recording.py", "schedules/state.py"),
)
"""The files of the package whose mutants are drawn."""

TESTS = ("tests/providers/test_*.py", "tests/test_*.py")
SLOWER_TESTS = ("tests/concurrency/test_*.py",)
"""Races and faults, on a server only."""

OTHER_TESTS = {
    *("test_benchmarks", "test_docs", "test_example_project", "test_examples"),
    *("test_mutants", "test_once", "test_package", "test_shake", "test_stores"),
    *("test_suite", "test_test_helpers", "test_translations"),
}
"""Those of something else than the core."""

FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", re.MULTILINE)
PASSED = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
"""All tests passed, or all are about another store."""

PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "--hypothesis-seed=0")


def core_files() -> list[str]:
    """Return the paths of the files in the repository; each name has to find some."""
    found: set[Path] = set()
    for pattern in CORE:
        files = set((ROOT / PACKAGE).glob(pattern))
        if not files:
            raise ValueError(f"CORE names {pattern!r}, which is not in {PACKAGE}.")
        found |= files
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def explanations() -> dict[tuple[str, str, str], str]:
    """Return why some mutants survive, by path, and the lines before and after."""
    entries = tomllib.loads(EXPLANATIONS.read_text("utf-8"))["explained"]
    return {
        (entry["path"], entry["was"], entry["becomes"]): entry["because"]
        for entry in entries
    }


def stale_explanations() -> list[str]:
    """Return the lines with an explanation that are in their files no more."""
    return [
        f"{path}: {line}"
        for path, was, _ in explanations()
        for line in was.splitlines()
        if line not in map(str.strip, (ROOT / path).read_text("utf-8").splitlines())
    ]


class Laboratory:
    """A copy of the repository with databases of its own, for one mutant at a time."""

    def __init__(self, folder: Path, number: int, arguments: list[str]):
        self._folder = folder
        self._arguments = arguments
        suffix = os.environ.get(SUFFIX_VARIABLE, "")
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(folder),
            "PYTHONUNBUFFERED": "1",
            SUFFIX_VARIABLE: f"{suffix}_mutant{number}",
        }
        tracked = ["git", "ls-files", "-z", "--cached", "--others"]
        names = subprocess.check_output([*tracked, "--exclude-standard"], cwd=ROOT)
        for name in filter(None, os.fsdecode(names).split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # deleted, and not committed yet
                shutil.copy(ROOT / name, folder / name)

    async def examine(self, mutant: Mutant) -> str | None:
        """Return what found the mutant, or ``None`` if it survived."""
        with self._mutated(mutant):
            return await self.failure(mutant.path)

    async def failure(self, path: str = "") -> str | None:
        """Run the tests, those nearest to the file first; return how one failed."""
        parts = self._parts(path)
        runs = [("sqlite", part) for part in parts if part]
        if missing_reason("postgres") is None:
            slower = map(str, chain(*map(self._folder.glob, SLOWER_TESTS)))
            others = [*slower, "--all", "--without-once"]
            runs.append(("postgres", [*chain(*parts), *others]))
        for store, tests in runs:
            if found := await self._failure(store, tests):
                return found
        return None

    @contextmanager
    def _mutated(self, mutant: Mutant) -> Iterator[None]:
        file = self._folder / mutant.path
        original = file.read_text("utf-8")
        file.write_text(mutant.code, "utf-8")
        try:
            yield
        finally:
            file.write_text(original, "utf-8")
            # The next mutant may have the same size, within the same second.
            Path(cache_from_source(str(file))).unlink(missing_ok=True)

    def _parts(self, path: str) -> list[list[str]]:
        # Each is a run of its own: pytest-django puts tests with a database first.
        module = path.removesuffix(".py").replace("/", ".")
        named: list[str] = []
        importing: list[str] = []
        others: list[str] = []
        for file in sorted(chain(*map(self._folder.glob, TESTS))):
            if file.stem in OTHER_TESTS:
                continue
            is_named = Path(path).stem in file.stem
            imports = module in file.read_text("utf-8")
            part = named if is_named else importing if imports else others
            part.append(str(file))
        return [named, importing, others]

    async def _failure(self, store: str, tests: list[str]) -> str | None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pytest", *PYTEST, *tests, *self._arguments),
            cwd=self._folder,
            env={**self._environment, STORE_VARIABLE: store},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        said = b""
        try:
            assert process.stdout is not None
            while piece := await asyncio.wait_for(process.stdout.read(65536), SILENCE):
                said += piece
            status = await asyncio.wait_for(process.wait(), SILENCE)
        except TimeoutError:
            return f"timed out on {store}, after {len(said.splitlines())} lines"
        finally:
            # A mutant may leave processes behind. Servers end without their parent.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        text = said.decode(errors="replace")
        first = [*FAILED.findall(text), *text.splitlines()[-1:], "a silent end"][0]
        return None if status in PASSED else f"killed on {store} by {first}"


async def examine_all(mutants: list[Mutant], jobs: int, arguments: list[str]) -> int:
    """Examine some mutants at a time; return how many survive without explanation."""
    reasons = explanations()
    survivors: list[Mutant] = []
    waiting = iter(mutants)

    async def work(laboratory: Laboratory) -> None:
        for mutant in waiting:
            reason = reasons.get((mutant.path, mutant.was, mutant.becomes))
            if reason:
                found = f"explained: {reason}"
            else:
                found = await laboratory.examine(mutant) or "SURVIVED"
            if found == "SURVIVED":
                survivors.append(mutant)
            print(f"{mutant}\n  {found}", flush=True)

    with tempfile.TemporaryDirectory(prefix="shedlock_mutants_") as folder:
        laboratories = [
            Laboratory(Path(folder) / str(number), number, arguments)
            for number in range(jobs)
        ]
        if failure := await laboratories[0].failure():
            raise SystemExit(f"Without any mutant: {failure}")
        async with asyncio.TaskGroup() as group:
            for laboratory in laboratories:
                group.create_task(work(laboratory))
        if failure := await laboratories[0].failure():
            raise SystemExit(f"Without any mutant, after all of them: {failure}")
    return len(survivors)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if the tests find each mutant of the sample, or it is explained."""
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED, help="another sample")
    parser.add_argument("--count", type=int, default=60, help="how many mutants")
    parser.add_argument("--only", nargs="+", metavar="PATH", help="files to mutate")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--list", action="store_true", help="only show the mutants")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    options = parser.parse_args(arguments)
    paths = options.only or core_files()
    codes = {path: (ROOT / path).read_text("utf-8") for path in paths}
    mutants = draw(codes, options.count, options.seed)
    if options.list:
        print(*mutants, sep="\n")
        return 0
    survivors = asyncio.run(examine_all(mutants, options.jobs, options.pytest))
    print(f"{len(mutants)} mutants, {survivors} survived without an explanation")
    stale = stale_explanations()
    for line in stale:
        print(f"{EXPLANATIONS.name} explains a line that is gone: {line}")
    return int(bool(survivors or stale))


if __name__ == "__main__":
    raise SystemExit(main())
