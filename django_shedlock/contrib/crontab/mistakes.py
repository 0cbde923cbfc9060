"""What is wrong with an entry of ``CRONJOBS``, whatever its lock."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.checks import CheckMessage, Error
from django.core.management import call_command

from django_shedlock.contrib.crontab.apps import CrontabConfig, locks_all_entries
from django_shedlock.contrib.crontab.commands import locked_command
from django_shedlock.contrib.crontab.entries import Entry
from django_shedlock.contrib.crontab.targets import find_command
from django_shedlock.schedules import Schedule

BREAKS_LINE = re.compile(r"#|(?<!\\)%")


def malformed(job: Any, error: ValueError) -> CheckMessage:
    """Return the message for what is no entry."""
    return Error(
        f"The entry {job!r} of CRONJOBS is malformed: {error}.",
        hint="With it, django-crontab can't run this entry, or writes a wrong line.",
        id="shedlock.E005",
    )


def broken_line(where: str, text: str) -> Iterator[CheckMessage]:
    """Tell what would break the line of the crontab."""
    if BREAKS_LINE.search(text):
        yield Error(
            f"{where} has a % or #, which breaks the line of the crontab: {text!r}.",
            hint="To cron % is the end of the line, so write \\%. With # in the line, "
            "django-crontab does not find it again to remove it.",
            id="shedlock.E009",
        )


def find_mistakes(entry: Entry) -> Iterator[CheckMessage]:
    """Look at all parts of the entry."""
    yield from _time(entry)
    yield from broken_line(f"The suffix of {described(entry)}", entry.suffix or "")
    try:
        problem = _target_problem(entry)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        yield Error(
            f"{described(entry)} can't be run: {problem}.",
            hint="Give the dotted path of a function, or the name of a command.",
            id="shedlock.E006",
        )
        return
    yield from _arguments(entry)
    yield from _coroutine(entry)


def described(entry: Entry) -> str:
    """Return the words for an entry."""
    return f"The entry {entry.path} ({entry.time}) of CRONJOBS"


def _time(entry: Entry) -> Iterator[CheckMessage]:
    try:
        _ = Schedule(entry.time).interval
    except ValueError as error:
        yield malformed((entry.time, entry.path), error)
    except ImportError:
        return


def _target_problem(entry: Entry) -> str | None:
    function = entry.function
    if not callable(function):
        return f"{entry.path} is no function"
    is_command = function in (call_command, locked_command) and entry.args
    if is_command and find_command(entry) is None:
        return f"there is no command {entry.args[0]!r}"
    return None


def _arguments(entry: Entry) -> Iterator[CheckMessage]:
    problem = _json_problem(entry) or _signature_problem(entry)
    if problem is not None:
        yield Error(
            f"{described(entry)} has arguments that don't work: {problem}.",
            hint="Write (time, path, [args], {kwargs}), in texts and numbers. A text "
            "in third place is a suffix of the line.",
            id="shedlock.E007",
        )


def _json_problem(entry: Entry) -> str | None:
    try:
        json.dumps([entry.args, entry.kwargs], sort_keys=True)
    except (TypeError, ValueError) as error:
        return f"{error}, so all entries fail"
    return None


def _signature_problem(entry: Entry) -> str | None:
    try:
        signature = inspect.signature(entry.function)
    except (TypeError, ValueError):  # of some builtins nobody knows
        return None
    try:
        signature.bind(*entry.args, **entry.kwargs)
    except TypeError as error:
        return str(error)
    return None


def _coroutine(entry: Entry) -> Iterator[CheckMessage]:
    if iscoroutinefunction(entry.function) and not locks_all_entries():
        yield Error(
            f"{described(entry)} names a coroutine function, which django-crontab "
            "never awaits.",
            hint=f"Put {CrontabConfig.name!r} before 'django_crontab' into "
            "INSTALLED_APPS, or name a function that calls async_to_sync().",
            id="shedlock.E008",
        )
