"""A reader of the tutorial, with a shell and a project of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from sybil import Document, Example, Region
from sybil.parsers.rest.lexers import DirectiveInCommentLexer
from sybil.typing import Evaluator, Parser

from tests.support.examples import (
    FILE,
    console,
    find_examples,
    parse_console,
    run_examples,
)

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

NIGHT = "while [ ! -e asleep ] && kill -0 $!; do sleep 0.1; done"
"""Stands for the seconds in which the reader lets a job begin, before they kill it."""


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
            marks("in the background", self._before),
            marks("after the background", self._after),
            python=self._write,
            console=console(self._call),
        )
        try:
            run_examples(document)
        finally:
            AWAKE.touch()

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
        path.write_text(before + text)

    def _call(self, command: str) -> tuple[int, str]:
        if "kill -9" in command:
            command = command.replace("sleep 3", NIGHT)
            command = f"rm awake asleep; {command} && touch awake"
        status, output = end(start(command))
        return status, output.replace("Killed", "")


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
    output, _ = shell.communicate(timeout=TIMEOUT)
    return shell.returncode, output


def marks(text: str, evaluator: Evaluator) -> Parser:
    """Return a parser of comments with this text. They are evaluated in their place."""

    def parse(document: Document) -> Iterable[Region]:
        for region in DirectiveInCommentLexer(text)(document):
            region.evaluator = evaluator
            yield region

    return parse
