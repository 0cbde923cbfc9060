"""Pages whose reader types everything into a new project: a shell runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from sybil import Document, Example, Region
from sybil.parsers.rest.lexers import DirectiveInCommentLexer
from sybil.typing import Evaluator, Parser

from tests.support import documents
from tests.support.examples import (
    FILE,
    console,
    find_examples,
    masked,
    parse_console,
    run_examples,
)
from tests.support.paths import ROOT
from tests.support.waiting import wait_for

TUTORIAL = ROOT / "docs/tutorial.rst"
ADOPTION = ROOT / "docs/howto/adopt.rst"
PODS = ROOT / "docs/howto/kubernetes.rst"
SWITCH = ROOT / "docs/switch/cache_add.rst"
TYPED = (TUTORIAL, ADOPTION, PODS, SWITCH)
STARTPROJECT = [sys.executable, "-m", "django", "startproject", "mysite"]
TIMEOUT = 600
AWAKE = Path("awake")

NAP = """
import time
from pathlib import Path

def sleep(seconds):
    Path("asleep").touch()
    until = time.monotonic() + 600
    while not Path("awake").exists() and time.monotonic() < until:
        time.sleep(0.05)
"""
"""Stands for ``time`` in the jobs of the tutorial."""

NIGHT = "while [ ! -e asleep ] && kill -0 $!; do sleep 0.1; done; disown"
"""
Stands for the seconds in which the reader lets a job begin, before they kill it.

The shell is to forget the job: it may or may not report that it was killed.
"""


SHORT_MINUTES = """
from datetime import timedelta
from itertools import count

from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState

SHORT = timedelta(seconds=2)

