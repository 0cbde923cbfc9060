"""``manage.py shedlock show``."""

from argparse import ArgumentParser
from collections.abc import Iterator
from functools import partial
from typing import Any

from django.db import Error

from django_shedlock.clocks import aware, local_text
from django_shedlock.console.cli import base, terminal
from django_shedlock.console.cli.history import run_as_dict, runs_table
from django_shedlock.console.monitoring.search import Search
from django_shedlock.durations import format_measured, format_seconds
from django_shedlock.locks.status import LockState, LockStatus, RunOutcome
from django_shedlock.models import LockAction, LockRun
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.registry.discovery import known_jobs
from django_shedlock.sql.connections import run_here
from django_shedlock.sql.errors import describe

RUNS = 5
ACTIONS = 5
COLUMNS = ("operator", "kind", "reason", "began", "ended", "result", "detail")
"""An action's columns in JSON."""


class Show(base.Subcommand):
    """Shows all that is known of a lock."""

    name = "show"
    help = "show all that is known of one lock, and what to do next"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="of the lock")
        base.add_output(parser)

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        json: bool,
        wide: bool,
        traceback: bool,
        **options: Any,
    ) -> None:
        status = base.find_status(provider, name)
        findings = Search(acknowledged=True).of_locks(provider, [name]).get(name, [])
        runs, actions = self._history(provider, name)
        job = known_jobs(provider.alias).get(name)
        about = {
            "description": job.description if job else "",
            "runbook": job.runbook if job else "",
        }
        if json:
            shown = {
                **about,
                **terminal.status_as_dict(status, Search().grace, findings),
                "runs": [run_as_dict(run) for run in runs or ()],
                "actions": [
                    {column: getattr(action, column) for column in COLUMNS}
                    for action in actions
                ],
            }
            self.write(terminal.as_json(shown))
            return
        lines = [terminal.finding_line(self.style, finding) for finding in findings]
        facts = [("About", about["description"]), ("Runbook", about["runbook"])]
        told = [each for each in facts if each[1]]
        for title, fact in [*_facts(provider, status), *told]:
            text, role = (fact, "") if isinstance(fact, str) else fact
            shown_title = terminal.styled(self.style, "MIGRATE_LABEL", f"{title:<12}")
            text = terminal.styled(self.style, role, terminal.printable(text))
            lines.append(shown_title + text)
        if runs:
            how = {"wide": wide, "traceback": traceback}
            lines += ["", runs_table(self.style, runs, **how, named=False)]
        elif runs is not None:
            lines += ["", "No runs yet."]
        if actions:
            rows = [
                {
                    "WHEN": terminal.instant(action.began, wide=wide),
                    "OPERATOR": action.operator,
                    "ACTION": action.kind,
                    "RESULT": action.result,
                    "REASON": action.reason,
                }
                for action in actions
            ]
            lines += ["", terminal.table(self.style, rows)]
        self.write("\n".join(lines))

    def _history(
        self, provider: LockProvider, name: str
    ) -> tuple[list[LockRun] | None, list[LockAction]]:
        # The last runs (None without a history), and the last actions.
        using = provider.history_database
        if using is None:
            return None, []
        runs = LockRun.objects.using(using).of_lock(name, provider.alias)
        actions = LockAction.objects.using(using).of_lock(name, provider.alias)
        try:
            return (
                run_here(partial(list, runs.order_by("-pk")[:RUNS]), using),
                run_here(partial(list, actions.order_by("-pk")[:ACTIONS]), using),
            )
        except Error as error:
            if isinstance(provider, DatabaseLockProvider):
                raise
            self.stderr.write(
                f"The history in database {using!r} can't be read: {describe(error)}"
            )
            return None, []


Fact = tuple[str, str | terminal.Cell]
"""A title, and what stands after it."""


def _facts(provider: LockProvider, status: LockStatus) -> Iterator[Fact]:
    yield "Lock", status.name
    yield "Provider", provider.alias
    yield "State", terminal.coloured(status.state)
    if status.unreadable:
        return
    if status.locked_by:
        yield from _holder(status)
        yield "Token", str(status.fencing_token)
    yield from _runs(status)
    ticks = status.schedule_state
    if ticks.schedule is not None:
        yield "Schedule", str(ticks.schedule)
        yield "Last tick", local_text(ticks.tick) if ticks.tick else "none has begun"
        if status.next_tick is not None:
            yield "Next tick", local_text(status.next_tick)
        since = status.overdue_since(Search().grace)
        if since is not None:
            yield "Overdue", terminal.Cell(f"since {local_text(since)}", "ERROR")


def _holder(status: LockStatus) -> Iterator[Fact]:
    is_held = status.state.is_held
    if status.pause is not None:
        yield "Paused by", status.pause.operator
        yield "Reason", status.pause.reason
    else:
        yield "Locked by", status.locked_by
    since = f", {format_seconds(status.held_for)} ago" if is_held else ""
    yield "Locked at", f"{local_text(status.locked_at)}{since}"
    if is_held and status.heartbeat_at is not None:
        age = format_seconds(aware(status.clock) - aware(status.heartbeat_at))
        yield "Heartbeat", f"{local_text(status.heartbeat_at)}, {age} ago"
    if status.is_endless:
        yield "Until", "it is resumed"
    elif is_held:
        left = f"in {format_seconds(status.remaining)}, unless it is extended"
        yield "Until", f"{local_text(status.lock_until)}, {left}"
    elif status.state.may_run:
        yield "Expired at", local_text(status.lock_until)


def _runs(status: LockStatus) -> Iterator[Fact]:
    job = status.job
    if status.state is LockState.RUNNING:
        yield "Running for", format_seconds(status.held_for)
    if job.usual_duration is not None:
        yield "Usually", format_measured(job.usual_duration)
    if job.outcome:
        took = job.last_duration
        how = [] if took is None else [f"after {format_measured(took)}"]
        how += [f"at {local_text(job.ended_at)}"] if job.ended_at else []
        text, role = terminal.coloured(job.outcome)
        yield "Last run", terminal.Cell(", ".join([text, *how]), role)
    if job.failures > 1:
        yield "Failures", terminal.Cell(f"{job.failures} in a row", "ERROR")
    if job.succeeded_at and job.outcome != RunOutcome.SUCCEEDED:
        yield "Succeeded", local_text(job.succeeded_at)
    if job.asked_at:
        because = f", because: {job.asked_why}" if job.asked_why else ""
        by = f" by {job.asked_by}" if job.asked_by else ""
        yield "Requested", f"{local_text(job.asked_at)}{by}{because}"
