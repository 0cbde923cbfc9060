"""The arguments that several subcommands have."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

import pytest
from django.core.management import CommandError, load_command_class

from django_shedlock.cli import base
from django_shedlock.cli.base import Subcommand, positive
from django_shedlock.cli.command import Command, subcommands
from django_shedlock.execution.skips import PROGRAM
from tests.support.commands import run

GROUPS = {
    "Look": ["list", "show", "history", "check"],
    "Act": [
        *("release", "extend", "trigger", "resume", "pause", "acknowledge", "withdraw"),
    ],
    "Run": ["run", "beat", "catch-up"],
    "Tidy up": ["prune"],
}


DURATIONS = [
    ("list", "--watch=5"),
    ("history", "--since=5"),
    *(("check", f"--{option}=5") for option in ("held-for", "grace")),
    *(("show", "job", f"--{option}=5") for option in ("held-for", "grace")),
    ("extend", "job", "5"),
    *(("pause", "job", "--reason=r", f"--{option}=5") for option in ("for", "wait")),
    ("acknowledge", "job", "--reason=r", "--for=5"),
    *(
        ("run", "job", f"--{option}=5")
        for option in ("lock-at-most-for", "lock-at-least-for", "wait")
    ),
    *(
        ("run", "job", f"--{option}=5")
        for option in ("jitter", "time-limit", "kill-after")
    ),
    *(("beat", f"--{option}=5") for option in ("stop-timeout", "kill-after")),
    *(("prune", f"--{option}=5") for option in ("older-than", "unused-for")),
]


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("2", 2), ("010", 10)])
def test_positive_number(text: str, number: int) -> None:
    """The number of rows to show, or of jobs at once, is at least one."""
    assert positive(text) == number


@pytest.mark.parametrize(
    "text", ["0", "-1", "+1", "1.5", "1e3", "", " 1", "ten", "²", "٣"]
)
def test_no_positive_number(text: str) -> None:
    """Anything else is refused, and named."""
    with pytest.raises(ArgumentTypeError, match="is not a positive number") as refused:
        positive(text)
    assert str(refused.value).startswith(repr(text))


@pytest.mark.parametrize("option", DURATIONS, ids=" ".join)
def test_number_without_a_unit_is_refused(option: tuple[str, ...]) -> None:
    """Who types 5 rarely means seconds, so the message names the unit to add."""
    with pytest.raises(CommandError, match="'5' has no unit: write 5s or 5m"):
        run(*option)


def test_every_duration_is_tried_without_its_unit() -> None:
    """The list above has each subcommand's options and arguments that are durations."""
    tried = [(words[0], words[-1].partition("=")[0]) for words in DURATIONS]
    found = []
    for subcommand in subcommands().values():
        parser = ArgumentParser()
        subcommand.add_arguments(parser)
        for action in parser._actions:
            if action.type is base.duration:
                name = (*action.option_strings, "5")[0]
                found.append((subcommand.name, name))
    assert sorted(tried) == sorted(found)


def parsed(example: str) -> dict[str, Any]:
    command = Command()
    parser = command.create_parser("manage.py", "shedlock")
    return vars(parser.parse_args(shlex.split(example)))


@pytest.mark.parametrize("subcommand", subcommands().values(), ids=subcommands())
def test_subcommand_has_a_group_and_an_example(subcommand: type[Subcommand]) -> None:
    """The example is one that the subcommand understands, and fits a terminal."""
    assert subcommand.group in base.Group
    assert parsed(subcommand.example)["subcommand"].name == subcommand.name
    assert len(f"  {PROGRAM} {subcommand.example}") < 80


def test_subcommand_without_an_example_is_refused() -> None:
    """That is noticed where the class is written, not when somebody asks for help."""
    attributes = {"name": "dance", "help": "dance", "group": base.Group.RUN}
    with pytest.raises(TypeError, match="'dance' needs 'example'"):
        type("Dance", (Subcommand,), attributes)


def test_help_lists_subcommands_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its example below it, and no line is longer than a terminal's."""
    command = load_command_class("django_shedlock", "shedlock")
    command.print_help("manage.py", "shedlock")
    printed = capsys.readouterr().out
    listed = printed[printed.index("Look:") : printed.index("positional arguments:")]
    groups = re.findall(r"^(\w[\w ]*):\n((?:  .*\n)+)", listed, re.MULTILINE)
    assert {
        group: re.findall(r"^  ([\w-]+)  ", lines, re.MULTILINE)
        for group, lines in groups
    } == GROUPS
    for subcommand in subcommands().values():
        assert f"$ shedlock {subcommand.example}\n" in listed
    assert max(map(len, listed.splitlines())) < 80


@pytest.mark.parametrize("name", subcommands())
def test_help_of_a_subcommand_has_its_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The help of each subcommand has an example as a whole line to paste."""
    with pytest.raises(SystemExit):
        parsed(f"{name} --help")
    line = f"\n  {PROGRAM} {subcommands()[name].example}\n"
    assert line in capsys.readouterr().out