def ticks_after(schedule, moment):
    first = moment.replace(second=moment.second // 2 * 2, microsecond=0)
    return (first + number * SHORT for number in count(1))

def ticks_until(schedule, moment):
    last = moment.replace(second=moment.second // 2 * 2, microsecond=0)
    return (last - number * SHORT for number in count())

Schedule.ticks_after = ticks_after
Schedule.ticks_until = ticks_until
Schedule.around = lambda schedule, moment: (
    next(ticks_until(schedule, moment)), next(ticks_after(schedule, moment))
)
# A busy machine may be too late for such a tick, and check reports that.
ScheduleState.passed_over = lambda state: []
"""
"""Makes minutes of two seconds for all schedules, so that nobody waits."""
BEATS = 3


class Tutorial:
    """
    Runs the examples of the tutorial in a shell, in a project that they make.

    A job in the background, or one that is to be killed, sleeps for as long as the
    reader needs for that; the others don't sleep.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        for variable in ("DJANGO_SETTINGS_MODULE", "PYTHONPATH"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
        monkeypatch.setenv("PYTHONUNBUFFERED", "1")
        monkeypatch.setenv("LOGNAME", "deploy")
        Path("nap.py").write_text(NAP)
        AWAKE.touch()

    def run(self, page: Path) -> None:
        """Run all examples of the page."""
        document = find_examples(
            page,
            *self.markers(),
            python=self._write,
            console=console(self._call),
        )
        try:
            run_examples(document)
        finally:
            AWAKE.touch()

    def markers(self) -> list[Parser]:
        """Return the parsers of the page's comments."""
        return [
            marks("in the background", self._before),
            marks("after the background", self._after),
        ]

    def _before(self, comment: Example) -> None:
        comment.document.push_evaluator(self._start_in_background)

    def _start_in_background(self, example: Example) -> str | None:
        example.document.pop_evaluator(self._start_in_background)
        [(command, expected)] = parse_console(example.parsed)
        first, _, self._promised = expected.partition("\n")
        AWAKE.unlink()
        self._background = start(command)
        assert self._background.stdout
        line = self._background.stdout.readline().strip()
        return None if line == first else f"It began with {line!r}."

    def _after(self, comment: Example) -> str | None:
        AWAKE.touch()
        status, output = end(self._background)
        as_promised = (status, output.strip()) == (0, self._promised)
        return None if as_promised else f"It ended with {status} and {output!r}."

    def _write(self, example: Example) -> None:
        file = FILE.match(example.parsed)
        assert file, "The tutorial should say of which file this is."
        path = Path(file[1])
        before = path.read_text() if path.name == "settings.py" else ""
        text = example.parsed.replace("import time\n", "import nap as time\n")
        path.parent.mkdir(exist_ok=True)
        path.write_text(before + text)

    def _call(self, command: str) -> tuple[int, str]:
        if "kill -9" in command:
            command = command.replace("sleep 3", NIGHT)
            command = f"rm awake asleep; {command} && touch awake"
        return end(start(command))


class Adoption(Tutorial):
    """Runs the examples of the page on adoption, with three beats at once."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self._beats: list[subprocess.Popen[str]] = []
        # Python imports this module in each process, before any other.
        Path("sitecustomize.py").write_text(SHORT_MINUTES)
        monkeypatch.setenv("PYTHONPATH", str(folder))
        self.digests: list[str] = []
        """The ticks that the jobs of all beats have printed."""
        self.runs: list[dict[str, str]] = []

    def run(self, page: Path) -> None:
        try:
            super().run(page)
        finally:
            for beat in self._beats:
                beat.kill()
                beat.wait()
                assert beat.stdout
                beat.stdout.close()

    def markers(self) -> list[Parser]:
        return [
            marks("three in the background", self._before),
            marks("after some ticks", self._after),
        ]

    def _start_in_background(self, example: Example) -> str | None:
        example.document.pop_evaluator(self._start_in_background)
        [(command, expected)] = parse_console(example.parsed)
        self._beats = [start(f"exec {command}") for _ in range(BEATS)]
        for beat in self._beats:
            assert beat.stdout
            lines = [beat.stdout.readline() for _ in expected.splitlines()]
            if masked("".join(lines)) != masked(expected):
                return f"It began with {lines!r}."
        return None

    def _after(self, comment: Example) -> str | None:
        wait_for(lambda: len(self._history()) > 3, pause=0.5)
        for beat in self._beats:
            beat.terminate()
        printed = "".join(output for _, output in map(end, self._beats))
        self.digests = re.findall("Sends the digest of (.+)", printed)
        self.runs = self._history()
        if self.runs[0]["outcome"] != "succeeded":
            # The signal has ended a run, too; the page goes on from a success.
            trigger = "python manage.py shedlock trigger billing.send_digest"
            status, output = self._call(trigger)
            assert status == 0, output
        return None

    def _history(self) -> Any:
        _, output = self._call(
            "python manage.py shedlock history billing.* --limit 1000 --json"
        )
        return json.loads(output)


def start(command: str) -> subprocess.Popen[str]:
    """Start the command in a shell."""
    return subprocess.Popen(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(shell: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the shell's end; return its exit status and what it printed."""
    # Not by communicate(), which forgets what an earlier readline() has read ahead.
    assert shell.stdout
    with shell.stdout:
        output = shell.stdout.read()
    return shell.wait(TIMEOUT), output


def marks(text: str, evaluator: Evaluator) -> Parser:
    """Return a parser of comments with this text. They are evaluated in their place."""

    def parse(document: Document) -> Iterable[Region]:
        for region in DirectiveInCommentLexer(text)(document):
            region.evaluator = evaluator
            yield region

    return parse


@pytest.mark.sqlite_only
def test_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever types what the tutorial says sees what it shows, in a new project."""
    Tutorial(tmp_path, monkeypatch).run(TUTORIAL)


@pytest.mark.sqlite_only
@pytest.mark.parametrize("page", [ADOPTION, PODS], ids=["adopt", "kubernetes"])
def test_three_beats_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new project has its commands locked, and a job that three beats run."""
    subprocess.run([*STARTPROJECT, str(tmp_path)], check=True)
    adoption = Adoption(tmp_path, monkeypatch)
    adoption.run(page)
    printed = adoption.digests
    succeeded = [run for run in adoption.runs if run["outcome"] == "succeeded"]
    # The last run may have ended by the signal that ended the beats, before it printed.
    assert 2 < len(succeeded) <= len(printed) <= len(adoption.runs)
    assert len(printed) == len(set(printed))


def test_pods_run_what_is_typed() -> None:
    """The command of the Deployment is the one that the page has tried."""
    page = documents.Document(PODS)
    [text] = (block for block in page.blocks if "replicas" in block)
    deployment = yaml.safe_load(text)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert f"$ {' '.join(container['command'])}\n" in page.source
    assert deployment["spec"]["replicas"] == BEATS


@pytest.mark.sqlite_only
def test_switch_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a cache.add to a lock, in two deploys, and no job runs beside itself."""
    subprocess.run([*STARTPROJECT, str(tmp_path)], check=True)
    Tutorial(tmp_path, monkeypatch).run(SWITCH)
