"""The sample of mutants: what is drawn, and what never is."""

from __future__ import annotations

import ast
import asyncio
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="not installed: the group 'mutants'")

from tests import mutants
from tests.mutants import Laboratory, core_files, explanations
from tests.support.mutations import Mutant, changed_lines, draw, places_of
from tests.support.paths import ROOT

pytestmark = pytest.mark.once

CODES = {
    path: (ROOT / path).read_text("utf-8")
    for path in (
        "django_shedlock/execution/executor.py",
        "django_shedlock/execution/active.py",
    )
}


def everything(code: str) -> list[Mutant]:
    """Return one mutant of each place of the code."""
    return draw({"example.py": code}, len(places_of(code)), seed=1)


def test_seed_decides_on_the_sample() -> None:
    """One seed always draws the same mutants, and another one draws others."""
    assert draw(CODES, 10, seed=1) == draw(CODES, 10, seed=1)
    assert draw(CODES, 10, seed=1) != draw(CODES, 10, seed=2)


def test_each_file_has_a_mutant() -> None:
    """However small a file is, it is in the sample."""
    for seed in range(5):
        assert {mutant.path for mutant in draw(CODES, 2, seed)} == CODES.keys()


def test_mutant_has_one_change() -> None:
    """Each mutant is valid Python that differs in one place, and says in which."""
    for path, code in CODES.items():
        for mutant in draw({path: code}, 100, seed=1):
            assert ast.dump(ast.parse(mutant.code)) != ast.dump(ast.parse(code))
            assert len(mutant.was.splitlines()) == 1
            assert mutant.was == code.splitlines()[mutant.line - 1].strip()
            assert (mutant.was, mutant.becomes) == changed_lines(code, mutant.code)


@pytest.mark.parametrize(
    "code",
    [
        '"""Two is 1 + 1, and not 3."""\n',
        "def job(name: str | None) -> int | None: ...\n",
        "def job(name, /, *, wait): ...\n",
        "answer: int | None = name\n",
        "answer: Literal[1]\n",
        "if TYPE_CHECKING:\n    many = 1 + 1\n",
        "__all__ = ['one' + 'other']\n",
        "@overload\ndef job(): ...\n",
        "logger.warning('after %s seconds', 1 + 1)\n",
    ],
)
def test_what_no_test_could_tell_is_left_alone(code: str) -> None:
    """Annotations, docstrings and the texts of logs have no mutants."""
    assert places_of(code) == {}


@pytest.mark.parametrize(
    ("code", "becomes"),
    [
        ("answer: int | None = a and b\n", "answer: int | None = a or b"),
        ("@property\ndef job(): ...\n", ""),
        ("if done: run()\n", "if not done: run()"),
        ("try: a()\nexcept E: b()\n", "except CosmicRayTestingException: b()"),
    ],
)
def test_what_a_test_can_tell_is_changed(code: str, becomes: str) -> None:
    """What stands beside them has mutants."""
    assert becomes in {mutant.becomes for mutant in everything(code)}


@pytest.fixture
def laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    """Return one for a repository of a file and its test, on SQLite only."""
    root = tmp_path / "repository"
    (root / "shop").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "shop" / "prices.py").write_text("NET = 100\nTAX = 19\n")
    (root / "tests" / "test_prices.py").write_text(
        "from shop import prices\n\n"
        "def test_net() -> None:\n    assert prices.NET == 100\n"
    )
    subprocess.run(["git", "init", "--quiet", root], check=True)
    monkeypatch.setattr(mutants, "ROOT", root)
    monkeypatch.setattr(mutants, "missing_reason", lambda store: "not needed")
    plugins = ["-p", "no:django"]
    return Laboratory(tmp_path / "copy", 0, plugins)


def verdict(laboratory: Laboratory, code: str) -> str | None:
    mutant = Mutant("shop/prices.py", 1, "by hand", code, "", "")
    return asyncio.run(laboratory.examine(mutant))


def test_verdict_names_the_test_that_failed(laboratory: Laboratory) -> None:
    """A mutant is found by a test, or survives; the next one has a clean copy."""
    found = verdict(laboratory, "NET = 101\nTAX = 19\n")
    assert found == "killed on sqlite by tests/test_prices.py::test_net"
    assert asyncio.run(laboratory.failure()) is None
    assert verdict(laboratory, "NET = 100\nTAX = 20\n") is None


def test_run_without_tests_finds_nothing(laboratory: Laboratory) -> None:
    """Where all tests near a file are about another store, the others decide."""
    laboratory._arguments += ["-k", "another"]
    assert verdict(laboratory, "NET = 101\nTAX = 19\n") is None


def test_mutant_that_hangs_is_found(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that says nothing any more is ended, with all of its processes."""
    monkeypatch.setattr(mutants, "SILENCE", 2)
    found = verdict(laboratory, "import threading\nthreading.Event().wait()\n")
    assert found is not None
    assert found.startswith("timed out on sqlite")


def test_core_is_there() -> None:
    """Each name in CORE finds a file, and a name that finds none is an error."""
    assert "django_shedlock/locks/lock.py" in core_files()


def test_name_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that moved is not left out in silence."""
    monkeypatch.setattr(mutants, "CORE", ("moved.py",))
    with pytest.raises(ValueError, match=r"moved\.py"):
        core_files()


def test_explanations_are_of_code_that_is_there() -> None:
    """A line that changed needs a new look at its mutants."""
    assert mutants.stale_explanations() == []
    assert all(reason.endswith(".") for reason in explanations().values())
