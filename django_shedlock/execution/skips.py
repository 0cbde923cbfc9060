"""What is said about a skip: to the caller, in the log, and at a terminal."""

import inspect
from contextlib import suppress
from typing import TextIO

from django.core.management.base import BaseCommand, OutputWrapper

from django_shedlock.durations import format_left
from django_shedlock.locks.status import LockHolder

PROGRAM = "python manage.py shedlock"


def operator_command(alias: str, subcommand: str, *words: str) -> str:
    """Return the line for a shell that calls ``shedlock`` for this provider."""
    # Few processes print such a line.
    import shlex

    chosen = () if alias == "default" else ("--provider", alias)
    return f"{PROGRAM} {shlex.join([*chosen, subcommand, *words])}"


def refusal(name: str, holder: LockHolder, advice: str) -> str:
    """Say who holds the lock and for how long, and then what helps."""
    if holder.is_endless:
        return (
            f"Lock {name!r} is {holder.reason}, without an end. Its job does not run "
            "until somebody resumes it."
        )
    rest = f", for {format_left(holder.remaining)} more at the most"
    lasting = rest if holder.remaining else ""
    return f"Lock {name!r} is {holder.reason}{lasting}. {advice}"


def refusal_of_child(name: str, holder: LockHolder) -> str:
    """Say that a parent of this process holds the lock, and the ways out."""
    return (
        f"Lock {name!r} is {holder.reason}, so nothing was done: a child process never "
        "enters a lock of its parent. There are three ways out: name an option of the "
        "child's command in its `unless`, use another name for one of the two, or no "
        "lock for the parent."
    )


def calling_command() -> str | None:
    """Return the name of the innermost command in whose ``handle()`` this is called."""
    # A look at the stack also finds commands without a lock, in any thread. The command
    # that is skipped is not among them, since its handle() is not called.
    frame = inspect.currentframe()
    while (frame := frame and frame.f_back) is not None:
        code = frame.f_code
        if code.co_name == "handle" and code.co_argcount:
            command = frame.f_locals.get(code.co_varnames[0])
            if isinstance(command, BaseCommand):
                return type(command).__module__.rpartition(".")[2]
    return None


def show_skip(
    stderr: OutputWrapper | TextIO,
    verbosity: object,
    name: str,
    holder: LockHolder,
    *,
    alias: str,
    run_now: str = "",
) -> None:
    """
    Report a skipped command in one line on ``stderr``.

    It is printed at a terminal, and with ``-v 2`` or more. The line ends with the next
    step: ``run_now`` if the tick has run, else the command that shows the lock.
    """
    step = f"See `{operator_command(alias, 'show', name)}`."
    if holder.has_run_tick and run_now:
        step = f"To run it now: {run_now}."
    asks = isinstance(verbosity, int) and verbosity >= 2
    # The stream may be closed, or have no reader any more. A skip is no error.
    with suppress(AttributeError, OSError, ValueError):
        if asks or stderr.isatty():
            text = f"Skipped. Lock {name!r}: {holder.reason}. {step}"
            if isinstance(stderr, OutputWrapper):
                stderr.write(text, str)
            else:
                stderr.write(f"{text}\n")
