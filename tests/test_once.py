"""The suite itself: what runs with each store, what runs once, and what only in CI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps

from django_shedlock.models import LockRecord
from tests.support.examples import SETTINGS
from tests.support.locks import take
from tests.support.once import (
    ALL,
    ALL_VARIABLE,
    EACH_STORE,
    FOLDERS,
    ONCE,
    OPTION,
    PROPERTY,
    SLOW,
    TABLES,
    TESTS,
    Comparison,
    Recorder,
    form,
    left_out,
    mark,
    runs_once,
)
from tests.support.paths import ROOT
from tests.support.stores import STORE_VARIABLE

CONFTEST = "from tests.conftest import *"
SAMPLE = """
import pytest
from django_shedlock.models import LockRecord

@pytest.mark.django_db
def test_prop():
    LockRecord.objects.filter(name__startswith="prop").count()

@pytest.mark.each_store
@pytest.mark.django_db
def test_store():
    LockRecord.objects.filter(name{lookup}="other").count()
"""
TIERS = """
import pytest

@pytest.mark.django_db
@pytest.mark.each_store
def test_each_store(): ...

@pytest.mark.django_db
@pytest.mark.once
def test_once(): ...

@pytest.mark.django_db
def test_unmarked(): ...

def test_without_a_database(): ...

@pytest.mark.django_db
@pytest.mark.slow
def test_slow(): ...
"""


def run(
    folder: Path, sample: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a suite of its own, with the rules of this one."""
    Path(folder, "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    Path(folder, "conftest.py").write_text(CONFTEST)
    Path(folder, "sample_settings.py").write_text(SETTINGS)
    Path(folder, "test_sample.py").write_text(sample)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={
            **os.environ,
            ALL_VARIABLE: "",
            **environment,
            STORE_VARIABLE: "sqlite",
            "DJANGO_SETTINGS_MODULE": "sample_settings",
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.once
def test_statement_of_one_store_alone_fails_the_run(tmp_path: Path) -> None:
    """What other tests send, some test that runs with each store sends, too."""
    done = run(tmp_path, SAMPLE.format(lookup=""))
    assert done.returncode == 1
    [told] = [line for line in done.stdout.splitlines() if "test_prop: " in line]
    assert "SELECT COUNT(*)" in told
    assert "LIKE" in told
    done = run(tmp_path, SAMPLE.format(lookup="__startswith"))
    assert done.returncode == 0, done.stdout


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "environment", "names"),
    [
        (["-m", SLOW], {}, {"slow"}),
        ([], {}, {"each_store", "once", "unmarked", "without_a_database"}),
        ([OPTION], {ALL_VARIABLE: "1"}, {"each_store", "unmarked", "slow"}),
    ],
)
def test_marks_decide_what_runs(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], names: set[str]
) -> None:
    """Pytest knows them, and CI's variable is as good as the option."""
    done = run(tmp_path, TIERS, "--collect-only", "-q", *arguments, **environment)
    assert {*re.findall(r"test_sample.py::test_(\w+)", done.stdout)} == names


