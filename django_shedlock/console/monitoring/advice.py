"""
What to do about a finding: commands that stay safe if somebody pastes them late.

A command that acts on a lock names the acquisition that it is about, so it is refused
once another one holds the lock. If a run may still go on, the first advice is to look
at its process. Before a job is run by hand, the operator looks whether it has run
since. No command contains a reason: the operator adds it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django_shedlock.console.links import has_catch_up
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.sentences import (
    what_to_look_at,
    what_to_look_for,
)
from django_shedlock.durations import format_duration
from django_shedlock.execution.skips import PROGRAM, operator_command

ASKS_FOR_REASON = " --reason"
"""How a command ends to which the operator has to add a reason."""


@dataclass(frozen=True)
class Advice:
    """
    The next ``command``; empty if none helps.

    If it only looks, ``look`` says what for, and ``command_after_look`` helps then.
    """

    command: str = ""
    look: str = ""
    command_after_look: str = ""

    def in_brief(self) -> str:
        """Return the next step, for a list of findings."""
        return f"Next: {self.command}" if self.command else ""

    def in_detail(self) -> str:
        """Return all steps, for whoever looks at one lock."""
        if self.look:
            return f"{self.look} {self.command_after_look}"
        return self.in_brief()


def advice_of(
    kind: Kind, alias: str, lock: str | None, fact: str, params: Mapping[str, Any]
) -> Advice:
    """Return what to do about a finding of this kind; see ``Finding``."""
    if lock is None:
        return _about_store(kind, alias, params)

    def line(*words: str) -> str:
        return operator_command(alias, *words)

    def after_look(after: str) -> Advice:
        return Advice(show, what_to_look_at(run), after)

    run, trigger = params.get("run", ""), line("trigger", lock)
    show = line("show", lock, *params.get("limits", ()))
    is_gone = line("acknowledge", lock, "--fact", fact, "--process-is-gone")
    match kind:
        case Kind.OVERDUE | Kind.REQUEST if params["suspect"]:
            return Advice(show)
        case Kind.OVERDUE if params["is_expired"] and params["may_release"]:
            return Advice(line("release", lock, "--held-by", run))
        case Kind.OVERDUE if (
            params["may_catch_up"] and not params["is_expired"] and has_catch_up()
        ):
            return Advice(line("catch-up", lock))
        case Kind.EXPIRED if not params["is_taken"]:
            return after_look(line("release", lock, "--held-by", run))
        case Kind.LONG:
            release = line("release", lock, "--held-by", run)
            return after_look(release + ASKS_FOR_REASON)
        case Kind.EXPIRED:
            return after_look(is_gone + ASKS_FOR_REASON)
        case Kind.LOST | Kind.ABANDONED if params["may_still_run"]:
            return after_look(is_gone + ASKS_FOR_REASON)
        case Kind.REQUEST if params["is_held"]:
            return Advice(show)
        case Kind.REQUEST if has_catch_up() and not params["is_expired"]:
            return Advice(line("catch-up", lock))
        case Kind.OVERDUE | Kind.REQUEST:
            return Advice(show, what_to_look_for(), trigger)
        case Kind.PAUSED:
            return Advice(line("resume", lock, "--held-by", run))
        case Kind.UNREADABLE:
            return Advice()
        case _:
            return Advice(line("history", lock))


def _about_store(kind: Kind, alias: str, params: Mapping[str, Any]) -> Advice:
    match kind:
        case Kind.SILENT if has_catch_up():
            return Advice(operator_command(alias, "catch-up"))
        case Kind.SILENT | Kind.MORE:
            return Advice(operator_command(alias, "list", "--attention"))
        case Kind.HISTORY if params["why"] == "outgrown":
            age = format_duration(params["age"])
            return Advice(f"{PROGRAM} prune --older-than {age} --all-providers")
        case Kind.HISTORY if params["migrate"]:
            return Advice(str(params["migrate"]))
        case _:
            return Advice()
