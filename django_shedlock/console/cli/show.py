"""``manage.py shedlock show``."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from django.db import Error

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.console.cli.base import (
    STATE_ROLES,
    Subcommand,
    as_json,
    find_status,
    finding_line,
    instant,
    local,
    status_as_dict,
)
from django_shedlock.console.cli.history import (
    iter_runs,
    run_as_dict,
    runs_table,
    wanted_runs,
)
from django_shedlock.console.cli.terminal import Column, Terminal
from django_shedlock.console.monitoring.findings import Search
from django_shedlock.durations import format_seconds
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.states import LockStatus
from django_shedlock.models import LockAction
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.providers.database.connections import run_here
from django_shedlock.providers.database.errors import describe

RUNS = 5
ACTIONS = 5
INDENT = " " * 12
ACTION_COLUMNS = (
    Column("WHEN", 2, stays=True),
    Column("OPERATOR", 1, least=12, stays=True),
    Column("ACTION", 0, stays=True),
    Column("RESULT", 3),
    Column("REASON", 4, least=20),
)


class Show(Subcommand):
    """Shows all that is known of a lock."""

    name = "show"
    help = "show all that is known of one lock, and what to do next"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add the lock."""
        parser.add_argument("name", help="of the lock")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(
        self, provider: LockProvider, *, name: str, json: bool, **options: Any
    ) -> None:
        """Print the lock, its findings, its last runs, and what operators did."""
        status = find_status(provider, name)
        grace = default_duration(conf.GRACE)
        findings = Search(grace).of_locks(provider, [name]).get(name, [])
        runs, actions = self._history(provider, name)
        if json:
            shown = {
                **status_as_dict(status, grace, findings),
                "runs": [run_as_dict(run) for run in runs or ()],
                "actions": [_action_as_dict(action) for action in actions],
            }
            self.terminal.write(as_json(shown))
            return
        lines = [finding_line(self.terminal, finding) for finding in findings]
        lines += [_line(self.terminal, *fact) for fact in _facts(provider, status)]
        if runs:
            lines += ["", runs_table(self.terminal, runs, named=False)]
        elif runs is not None:
            lines += ["", "No runs yet."]
        if actions:
            rows = [_action_row(action) for action in actions]
            lines += ["", self.terminal.table(ACTION_COLUMNS, rows)]
        self.terminal.write("\n".join(lines))

    def _history(
        self, provider: LockProvider, name: str
    ) -> tuple[Sequence[Any] | None, Sequence[LockAction]]:
        if provider.history_database is None:
            return None, []
        try:
            return _last_runs(provider, name), _last_actions(provider, name)
        except Error as error:
            if isinstance(provider, DatabaseLockProvider):
                raise
            self.stderr.write(
                f"The history in database {provider.history_database!r} can't be read: "
                f"{describe(error)}"
            )
            return None, []


def _last_runs(provider: LockProvider, name: str) -> list[Any]:
    runs = wanted_runs(provider).filter(name=name)
    return list(islice(iter_runs(runs, (), RUNS), RUNS))


def _last_actions(provider: LockProvider, name: str) -> Sequence[LockAction]:
    using = str(provider.history_database)
    actions = LockAction.objects.using(using).of_lock(name, provider.alias)
    return run_here(lambda: list(actions.order_by("-pk")[:ACTIONS]), using)


Fact = tuple[str, str] | tuple[str, str, str]


def _line(terminal: Terminal, title: str, text: str, role: str = "") -> str:
    before = f"{title:<{len(INDENT)}}"
    wrapped = terminal.paragraph(before + text, indent=INDENT)
    title = terminal.styled("MIGRATE_LABEL", before)
    return title + terminal.styled(role, wrapped[len(before) :])


def _facts(provider: LockProvider, status: LockStatus) -> Iterator[Fact]:
    yield "Lock", status.name
    yield "Provider", provider.alias
    yield "State", status.state.value, STATE_ROLES.get(status.state, "")
    if status.unreadable:
        return
    if status.locked_by:
        yield from _holder(status)
        yield "Token", str(status.fencing_token)
    yield from _schedule(status)


def _holder(status: LockStatus) -> Iterator[Fact]:
    is_held = status.state.is_held
    if status.pause is not None:
        yield "Paused by", status.pause.operator
        yield "Reason", status.pause.reason
    else:
        yield "Locked by", status.locked_by
    since = f", {format_seconds(status.held_for)} ago" if is_held else ""
    yield "Locked at", f"{local(status.locked_at)}{since}"
    if is_held and status.heartbeat_at is not None:
        age = format_seconds(aware(status.clock) - aware(status.heartbeat_at))
        yield "Heartbeat", f"{local(status.heartbeat_at)}, {age} ago"
    if status.is_endless:
        yield "Until", "it is resumed"
    elif is_held:
        left = format_seconds(status.remaining)
        yield "Until", f"{local(status.lock_until)}, in {left}, unless it is extended"
    elif status.state.may_run:
        yield "Expired at", local(status.lock_until)


def _schedule(status: LockStatus) -> Iterator[Fact]:
    ticks = status.schedule_state
    if ticks.schedule is None:
        return
    yield "Schedule", str(ticks.schedule)
    yield "Last tick", "none has begun" if ticks.tick is None else local(ticks.tick)
    if status.next_tick is not None:
        yield "Next tick", local(status.next_tick)
    since = status.overdue_since(default_duration(conf.GRACE))
    if since is not None:
        yield "Overdue", f"since {local(since)}", "ERROR"


def _action_row(action: LockAction) -> tuple[Any, ...]:
    row = (action.operator, action.kind, action.result, action.reason)
    return (instant(action.began), *(text or "-" for text in row))


def _action_as_dict(action: LockAction) -> dict[str, Any]:
    columns = ("operator", "kind", "reason", "began", "ended", "result", "detail")
    return {column: getattr(action, column) for column in columns}