@pytest.mark.parametrize("name", [EACH_STORE, SLOW])
def test_pytest_chooses_by_marks_that_tests_have_by_place(name: str) -> None:
    """Who gives -m finds them, as if they were written there."""
    files = {EACH_STORE: "tests/sql/test_fields.py", SLOW: "tests/test_benchmarks.py"}
    options = ["--collect-only", "-q", "-m", name, *files.values()]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=ROOT,
        env={**os.environ, STORE_VARIABLE: "sqlite"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {*re.findall(r"^(\S+)::", done.stdout, re.MULTILINE)} == {files[name]}


def test_statement_without_leave_is_refused() -> None:
    """A test that does not run with each store reaches none of them by mistake."""
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        LockRecord.objects.count()


def item(
    *marks: str,
    fixtures: tuple[str, ...] = (),
    cls: Any = None,
    path: str = "test_sample.py",
    function: Any = None,
) -> Any:
    found = dict.fromkeys(marks, 1)
    return SimpleNamespace(
        cls=cls,
        fixturenames=fixtures,
        get_closest_marker=found.get,
        path=TESTS / path,
        function=function,
        add_marker=lambda name: found.update({name: 1}),
        marks=found,
    )


@pytest.mark.parametrize("everything", [False, True])
def test_what_uses_the_database_runs_with_each_store(everything: bool) -> None:
    """By a mark, by a fixture, or as one of Django's test cases."""
    from django.test import TestCase

    for using in (
        item("django_db"),
        item(fixtures=("live_server",)),
        item(cls=TestCase),
    ):
        assert runs_once(using, everything=everything) is not everything
        using.add_marker(EACH_STORE)
        assert not runs_once(using, everything=everything)
    assert runs_once(item(), everything=everything)
    assert runs_once(item("django_db", ONCE), everything=everything)
    # No other store's run has it.
    assert not runs_once(item("sqlite_only"), everything=everything)


@pytest.mark.parametrize(
    ("path", "marks", "expected"),
    [
        ("locks/test_lock.py", {"django_db"}, {EACH_STORE}),
        ("locks/test_lock.py", set(), set()),
        ("locks/test_lock.py", {"django_db", ONCE}, set()),
        ("locks/test_lock.py", {"django_db", "sqlite_only"}, set()),
        ("locks/test_lock.py", {"django_db", SLOW}, set()),
        ("console/cli/test_check.py", {"django_db"}, set()),
        ("browser/test_list.py", {"django_db", ONCE}, {SLOW}),
        ("browser/test_list.py", {"django_db", EACH_STORE}, set()),
        ("/elsewhere/tests/browser/test_list.py", {"django_db"}, set()),
    ],
)
def test_mark_by_place(path: str, marks: set[str], expected: set[str]) -> None:
    """A folder or file has its mark, unless the test has another one."""
    made = item(*marks, path=path)
    mark(made)
    assert made.marks.keys() - marks == expected


def test_races_of_other_stores_are_slow() -> None:
    """Those of the database are what each store is for."""
    from django_shedlock.testing.contract.races import RaceContract

    race = RaceContract.test_killed_at_any_moment
    made = item(path="providers/redis/test_contract.py", function=race)
    mark(made)
    assert made.marks.keys() == {SLOW}
    made = item("django_db", path="providers/database/test_x.py", function=race)
    mark(made)
    assert made.marks.keys() == {"django_db", EACH_STORE}


def test_places_are_there() -> None:
    """A folder or a file that was renamed would lose its mark."""
    assert FOLDERS.keys() == {EACH_STORE, SLOW}
    for place in (place for places in FOLDERS.values() for place in places):
        assert (TESTS / place).exists(), place


FIRST = {"each_store", "once", "unmarked", "without a database"}
NAMED = {"args": ["tests/test_sample.py"]}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, FIRST),
        ({OPTION: True}, {"each_store"}),
        ({ALL: True}, {*FIRST, "slow"}),
        ({ALL: True, OPTION: True}, {"each_store", "unmarked", "slow"}),
        ({"markexpr": "not slow"}, {*FIRST, "slow"}),  # then pytest leaves it out
        (NAMED, {*FIRST, "slow"}),
        ({**NAMED, OPTION: True}, {"each_store"}),
    ],
)
def test_left_out(options: dict[str, Any], expected: set[str]) -> None:
    """Slow tests, unless they are asked for; with other stores, what runs once."""
    config: Any = SimpleNamespace(
        getoption=lambda name, default=None: options.get(name, default),
        getini={"testpaths": ["tests"]}.get,
        args=options.get("args", ["tests"]),
    )
    items = {
        "each_store": item("django_db", EACH_STORE),
        "once": item("django_db", ONCE),
        "unmarked": item("django_db"),
        "without a database": item(),
        "slow": item("django_db", SLOW),
    }
    out = left_out(items.values(), config)
    assert {name for name, each in items.items() if each not in out} == expected


def test_forms_of_statements() -> None:
    """Numbers and the lengths of lists make no other statement."""
    first, second = (
        form(f"SELECT a FROM shedlock WHERE name IN ({marks}) LIMIT {limit}")
        for marks, limit in (("%s, %s", 21), ("%s", 3))
    )
    assert first == second
    rows = [form(f"VALUES {marks}") for marks in ("(%s)", "(%s), (%s), (%s)")]
    assert rows[0] == rows[1]
    assert form("DELETE FROM shedlock") != form("UPDATE shedlock")


@pytest.mark.django_db
def test_statements_on_the_locks_tables_are_noted() -> None:
    """Each statement of the library is, and none of the test's own."""
    from tests.conftest import statements

    statements.take()
    take("job")
    words = {statement.partition(" ")[0] for statement in statements.take()}
    assert {"UPDATE", "INSERT"} <= words
    LockRecord.objects.count()
    assert statements.take() == set()
    recorder = Recorder()
    recorder.note("SELECT 1 FROM django_session")
    assert recorder.take() == set()


def test_guard_knows_each_table() -> None:
    """A statement to any of the library's tables counts."""
    labels = ("django_shedlock", "shedlock_console")
    models = [
        model for label in labels for model in apps.get_app_config(label).get_models()
    ]
    assert len(models) == 4
    for model in models:
        assert TABLES.search(f'UPDATE "{model._meta.db_table}" SET')
    assert not TABLES.search('UPDATE "shedlocks" SET')


def test_comparison_names_the_test() -> None:
    """The report says who sent the statement."""
    comparison = Comparison()
    tests = {
        "once": {ONCE},
        "unmarked": set(),
        "slow": {SLOW, "servers_only"},
        "each": {EACH_STORE},
        "servers": {"servers_only"},
        "sqlite": {"sqlite_only"},
        "postgres": {"postgres_only", EACH_STORE},
    }
    for name, marks in tests.items():
        sent = ["common", name, *({"postgres": ["once"]}.get(name, []))]
        comparison.add(
            pytest.TestReport(
                f"tests/x.py::{name}",
                ("x.py", 1, name),
                dict.fromkeys(marks, 1),
                "passed",
                None,
                "teardown",
                user_properties=[(PROPERTY, statement) for statement in sent],
            )
        )
    alone = ("once", "slow", "unmarked")
    assert list(comparison.faults()) == [
        f"tests/x.py::{name}: {name}" for name in alone
    ]
