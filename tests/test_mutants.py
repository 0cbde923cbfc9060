"""The mutants of the library: which are drawn, and which tests look for them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="not installed: the group 'mutants'")

from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import WorkItem

from tests import mutants
from tests.support.paths import ROOT

pytestmark = pytest.mark.once

PRICES = """\
import logging
from typing import TYPE_CHECKING

logger = logging.getLogger(__name__)
if TYPE_CHECKING and 1 + 1:
    from decimal import Decimal
logger.info("%s", 1 + 1)
PRECISION = 2  # pragma: no mutate
NET = 100
TAX = 19
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a session's path in a folder of a module and a program that tests it."""
    monkeypatch.chdir(tmp_path)
    Path("prices.py").write_text(PRICES)
    Path("rates.py").write_text("RATE = 1\n")
    Path("check.py").write_text("import prices\nassert prices.NET == 100\n")
    return tmp_path / "session.sqlite"


def drawn(session: Path, *names: str, count: int = 9, seed: int = 1) -> list[WorkItem]:
    """Return the mutants of these modules that a seed draws."""
    mutants.prepare(session, [Path(name) for name in names], count, seed)
    with use_db(session) as database:
        return list(database.pending_work_items)


def test_lines_that_no_test_can_tell_are_not_drawn(shop: Path) -> None:
    """Lines for type checkers and logs, and with the pragma, have no mutants."""
    places = {
        (str(mutation.module_path), mutation.start_pos[0])
        for mutant in drawn(shop, "prices.py", "rates.py", count=50)
        for mutation in mutant.mutations
    }
    assert places == {("prices.py", 9), ("prices.py", 10), ("rates.py", 1)}


def test_seed_decides_on_the_mutants(shop: Path) -> None:
    """One seed always draws the same mutants, and another one draws others."""
    first, again, *others = (
        [mutant.mutations for mutant in drawn(shop, "prices.py", count=1, seed=seed)]
        for seed in (1, 1, 2, 3)
    )
    assert first == again
    assert any(other != first for other in others)


def test_mutant_that_no_test_finds_survives(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program tests one of the two numbers."""
    check = (sys.executable, "-B", "check.py")
    monkeypatch.setattr(mutants, "stages", lambda path: [check])
    drawn(shop, "prices.py")
    assert mutants.examine_all(shop) == 1
    said = capsys.readouterr().out
    assert "prices.py:9 TestOutcome.KILLED, 0.0 minutes" in said
    assert "prices.py:10 TestOutcome.SURVIVED, 0.0 minutes" in said
    assert Path("prices.py").read_text() == PRICES


def test_mutant_whose_tests_hang_is_killed(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mutant counts as killed if its tests do not end within the timeout."""
    hanging = "import time, rates\nif rates.RATE != 1:\n    time.sleep(20)\n"
    Path("check.py").write_text(hanging)
    check = (sys.executable, "-B", "check.py")
    monkeypatch.setattr(mutants, "stages", lambda path: [check])
    monkeypatch.setattr(mutants, "TIMEOUT_SECONDS", 1)
    drawn(shop, "rates.py")
    assert mutants.examine_all(shop) == 0
    assert "rates.py:1 TestOutcome.KILLED" in capsys.readouterr().out


def test_stage_without_tests_finds_nothing() -> None:
    """Where all tests near a file are about another store, the next stage decides."""
    unchanged = WorkItem("unchanged", ())
    nothing, failure = ("sh", "-c", "exit 5"), ("sh", "-c", "exit 1")
    assert not mutants.examine(unchanged, [nothing]).is_killed
    assert mutants.examine(unchanged, [nothing, failure]).is_killed


@pytest.mark.parametrize(
    ("file", "near"),
    [
        ("locks/lock.py", ["tests/locks/test_lock.py", "tests/locks"]),
        ("background.py", ["tests/test_background.py"]),
        ("providers/redis.py", ["tests/providers/redis", "tests/providers"]),
        ("views.py", []),
    ],
)
def test_nearest_tests_come_first(
    file: str, near: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """First come the tests named like the file, then its folder's, then the suite."""
    monkeypatch.chdir(ROOT)
    *first, last = mutants.stages(mutants.PACKAGE / file)
    assert [command[-1] for command in first] == near
    assert last == mutants.SUITE


def test_unchanged_library_passes_the_tests_of_each_stage(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outermost folder of each drawn file is tested, and the suite, both once."""
    folders = {
        "prices.py": [("folder/test_prices.py",), ("folder",), ("suite",)],
        "rates.py": [("folder",), ("suite",)],
    }
    monkeypatch.setattr(mutants, "stages", lambda path: iter(folders[str(path)]))
    drawn(shop, "prices.py", "rates.py", count=50)
    assert mutants.widest_stages(shop) == [("folder",), ("suite",)]


@pytest.mark.parametrize("store", ["mongodb", "dynamodb"])
def test_provider_without_its_server_is_not_drawn(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a URL its tests are skipped, and would find no mutant."""
    path = mutants.PACKAGE / "providers" / f"{store}.py"
    variable = f"{store.upper()}_URL"
    monkeypatch.delenv(variable, raising=False)
    assert path not in mutants.files()
    monkeypatch.setenv(variable, "http://127.0.0.1:8000")
    assert path in mutants.files()


def test_whole_library_is_drawn_from() -> None:
    """All files are, except for migrations and what helps to test."""
    found = {path.as_posix() for path in mutants.files()}
    assert {
        "django_shedlock/locks/lock.py",
        "django_shedlock/console/admin/rows.py",
        "django_shedlock/contrib/sentry/apps.py",
    } <= found
    assert not any("/migrations/" in path or "/testing/" in path for path in found)
