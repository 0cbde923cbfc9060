"""The model of the protocol, searched by spin: with all rules, and without each one."""

from __future__ import annotations

import pkgutil
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import profiles
from tests.support.paths import ROOT
from tests.support.waiting import STARTUP_PATIENCE

MODEL = Path(__file__).with_name("lock.pml")
SOURCE = MODEL.read_text(encoding="utf-8")
PAGE = ROOT / "docs" / "explanation" / "protocol.rst"
TOOLS = ("spin", "gcc")
COMPILE = ("gcc", "-w", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c")
SEARCH = ("./pan", "-m100000", "-w20")

ALL_STEPS = "all steps"
"""The scene in which each step of the model must be taken."""
SCENES = {ALL_STEPS: "-DWORKERS=2 -DSTARTS=1 -DACTIONS=1 -DLATE=1 -DLAST=2"}
WIDER_SCENES = {
    "three workers": "-DWORKERS=3 -DSTARTS=1",
    "starts again": "-DWORKERS=2 -DSTARTS=2 -DLAST=4",
    "an operator": "-DWORKERS=2 -DSTARTS=1 -DSTEPS=2 -DACTIONS=1",
    "a lost answer": "-DWORKERS=2 -DSTARTS=1 -DSTEPS=2 -DLATE=1",
    "both": "-DWORKERS=2 -DSTARTS=1 -DACTIONS=1 -DLATE=1",
}
if profiles.is_nightly():
    SCENES |= WIDER_SCENES

TWO = "-DWORKERS=2 -DSTARTS=1"
HOLDERS = "at_most_one_valid_holder"
FENCED = "fenced_write_is_of_the_last_holder"
ACCEPTED = "accepted_write_is_of_no_older_holder"
RELEASED = "released_lock_is_acquirable"
DEAD_END = "invalid end state"

RULES = {
    "NO_LEASE_IN_ACQUIRE": (TWO, HOLDERS),
    "NO_STORES_CLOCK": (TWO, HOLDERS),
    "NO_COUNT_FROM_ASKING": (TWO, HOLDERS),
    "NO_OWNER_IN_RELEASE": ("-DWORKERS=3 -DSTARTS=1 -DSTEPS=0", HOLDERS),
    "NO_OWNER_IN_EXTEND": (TWO, HOLDERS),
    "NO_OWNER_IN_REFRESH": (f"{TWO} -DACTIONS=1", HOLDERS),
    "NO_OWNER_IN_FENCE": (TWO, FENCED),
    "NO_ROW_IN_FENCE": (TWO, FENCED),
    "NO_OWNER_OF_TOKEN": (TWO, ACCEPTED),
    "NO_TOKEN_GROWTH": (TWO, ACCEPTED),
    "NO_TOKEN_CHECK": (TWO, ACCEPTED),
    "NO_RELEASED_IN_EXTEND": (f"{TWO} -DLATE=1", RELEASED),
    "NO_END_OF_LEASE": (TWO, DEAD_END),
}
"""The bounds within which a violation is found without the rule, and what it is."""

missing = [tool for tool in TOOLS if shutil.which(tool) is None]
needs_spin = pytest.mark.skipif(
    bool(missing), reason=f"not installed: {', '.join(missing)}"
)


@dataclass
class Search:
    """What spin found in the states that the model can reach, up to the first error."""

    output: str

    @classmethod
    def of(cls, options: str, folder: Path) -> Search:
        """Let spin write a program that searches, and run it."""
        run("spin", "-a", *options.split(), str(MODEL), folder=folder)
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
    def violated(self) -> list[str]:
        """The property that does not hold, if one was found."""
        pattern = r"^pan:\d+: (?:assertion violated )?(.+?) \(at depth \d+\)$"
        return re.findall(pattern, self.output, re.MULTILINE)

    @property
    def never_taken(self) -> list[str]:
        """The model's lines that it never reached, but for the ends of the endless."""
        lines = re.findall(r"^\t(\S+\.pml:\d+), state \d+, (.+)$", self.output, re.M)
        return [f"{place} {step}" for place, step in lines if step != '"-end-"']


def run(*command: str, folder: Path) -> str:
    """Return what a command printed; it must succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=6 * STARTUP_PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_spin
@pytest.mark.parametrize("scene", SCENES)
def test_protocol_keeps_its_promises(scene: str, tmp_path: Path) -> None:
    """With all rules, no reachable state violates a property of the protocol."""
    search = Search.of(SCENES[scene], tmp_path)
    assert search.violated == []
    assert search.is_complete, search.output
    if scene == ALL_STEPS:
        assert search.never_taken == []


@needs_spin
@pytest.mark.parametrize("rule", RULES)
def test_protocol_needs_each_rule(rule: str, tmp_path: Path) -> None:
    """Without a rule, the search finds a violation of what the rule protects."""
    options, violated = RULES[rule]
    assert Search.of(f"{options} -D{rule}", tmp_path).violated == [violated]


def test_each_switch_is_tried() -> None:
    """The table has each rule of the model, and no other."""
    switches = re.findall(r"^#ifdef (NO_\w+)", SOURCE, re.MULTILINE)
    assert sorted(switches) == sorted(RULES)


def test_page_has_each_rule() -> None:
    """The documentation names each rule with what happens without it, and no other."""
    listed = re.findall(r"``(NO_\w+)``", PAGE.read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(RULES)


NAMES = sorted(set(re.findall(r"Stands for (\S+)", SOURCE)))


def test_model_names_what_it_stands_for() -> None:
    """Each mention of the package has the form that the next test looks up."""
    assert NAMES
    assert set(re.findall(r"\bdjango_shedlock\S+", SOURCE)) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_named_part_of_the_package_exists(name: str) -> None:
    """A step stands for a function, method or class that the package has."""
    assert pkgutil.resolve_name(name) is not None
