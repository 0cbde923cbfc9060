"""``manage.py shedlock release`` and ``extend``."""

from argparse import ArgumentParser
from datetime import timedelta

from django.core.management.base import CommandError

from django_shedlock.cli import base, terminal
from django_shedlock.durations import format_left
from django_shedlock.execution.operators import (
    OperatorAction,
    force_extend,
    force_release,
    reason_of_refusal,
)
from django_shedlock.locks.configuration import check_durations
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider


class Release(base.Subcommand):
    """Releases the lock of another worker."""

    name = "release"
    help = "release a lock that lock_at_least_for keeps; with --force, any lock"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="of the job's lock")
        base.add_switch(
            parser,
            "--force",
            "release it even if its job is running, or its lease is over; the job is "
            "not stopped, and another worker may start it as well",
        )
        base.add_reason(parser)

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        force: bool,
        reason: str,
        **options: object,
    ) -> None:
        base.refuse_own_memory(provider, self.name)
        before = base.find_status(provider, name)
        action = OperatorAction(
            provider, name, before.locked_by, base.operator(), reason
        )
        may_release = force or before.state is LockState.HELD_AT_LEAST
        if not (may_release and force_release(action, before)):
            raise refused(f"Lock {name!r} is not released", action, before, force=force)
        text = f"Lock {name!r} is released. {before.locked_by} held it."
        if before.state.may_still_run:
            text += " Its job was not stopped, and may still run."
        self.write(terminal.printable(text))


class Extend(base.Subcommand):
    """Extends the lease of another worker's lock."""

    name = "extend"
    help = "extend the lease of a held lock; never shorten it"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="of the job's lock")
        parser.add_argument(
            "lock_at_most_for",
            metavar="DURATION",
            type=base.duration,
            help='counts from now, as in "30s" or "1h30m"',
        )
        base.add_reason(parser)

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        lock_at_most_for: timedelta,
        reason: str,
        **options: object,
    ) -> None:
        base.refuse_own_memory(provider, self.name)
        check_durations(name, lock_at_most_for)
        before = base.find_status(provider, name)
        action = OperatorAction(
            provider, name, before.locked_by, base.operator(), reason
        )
        if not force_extend(action, lock_at_most_for, before):
            raise refused(f"Lock {name!r} is not extended", action, before, force=True)
        left = format_left(max(lock_at_most_for, before.remaining))
        text = f"Lock {name!r} is held for {left} more at the most."
        if before.remaining > lock_at_most_for:
            text += " Its lease was longer than that already."
        self.write(text)


def refused(
    text: str, action: OperatorAction, before: LockStatus, *, force: bool
) -> CommandError:
    """
    Return the error that says why the action was not carried out.

    ``before`` is the lock's status before it. Without ``force``, the text mentions it.
    """
    after = action.look()
    text = f"{text}: {reason_of_refusal(before.locked_by, after)}."
    if not force and after is not None and after.state.may_still_run:
        text += (
            " With --force it is released all the same, and another worker may start "
            "the job while this one goes on."
        )
    return CommandError(terminal.printable(text), returncode=status_of_refusal(after))


def status_of_refusal(after: LockStatus | None) -> base.ExitStatus:
    """Return the exit status if an action was refused and this is the lock now."""
    if after is None:
        return base.ExitStatus.NOT_HELD
    if after.pause is not None:
        return base.ExitStatus.PAUSED
    if after.state.may_still_run:
        return base.ExitStatus.RUNNING
    return base.ExitStatus.NOT_HELD
