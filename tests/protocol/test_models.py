"""The models of the protocol, searched by spin: with all rules, and without one."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE

MODELS = Path(__file__).parent
PAGE = ROOT / "docs" / "explanation" / "protocol.rst"
TOOLS = ("spin", "gcc")
COMPILE = ("gcc", "-O1", "-w", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c")
SEARCH = ("./pan", "-c0", "-m100000", "-w22")
"""Goes on after an error, so that it finds all properties that are violated."""

SCENES = {
    "three workers": ("lock", "-DWORKERS=3 -DSTARTS=1"),
    "starts again": ("lock", "-DWORKERS=2 -DSTARTS=2 -DLAST=4"),
    "an operator": ("lock", "-DWORKERS=2 -DSTARTS=1 -DSTEPS=2 -DACTIONS=1"),
    "a lost answer": ("lock", "-DWORKERS=2 -DSTARTS=1 -DSTEPS=2 -DLATE=1"),
    "both": ("lock", "-DWORKERS=2 -DSTARTS=1 -DACTIONS=1 -DLATE=1"),
    "two starts": ("tick", "-DSTARTS=2 -DMESSAGES=1 -DLATE=1"),
    "three starts": ("tick", "-DSTARTS=3 -DFIRST=6 -DLAST=8"),
}
REACHES_ALL = {"lock": "both", "tick": "two starts"}
"""The scenes in which each step of the model must be taken."""

TWO = "-DWORKERS=2 -DSTARTS=1"
THREE_STARTS = "-DSTARTS=3 -DFIRST=5 -DLAST=7"
HOLDERS = "at_most_one_valid_holder"
FENCED = "fenced_write_is_of_the_last_holder"
ACCEPTED = "accepted_write_is_of_no_older_holder"
RELEASED = "released_lock_is_acquirable"
DEAD_END = "invalid end state"
ONCE = "each_tick_is_begun_once"
SUCCEEDED = "succeeded_tick_is_not_begun_again"
NEWEST = "run_is_of_the_newest_tick"

RULES = [
    ("lock", "NO_LEASE_IN_ACQUIRE", TWO, {HOLDERS}),
    ("lock", "NO_STORES_CLOCK", TWO, {HOLDERS}),
    ("lock", "NO_COUNT_FROM_ASKING", TWO, {HOLDERS}),
    ("lock", "NO_OWNER_IN_RELEASE", "-DWORKERS=3 -DSTARTS=1 -DSTEPS=0", {HOLDERS}),
    ("lock", "NO_OWNER_IN_EXTEND", TWO, {HOLDERS}),
    ("lock", "NO_OWNER_IN_REFRESH", f"{TWO} -DACTIONS=1", {HOLDERS}),
    ("lock", "NO_OWNER_IN_FENCE", TWO, {FENCED}),
    ("lock", "NO_ROW_IN_FENCE", TWO, {FENCED}),
    ("lock", "NO_OWNER_OF_TOKEN", TWO, {ACCEPTED}),
    ("lock", "NO_TOKEN_GROWTH", TWO, {ACCEPTED}),
    ("lock", "NO_TOKEN_CHECK", TWO, {ACCEPTED}),
    ("lock", "NO_RELEASED_IN_EXTEND", f"{TWO} -DLATE=1", {RELEASED}),
    ("lock", "NO_END_OF_LEASE", TWO, {DEAD_END}),
    ("tick", "NO_TOKEN_GUARD", "-DSTARTS=2", {ONCE, SUCCEEDED}),
    ("tick", "NO_NEW_TICK", "-DSTARTS=2", {ONCE, SUCCEEDED}),
    ("tick", "NO_GROWTH_OF_TICK", THREE_STARTS, {ONCE, SUCCEEDED}),
    ("tick", "NO_SUCCESS_IN_RETRY", "-DSTARTS=2", {SUCCEEDED}),
    ("tick", "NO_NEW_TICK_TO_CATCH_UP", "-DSTARTS=3 -DLAST=5", {ONCE}),
    ("tick", "NO_OWNER_IN_GIVE_BACK", THREE_STARTS, {ONCE, SUCCEEDED}),
    ("tick", "NO_REPEATED_TICK", "-DSTARTS=3 -DLAST=5", {ONCE}),
    ("tick", "NO_HOLDS_UNTIL", "-DSTARTS=2", {NEWEST}),
    ("tick", "NO_STORES_CLOCK", "-DSTARTS=2", {NEWEST}),
]

missing = [tool for tool in TOOLS if shutil.which(tool) is None]
needs_spin = pytest.mark.skipif(
    bool(missing), reason=f"not installed: {', '.join(missing)}"
)


@dataclass
class Search:
    """What spin found in all states that a model can reach."""

    output: str

    @classmethod
    def of(cls, model: str, options: str, folder: Path) -> Search:
        """Let spin write a program that searches, and run it."""
        source = str(MODELS / f"{model}.pml")
        run("spin", "-a", *options.split(), source, folder=folder)
        run(*COMPILE, folder=folder)
        return cls(run(*SEARCH, folder=folder))

    @property
    def is_complete(self) -> bool:
        """Whether it has seen every state."""
        cut_short = ("Search not completed", "too small", "out of memory")
        return "Full statespace search" in self.output and not any(
            phrase in self.output for phrase in cut_short
        )

    @property
    def violated(self) -> set[str]:
        """The properties that do not hold."""
        pattern = r"^pan:\d+: (?:assertion violated )?(.+?) \(at depth \d+\)$"
        return set(re.findall(pattern, self.output, re.MULTILINE))

    @property
    def never_taken(self) -> list[str]:
        """The model's lines that it never reached, but for the ends of the endless."""
        lines = re.findall(r"^\t(\S+\.pml:\d+), state \d+, (.+)$", self.output, re.M)
        return [f"{place} {step}" for place, step in lines if step != '"-end-"']


