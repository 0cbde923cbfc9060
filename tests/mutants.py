"""
Break the library in one place at a time, and see whether the tests fail.

``python -m tests.mutants`` draws as many lines as ``--count`` says, and cosmic-ray
changes something in each: an operator, a number, a condition or a decorator. In a copy
of the repository, it runs the tests that stand nearest to the changed file, and then
the whole suite. A mutant that passes all tests survives, and fails the run. The same
``--seed`` draws the same mutants; without one, the week decides. If nobody can see what
a change does, end the line with ``# pragma: no mutate``.

First all of these tests have to pass without a change. Else a server that is missing
would look like tests that find the mutants. No mutants are drawn from the providers of
MongoDB and DynamoDB, unless ``MONGODB_URL`` and ``DYNAMODB_URL`` name a server.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import chdir, suppress
from datetime import date
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.tools.filters.operators_filter import OperatorsFilter
from cosmic_ray.tools.filters.pragma_no_mutate import PragmaNoMutateFilter
from cosmic_ray.tools.report import report
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import WorkItem, WorkResult

from tests.support.paths import ROOT

Command = tuple[str, ...]

PACKAGE = Path("django_shedlock")
NOT_DRAWN = {"migrations", "testing"}
"""Folders of the package: what nobody changes any more, and what only tests use."""
SERVER_VARIABLES = {
    "providers/mongodb": "MONGODB_URL",
    "providers/dynamodb": "DYNAMODB_URL",
}
"""What names the server of these files: their tests start none."""
CONFIGURATION = Path(__file__).with_suffix(".toml")
COUNT = 50
"""So many mutants fit into a job of GitHub, which ends after six hours."""
TIMEOUT_SECONDS = 1800
PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--timeout=240")
NEAR = (sys.executable, "-m", "pytest", "--numprocesses=2", *PYTEST)
SUITE = (sys.executable, "-m", "tests", *PYTEST)
NO_TEST_TELLS = re.compile(r"\bTYPE_CHECKING\b|@overload\b|\blogger\.")
"""Lines for type checkers and for logs."""


def files() -> list[Path]:
    """Return the files that have mutants, from the root of the repository."""
    found = (path.relative_to(ROOT) for path in (ROOT / PACKAGE).rglob("*.py"))
    return sorted(
        path for path in found if NOT_DRAWN.isdisjoint(path.parts) and has_server(path)
    )


def has_server(path: Path) -> bool:
    """Return whether the environment names the server that the file's tests need."""
    place = path.relative_to(PACKAGE).as_posix()
    return all(
        os.environ.get(variable)
        for start, variable in SERVER_VARIABLES.items()
        if place.startswith(start)
    )


def prepare(session: Path, paths: list[Path], count: int, seed: int) -> None:
    """Write a session of cosmic-ray with so many mutants of these files."""
    chance = random.Random(seed)
    # First the files: cosmic-ray takes minutes to find all mutants of all of them.
    weights = [path.stat().st_size for path in paths]
    drawn = Counter(chance.choices(paths, weights, k=count))
    with use_db(session) as database:
        init(sorted(drawn), database, {})
        OperatorsFilter().main([str(session), str(CONFIGURATION)])
        PragmaNoMutateFilter().main([str(session)])
        mutants = [
            mutant
            for path in sorted(drawn)
            for mutant in draw(database, path, drawn[path], chance)
        ]
        database.clear()
        database.add_work_items(mutants)


def draw(
    database: WorkDB, path: Path, count: int, chance: random.Random
) -> Iterator[WorkItem]:
    """Return one mutant of each of so many lines of a file."""
    lines = path.read_text("utf-8").splitlines()
    by_line: dict[int, list[WorkItem]] = {}
    for item in database.pending_work_items:
        [mutation] = item.mutations
        number = mutation.start_pos[0]
        if mutation.module_path != path or NO_TEST_TELLS.search(lines[number - 1]):
            continue
        by_line.setdefault(number, []).append(item)
    for number in chance.sample(sorted(by_line), min(count, len(by_line))):
        # The database has them in a random order.
        yield chance.choice(
            sorted(by_line[number], key=lambda item: repr(item.mutations))
        )


def stages(path: Path) -> Iterator[Command]:
    """Return the commands that look for a mutant of this file, the quickest first."""
    place = path.relative_to(PACKAGE).with_suffix("")
    while place.name:
        folder = Path("tests", place)
        beside = sorted(folder.parent.glob(f"test_{place.name}*.py"))
        if tests := [folder] if folder.is_dir() else beside:
            yield *NEAR, *map(str, tests)
        place = place.parent
    yield SUITE


def widest_stages(session: Path) -> list[Command]:
    """Return the commands that run all tests that look for the session's mutants."""
    with use_db(session, WorkDB.Mode.open) as database:
        mutants = database.pending_work_items
        paths = sorted({mutant.mutations[0].module_path for mutant in mutants})
    # The last but one is of the outermost folder, which has the tests of those before.
    widest = (command for path in paths for command in list(stages(path))[-2:])
    return list(dict.fromkeys(widest))


def examine(mutant: WorkItem, commands: Iterable[Command]) -> WorkResult:
    """Return what came of the first command that fails, or of the last one."""
    for command in commands:
        # Of some files all tests are about another store: then pytest ends with 5.
        script = f"{shlex.join(command)} || test $? -eq 5"
        line = shlex.join(["sh", "-c", script])
        result = mutate_and_test(mutant.mutations, line, TIMEOUT_SECONDS)
        if result.is_killed:
            break
    return result


def examine_all(session: Path) -> int:
    """Examine the mutants of the session; return how many survive."""
    survivors = 0
    with use_db(session, WorkDB.Mode.open) as database:
        for number, mutant in enumerate(database.pending_work_items, 1):
            [mutation] = mutant.mutations
            begin = time.monotonic()
            result = examine(mutant, stages(mutation.module_path))
            minutes = (time.monotonic() - begin) / 60
            database.set_result(mutant.job_id, result)
            survivors += not result.is_killed
            place = f"{mutation.module_path}:{mutation.start_pos[0]}"
            outcome = f"{result.test_outcome}, {minutes:.1f} minutes"
            print(f"{number}. {place} {outcome}", flush=True)
    return survivors


def copy_repository(folder: Path) -> None:
    """Copy what belongs to the project, also what is not committed yet."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(listed, cwd=ROOT)
    for name in filter(None, os.fsdecode(names).split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # deleted, and not committed yet
            shutil.copy(ROOT / name, folder / name)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if the tests find each mutant that is drawn."""
    year, week, _ = date.today().isocalendar()
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="how many mutants")
    parser.add_argument("--seed", type=int, default=100 * year + week)
    parser.add_argument("--only", nargs="+", type=Path, metavar="PATH")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="shedlock_mutants_") as name:
        copy, session = Path(name, "repository"), Path(name, "session.sqlite")
        copy_repository(copy)
        os.environ["PYTHONPATH"] = str(copy)  # also for the processes of tests
        with chdir(copy):
            paths = options.only or files()
            prepare(session, paths, options.count, options.seed)
            unchanged = examine(WorkItem("unchanged", ()), widest_stages(session))
            if unchanged.is_killed:
                print(unchanged.output)
                return 1
            survivors = examine_all(session)
        report([str(session), "--surviving-only", "--show-diff"], standalone_mode=False)
    return int(survivors > 0)


if __name__ == "__main__":
    raise SystemExit(main())
