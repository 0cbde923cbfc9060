"""The system check of flags that only look."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.core.management.base import BaseCommand

from django_shedlock import scheduler_lock
from django_shedlock.checks import check_jobs
from tests.support.jobs import only_jobs_of

kept: list[type[BaseCommand]] = []


@pytest.fixture(autouse=True)
def no_other_jobs() -> Iterator[None]:
    with only_jobs_of():
        yield
    kept.clear()


def add(*flags: str, **kwargs: Any) -> Callable[[Any], None]:
    def add_to(parser: Any) -> None:
        for flag in flags:
            parser.add_argument(flag, **{"action": "store_true", **kwargs})

    return add_to


def warnings_for(adding: Callable[[Any], Any], **options: Any) -> list[CheckMessage]:
    """Return the warnings for a locked command whose parser ``adding`` fills."""

    class Command(BaseCommand):
        def add_arguments(self, parser: Any) -> None:
            adding(parser)

        def handle(self, *args: Any, **options: Any) -> None: ...

    kept.append(scheduler_lock("nightly", **options)(Command))
    return [message for message in check_jobs() if message.id == "shedlock.W022"]


@pytest.mark.parametrize(
    "flag",
    [
        *("--list", "--list-tasks", "--check", "--check-only", "--plan", "--show-all"),
        *("--task-list", "--dry", "--dryrun", "--no-op", "--noop", "--preview"),
        *("--pretend", "--simulate", "--import-dry-run"),
    ],
)
def test_w022_flag_that_looks_like_looking(flag: str) -> None:
    """W022 names the flag and the lock, and gives both options to paste."""
    dest = flag[2:].replace("-", "_")
    [message] = warnings_for(add(flag, "--dry-run"))
    assert f"a call with {flag} seems to look only" in message.msg
    assert "the lock 'nightly'" in message.msg
    assert str(message.hint) == (
        f'Add unless=["dry_run", "{dest}"] to its options: calls with these run '
        "without the lock. If they do work that needs the lock, add "
        'unless=["dry_run"].'
    )


def test_w022_names_all_flags_at_once() -> None:
    """Without --dry-run, there is no default to keep."""

    def adding(parser: Any) -> None:
        parser.add_argument("-l", "--list", action="store_true")
        parser.add_argument("--check", action=argparse.BooleanOptionalAction)

    [message] = warnings_for(adding)
    assert "a call with -l/--list or --check/--no-check seems" in message.msg
    assert 'Add unless=["list", "check"]' in str(message.hint)
    assert str(message.hint).endswith("add unless=[].")


def test_w022_flag_of_a_subcommand() -> None:
    """The options of a subcommand are options of the command."""

    def adding(parser: Any) -> None:
        subparsers = parser.add_subparsers()
        subparsers.add_parser("mails").add_argument("--list", action="store_true")

    [message] = warnings_for(adding)
    assert "a call with --list seems" in message.msg


@pytest.mark.parametrize(
    ("adding", "options"),
    [
        (add("--dry-run", "--force", "--checksum", "--missing-only", "--planet"), {}),
        (add("--list", action="store"), {}),
        (add("--list", action="store_false"), {}),
        (add("--list", default=True), {}),
        (add("--list"), {"unless": ["list"]}),
        (add("--list"), {"unless": []}),
        (add("--list", "--dry-run"), {"unless": ["dry_run"]}),
    ],
)
def test_sound_options_have_nothing_to_say(adding: Any, options: Any) -> None:
    """A flag that does its work, and an ``unless`` that decides, give no warning."""
    assert warnings_for(adding, **options) == []


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(2)])
def test_parser_that_can_not_be_made(error: BaseException) -> None:
    """A command that is broken stops no check of the others."""

    def adding(parser: Any) -> None:
        raise error

    assert warnings_for(adding, unless=["list"]) == []


def test_w022_option_that_does_not_exist() -> None:
    """A misspelt option would give the look a lock."""
    [message] = warnings_for(add("--list-tasks"), unless=["list_task", "list_tasks"])
    assert message.msg.endswith(
        "unless=['list_task', 'list_tasks'] of its lock 'nightly': 'list_task' is no "
        "option of the command."
    )
    assert message.hint == ("Give the `dest` of an option. Did you mean 'list_tasks'?")


def test_w022_option_like_no_other() -> None:
    """W022 suggests no option if no option has a similar name."""
    [message] = warnings_for(add("--force"), unless=["qqq"])
    assert message.hint == "Give the `dest` of an option."


def test_w022_option_with_a_value_by_default() -> None:
    """Each call would run without the lock."""
    adding = add("--room", action="store", default="hall")
    [message] = warnings_for(adding, unless=["room"])
    assert "'room' is 'hall' by default, so no call gets the lock." in message.msg
    assert message.hint == "Give an option that only some calls have."
