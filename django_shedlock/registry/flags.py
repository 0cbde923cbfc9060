"""A system check of the options with which calls of locked commands only look."""

import re
from argparse import Action, ArgumentParser, BooleanOptionalAction
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from django.core.checks import CheckMessage, Warning
from django.core.management.base import BaseCommand

from django_shedlock import conf
from django_shedlock.registry.commands import (
    is_locked_by_setting,
    migrations_of_setting,
)
from django_shedlock.registry.jobs import Job, is_command, parser_of
from django_shedlock.registry.proposals import propose_options
from django_shedlock.registry.unless import DRY_RUN

LOOKING_DEST = re.compile(
    "(check|dry|list|noop|plan|preview|pretend|show|simulate)(_.*)?"
    "|dryrun|no_op|.*_(list|dry_run)"
)
"""What flags are called with which a command looks, and does not do its work."""


def find_calls_that_look(job: Job) -> Iterator[CheckMessage]:
    """Warn of flags that ``unless`` may lack, and of its options that are none."""
    if not is_command(job.target):
        return
    options = _options_of(job.target)
    if options is None:
        return
    if job.unless is None:
        yield from _find_flags(job, options)
    else:
        described = f"{job.path}: unless={list(job.unless)!r} of its lock {job.name!r}"
        yield from _find_wrong_options(described, job.unless, options)


def find_migrations_that_look() -> Iterator[CheckMessage]:
    """Warn of options that ``unless`` names, and that a command that migrates lacks."""
    for kind, name in migrations_of_setting():
        entry: Any = conf.COMMANDS.value[name]
        unless, options = entry.get("unless"), _options_of(kind)
        if unless and options is not None:
            described = f"SHEDLOCK_COMMANDS[{name!r}]: unless={list(unless)!r}"
            yield from _find_wrong_options(described, unless, options)


def _options_of(command: type[BaseCommand]) -> dict[str, Action] | None:
    """Return the command's options by ``dest``; ``None`` if its parser fails."""
    try:
        return dict(_options(parser_of(command)))
    except (Exception, SystemExit):  # a call of the command raises it again
        return None


def _options(parser: ArgumentParser) -> Iterator[tuple[str, Action]]:
    """Return each option of the parser and of its subcommands, by its ``dest``."""
    for action in parser._actions:
        if isinstance(action.choices, Mapping):
            for subparser in action.choices.values():
                if isinstance(subparser, ArgumentParser):
                    yield from _options(subparser)
        yield action.dest, action


def _find_flags(job: Job, options: dict[str, Action]) -> Iterator[CheckMessage]:
    flags = {dest: action for dest, action in options.items() if _is_flag(action)}
    default = [DRY_RUN] if DRY_RUN in flags else []
    missing = [
        dest for dest in flags if dest != DRY_RUN and LOOKING_DEST.fullmatch(dest)
    ]
    if missing:
        names = " or ".join("/".join(flags[dest].option_strings) for dest in missing)
        more, as_is = _proposal(job, [*default, *missing]), _proposal(job, default)
        yield Warning(
            f"{job.path}: a call with {names} seems to look only. It needs the lock "
            f"{job.name!r} all the same: it is skipped while the job runs, and with a "
            "schedule the real job is skipped after it.",
            hint=f"Add {more} to its options: calls with these run without the lock. "
            f"If they do work that needs the lock, add {as_is}.",
            id="shedlock.W022",
        )


def _find_wrong_options(
    described: str, unless: Sequence[str], options: dict[str, Action]
) -> Iterator[CheckMessage]:
    for dest in unless:
        if dest not in options:
            problem = "is no option of the command"
            written = f"--{dest.replace('_', '-')}"  # it may have another `dest`
            nearest = [
                *(each for each in options if written in options[each].option_strings),
                *get_close_matches(dest, options, n=1),
            ]
            hint = "Give the `dest` of an option"
            hint += f". Did you mean {nearest[0]!r}?" if nearest else "."
        elif options[dest].default:
            value = options[dest].default
            problem = f"is {value!r} by default, so no call gets the lock"
            hint = "Give an option that only some calls have."
        else:
            continue
        yield Warning(
            f"{described}: {dest!r} {problem}.",
            hint=hint,
            id="shedlock.W022",
        )


def _is_flag(action: Action) -> bool:
    """Return whether calls may have this option without a value, and most do not."""
    is_switch = action.nargs == 0 and action.const is True
    return (is_switch or isinstance(action, BooleanOptionalAction)) and (
        not action.default
    )


def _proposal(job: Job, unless: list[str]) -> str:
    """Return ``unless`` as it stands in the setting, or in the decorator."""
    return propose_options({"unless": unless}, in_setting=is_locked_by_setting(job))
