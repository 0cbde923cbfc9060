"""The suite itself: what runs with each store, and what runs once."""

from __future__ import annotations

import os
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
    OPTION,
    PROPERTY,
    TABLES,
    Comparison,
    Recorder,
    form,
    left_out,
    runs_once,
)
from tests.support.paths import ROOT
from tests.support.stores import STORE_VARIABLE

CONFTEST = "from tests.conftest import *"
SAMPLE = """
import pytest
from django_shedlock.models import LockRecord

@pytest.mark.once
@pytest.mark.django_db
def test_prop():
    LockRecord.objects.filter(name__startswith="prop").count()

@pytest.mark.django_db
def test_store():
    LockRecord.objects.filter(name{lookup}="other").count()
"""


def run(folder: Path, sample: str) -> subprocess.CompletedProcess[str]:
    """Run a suite of its own, with the rules of this one."""
    Path(folder, "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    Path(folder, "conftest.py").write_text(CONFTEST)
    Path(folder, "sample_settings.py").write_text(SETTINGS)
    Path(folder, "test_sample.py").write_text(sample)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=folder,
        env={
            **os.environ,
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
    """What tests with the mark send, some test that runs with each store sends, too."""
    done = run(tmp_path, SAMPLE.format(lookup=""))
    assert done.returncode == 1
    [told] = [line for line in done.stdout.splitlines() if "test_prop: " in line]
    assert "SELECT COUNT(*)" in told
    assert "LIKE" in told
    done = run(tmp_path, SAMPLE.format(lookup="__startswith"))
    assert done.returncode == 0, done.stdout


def test_statement_without_leave_is_refused() -> None:
    """A test that does not run with each store reaches none of them by mistake."""
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        LockRecord.objects.count()


def item(*marks: str, fixtures: tuple[str, ...] = (), cls: Any = None) -> Any:
    return SimpleNamespace(
        cls=cls, fixturenames=fixtures, get_closest_marker=dict.fromkeys(marks, 1).get
    )


def test_what_uses_the_database_runs_with_each_store() -> None:
    """By a mark, by a fixture, or as one of Django's test cases."""
    from django.test import TestCase

    assert not runs_once(item("django_db"))
    assert not runs_once(item(fixtures=("live_server",)))
    assert not runs_once(item(cls=TestCase))
    assert runs_once(item())
    assert runs_once(item("django_db", "once"))
    assert not runs_once(item("sqlite_only"))  # no other store's run has it


@pytest.mark.parametrize("is_first", [True, False])
def test_other_stores_leave_out_what_runs_once(*, is_first: bool) -> None:
    """The first store's run has all tests."""
    config: Any = SimpleNamespace(getoption={OPTION: not is_first}.get)
    once, always = item(), item("django_db")
    assert left_out([once, always], config) == ([] if is_first else [once])


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
    models = list(apps.get_app_config("django_shedlock").get_models())
    assert len(models) == 4
    for model in models:
        assert TABLES.search(f'UPDATE "{model._meta.db_table}" SET')
    assert not TABLES.search('UPDATE "shedlocks" SET')


def test_comparison_names_the_test() -> None:
    """The report says who sent the statement."""
    comparison = Comparison()
    tests = (("a", {"once": 1}), ("b", {}), ("a", {"sqlite_only": 1}))
    for name, keywords in tests:
        properties = [(PROPERTY, statement) for statement in ("common", name)]
        comparison.add(
            pytest.TestReport(
                f"tests/x.py::{name}",
                ("x.py", 1, name),
                keywords,
                "passed",
                None,
                "teardown",
                user_properties=properties,
            )
        )
    assert list(comparison.faults()) == ["tests/x.py::a: a"]
