"""``manage.py shedlock release`` and ``extend``."""

import sys
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any, NamedTuple

from django.core.management.base import CommandError
from django.utils.translation import override

from django_shedlock.cli import base, terminal
from django_shedlock.execution.operators import (
    OperatorAction,
    condition,
    extended_text,
    force_extend,
    force_release,
    reason_of_refusal,
    released_text,
)
from django_shedlock.locks.configuration import check_durations
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider


class ActionOutcome(NamedTuple):
    """What came of an operator's action, in a sentence, and the lock after it."""

    text: str
    exit_status: base.ExitStatus = base.ExitStatus.DONE
    after: LockStatus | None = None

    @property
    def is_done(self) -> bool:
        """Whether it was done."""
        return self.exit_status is base.ExitStatus.DONE


class LockCommand(base.Subcommand):
    """Changes a lock for an operator."""

    def handle(self, alias: str | None, **options: Any) -> None:
        """Run in English, the language of all that the command prints."""
        with override("en"):
            super().handle(alias, **options)

    def report(self, outcome: ActionOutcome, advice: str = "") -> None:
        """Write what was done; raise ``CommandError`` with advice if it was not."""
        if outcome.is_done:
            self.write(terminal.printable(outcome.text))
            return
        text = terminal.printable(f"{outcome.text} {advice}".strip())
        raise CommandError(text, returncode=outcome.exit_status)


class Release(LockCommand):
    """Releases the lock of another worker."""

    name = "release"
    group = base.Group.ACT
    example = "release nightly --held-by web-1:99:9f86d081884c7d65"
    help = (
        "release a lock that lock_at_least_for keeps, or with --held-by the "
        "acquisition that you looked at; its job is not stopped"
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        base.add_name(parser)
        base.add_held_by(parser)
        base.add_switch(
            parser,
            "--force",
            "release it from whoever has it by then; needs --reason and, at a "
            "terminal, the name of the lock once more",
        )
        base.add_reason(parser)

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        held_by: str,
        force: bool,
        reason: str,
        **options: object,
    ) -> None:
        base.refuse_own_memory(provider, self.name)
        if force and held_by:
            raise base.WrongCall("Give --held-by or --force, not both.")
        if force and not reason:
            raise base.WrongCall("--force needs --reason.")
        before = base.find_status(provider, name)
        if force:
            confirm_release(before)
        # While the lease runs, its job may run as well.
        may_release = force or before.state is LockState.HELD_AT_LEAST
        may_release |= bool(held_by and (reason or not before.state.is_in_use))
        meant = held_by or before.locked_by
        action = OperatorAction(provider, name, meant, base.operator(), reason)
        outcome = self.release(action, before, may_release=may_release)
        advice, after = "", outcome.after
        if not outcome.is_done and after is not None:
            if not held_by:
                advice = self.advice(provider, after)
            elif not may_release and held_by == after.locked_by:
                advice = "While its lease runs, --held-by also needs --reason."
        self.report(outcome, advice)

    def release(
        self, action: OperatorAction, before: LockStatus, *, may_release: bool
    ) -> ActionOutcome:
        """Release the acquisition of the action, or say why not."""
        if may_release and force_release(action, before):
            return ActionOutcome(released_text(before))
        return _refused(f"Lock {action.name!r} is not released", action)

    def advice(self, provider: LockProvider, after: LockStatus) -> str:
        """Return what to do about a lock that was not released."""
        return release_advice(provider, after) if after.state.may_still_run else ""


class Extend(LockCommand):
    """Extends the lease of another worker's lock."""

    name = "extend"
    group = base.Group.ACT
    example = "extend nightly 2h"
    help = "extend the lease of a held lock; never shorten it"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        base.add_name(parser)
        parser.add_argument(
            "lock_at_most_for",
            metavar="DURATION",
            type=base.duration,
            help='counts from now, as in "30s" or "1h30m"',
        )
        base.add_held_by(parser)
        base.add_reason(parser)

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        lock_at_most_for: timedelta,
        held_by: str,
        reason: str,
        **options: object,
    ) -> None:
        base.refuse_own_memory(provider, self.name)
        check_durations(name, lock_at_most_for)
        before = base.find_status(provider, name)
        meant = held_by or before.locked_by
        action = OperatorAction(provider, name, meant, base.operator(), reason)
        self.report(self.extend(action, before, lock_at_most_for))

    def extend(
        self, action: OperatorAction, before: LockStatus, lock_at_most_for: timedelta
    ) -> ActionOutcome:
        """Extend the lease of the acquisition of the action, or say why not."""
        if force_extend(action, lock_at_most_for, before):
            return ActionOutcome(extended_text(before, lock_at_most_for))
        return _refused(f"Lock {action.name!r} is not extended", action)


def release_advice(provider: LockProvider, status: LockStatus) -> str:
    """Return what to do about a lock under which its job may still run."""
    command = base.command(provider, *base.release_words(status))
    return f"Make sure that its process is gone, then: {command}"


def confirm_release(before: LockStatus) -> None:
    """At a terminal, ask for the lock's name; without it raise ``WrongCall``."""
    if sys.stdin is None or not sys.stdin.isatty():
        return
    question = (
        f"Lock {before.name!r}: {condition(before)}. Another worker can acquire a "
        "released lock at once. A job that still runs under it is not stopped.\n"
    )
    try:
        typed = input(f"{terminal.printable(question)}Type its name to release it: ")
    except EOFError:
        typed = ""
    if typed.strip() != before.name:
        raise base.WrongCall("That is not its name, so nothing was done.")


def _refused(text: str, action: OperatorAction) -> ActionOutcome:
    after = action.look()
    why = reason_of_refusal(action.locked_by, after)
    return ActionOutcome(f"{text}: {why}.", status_of_refusal(after), after)


def status_of_refusal(after: LockStatus | None) -> base.ExitStatus:
    """Return the exit status if an action was refused and this is the lock now."""
    if after is None:
        return base.ExitStatus.NOT_HELD
    if after.pause is not None:
        return base.ExitStatus.PAUSED
    if after.state.may_still_run:
        return base.ExitStatus.RUNNING
    return base.ExitStatus.NOT_HELD