def run(*command: str, folder: Path) -> str:
    """Return what a command printed; it must succeed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=3 * PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def switches(model: str) -> Iterator[str]:
    source = (MODELS / f"{model}.pml").read_text(encoding="utf-8")
    yield from re.findall(r"^#ifdef (NO_\w+)", source, re.MULTILINE)


@needs_spin
@pytest.mark.parametrize("scene", SCENES)
def test_protocol_keeps_its_promises(scene: str, tmp_path: Path) -> None:
    """With all rules no state that can be reached violates a property."""
    model, options = SCENES[scene]
    search = Search.of(model, options, tmp_path)
    assert search.is_complete, search.output
    assert search.violated == set()
    if REACHES_ALL[model] == scene:
        assert search.never_taken == []


@needs_spin
@pytest.mark.parametrize(
    ("model", "rule", "options", "violated"),
    RULES,
    ids=[f"{model}-{rule}" for model, rule, *_ in RULES],
)
def test_protocol_needs_each_rule(
    model: str, rule: str, options: str, violated: set[str], tmp_path: Path
) -> None:
    """Without the rule the search finds what it protects, and nothing else."""
    search = Search.of(model, f"{options} -D{rule}", tmp_path)
    assert search.is_complete, search.output
    assert search.violated == violated


@pytest.mark.parametrize("model", ["lock", "tick"])
def test_each_switch_is_tried(model: str) -> None:
    """The table has each rule of the model, and no other."""
    tried = [rule for name, rule, *_ in RULES if name == model]
    assert sorted(tried) == sorted(switches(model))


def test_page_has_each_rule() -> None:
    """The documentation names each rule with what happens without it, and no other."""
    listed = re.findall(r"``(NO_\w+)``", PAGE.read_text(encoding="utf-8"))
    assert sorted(set(listed)) == sorted({rule for _, rule, *_ in RULES})
