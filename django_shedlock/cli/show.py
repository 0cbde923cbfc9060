"""``manage.py shedlock show``."""

from argparse import ArgumentParser
from collections.abc import Iterator

from django.db import Error

from django_shedlock import conf
from django_shedlock.cli import base, json_output, terminal
from django_shedlock.cli.history import (
    NO_RUN_TEXT,
    last_runs,
    open_run_text,
    run_as_dict,
    running_run,
    runs_table,
)
from django_shedlock.clocks import aware, local_text
from django_shedlock.durations import format_left, format_measured, format_rough
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.patterns import WILDCARD
from django_shedlock.locks.status import LockState, LockStatus, RunOutcome
from django_shedlock.models import LockRun
from django_shedlock.providers.base import LockProvider
from django_shedlock.registry.jobs import registered_by_name
from django_shedlock.sql.errors import describe


class Show(base.Subcommand):
    """Shows all that is known about locks, one after the other."""

    name = "show"
    group = base.Group.LOOK
    example = 'show "billing.*"'
    help = "show all that is known of a lock"
    runs: list[LockRun] | None = None
    run_limit = 5
    is_past_readable: bool = True

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        base.add_names(parser, is_required=True)
        base.add_output(parser)

    def run(
        self,
        provider: LockProvider,
        *,
        name: list[str],
        json: bool,
        wide: bool,
        traceback: bool,
        **options: object,
    ) -> None:
        self.provider: LockProvider = provider
        self.wide: bool = wide
        first, *others = name
        # A name may look like a pattern, as "import[1]" does.
        is_one = not others and not WILDCARD.search(first)
        if others or not (is_one or provider.status(first)):
            found = base.find_statuses(provider, name)
        else:
            found, is_one = iter([base.find_status(provider, first)]), True
        if not json:
            for number, status in enumerate(found):
                if number:
                    self.write("")
                self.write(self.as_text(status, traceback=traceback))
        elif is_one:
            self.write(json_output.as_json(self.described(next(found))))
        else:
            json_output.write_json(self.stdout, map(self.described, found))

    def read(self, status: LockStatus) -> None:
        """Read what else is known of the lock."""
        self.status: LockStatus = status
        self.runs = None
        self.read_past(self.provider.history_database)

    @property
    def shown_runs(self) -> list[LockRun] | None:
        """The run that goes on and the last ones; ``None`` without a history."""
        running = running_run(self.status)
        ended = self.runs or []
        # It may have ended since the lock was read.
        if running is None or running.locked_by in {run.locked_by for run in ended}:
            return self.runs
        return [running, *ended]

    def about(self) -> dict[str, str]:
        """Return what the project says of the job, if its module is imported."""
        job = registered_by_name(self.provider.alias).get(self.status.name)
        description, runbook = (job.description, job.runbook) if job else ("", "")
        return {"description": description, "runbook": runbook}

    def described(self, status: LockStatus) -> dict[str, object]:
        """Return all that is known of the lock, as JSON shows it."""
        self.read(status)
        return {**self.about(), **self.as_dict()}

    def as_text(self, status: LockStatus, *, traceback: bool) -> str:
        """Return all that is known of the lock, for people."""
        self.read(status)
        lines = self.first_lines()
        about = self.about()
        facts = [("About", about["description"]), ("Runbook", about["runbook"])]
        told = [each for each in facts if each[1]]
        for title, fact in [*_facts(self.provider, status), *told]:
            text, role = (fact, "") if isinstance(fact, str) else fact
            shown_title = terminal.styled(self.style, "MIGRATE_LABEL", f"{title:<12}")
            text = terminal.styled(self.style, role, terminal.printable(text))
            lines.append(shown_title + text)
        if runs := self.shown_runs:
            how = {"wide": self.wide, "traceback": traceback}
            lines += ["", runs_table(self.style, runs, **how, named=False)]
        elif runs is not None:
            text = f"{NO_RUN_TEXT} it."
            if status.unreported_run not in {"", status.locked_by}:
                text += f" {terminal.printable(open_run_text(status))}"
            lines += ["", text]
        return "\n".join([*lines, *self.last_lines()])

    def read_past(self, using: str | None) -> None:
        """
        Read the lock's past from the database ``using``; nothing if it is ``None``.

        If the locks are in another store, a failure of that database is only reported.
        """
        if using is None or not self.is_past_readable:
            return
        try:
            self.read_history(using)
        except Error as error:
            if self.provider.record_database is not None:
                raise
            self.is_past_readable = False
            self.stderr.write(
                f"The history in database {using!r} can't be read: {describe(error)}"
            )

    def read_history(self, using: str) -> None:
        """Read the last runs from the database ``using``."""
        name, alias = self.status.name, self.provider.alias
        self.runs = last_runs(name, alias, using, self.run_limit)

    def as_dict(self) -> dict[str, object]:
        """Return the lock as JSON shows it."""
        grace = default_duration(conf.GRACE)
        return {
            **json_output.status_as_dict(self.status, grace),
            "runs": [run_as_dict(run) for run in self.shown_runs or ()],
        }

    def first_lines(self) -> list[str]:
        """Return the lines above the facts."""
        return []

    def last_lines(self) -> list[str]:
        """Return the lines below the runs."""
        return []


Fact = tuple[str, str | terminal.Cell]
"""A title, and the text after it."""


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
        # A registration and a pause also set the tick.
        has_begun = ticks.tick and (status.job.last_run or status.job.open_run)
        last = local_text(ticks.tick) if ticks.tick and has_begun else "none has begun"
        yield "Last tick", last
        if status.next_tick is not None:
            yield "Next tick", local_text(status.next_tick)
        since = status.overdue_since(default_duration(conf.GRACE))
        if since is not None:
            yield "Overdue", terminal.Cell(f"since {local_text(since)}", "ERROR")


def _holder(status: LockStatus) -> Iterator[Fact]:
    is_held = status.state.is_held
    if status.pause is not None:
        yield "Paused by", status.pause.operator
        yield "Reason", status.pause.reason
    else:
        yield "Locked by", status.locked_by
    since = f", {format_rough(status.held_for)} ago" if is_held else ""
    yield "Locked at", f"{local_text(status.locked_at)}{since}"
    if is_held and status.heartbeat_at is not None:
        age = format_rough(aware(status.clock) - aware(status.heartbeat_at))
        yield "Heartbeat", f"{local_text(status.heartbeat_at)}, {age} ago"
    if status.is_endless:
        yield "Until", "it is resumed"
    elif is_held:
        left = f"in {format_left(status.remaining)}, unless it is extended"
        yield "Until", f"{local_text(status.lock_until)}, {left}"
    elif status.state is LockState.EXPIRED:
        yield "Expired at", local_text(status.lock_until)


def _runs(status: LockStatus) -> Iterator[Fact]:
    job = status.job
    if status.state is LockState.RUNNING:
        yield "Running for", format_rough(status.held_for)
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
