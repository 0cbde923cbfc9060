"""Parts of the library that are taken out, to see that this soak finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch


def part(module: str, name: str) -> Any:
    """Return a class or a function of the package; only processes with a beat do."""
    return getattr(import_module(f"django_shedlock.{module}"), name)


def acquire_what_is_held() -> None:
    """Let a lock that is held be acquired."""
    statements: Any = import_module("django_shedlock.providers.database.statements")
    for statement in (statements.begin_tick.usual, statements.begin_tick.over_open_run):
        _, columns = statement._build()
        changes = (statements.the_record(), columns)
        patch.object(statement, "_build", partial(tuple, changes)).start()
    status = part("locks.status", "LockStatus")
    refusal, state = status.refusal, part("locks.status", "LockState")

    def refusal_of_free(self: Any, *args: Any) -> Any:
        return refusal(replace(self, state=state.FREE, remaining=timedelta(0)), *args)

    def owed_if_free(self: Any, schedule: Any, grace: Any, since: Any) -> Any:
        return self.ticks.owed_tick(schedule, grace, self.clock, since)

    patch.object(status, "refusal", refusal_of_free).start()
    patch.object(status, "owed_tick", owed_if_free).start()


def begin_each_tick_again() -> None:
    """Let a tick be begun, and be owed, as often as anybody looks."""
    faults: Any = import_module("benchmarks.soak.broken")
    faults.BREAKS["tick"]()
    state = part("schedules.state", "ScheduleState")

    def owed(self: Any, schedule: Any, grace: Any, now: Any, since: Any) -> Any:
        return schedule.around(now)[0]

    patch.object(state, "owed_tick", owed).start()


def end_jobs_at_once() -> None:
    """Let a beat that ends send SIGTERM to its jobs at once."""
    end = part("beat.ending", "OrderlyEnd")
    make = end.__init__

    def impatient(self: Any, *args: Any) -> None:
        make(self, *args)
        self._stops_at = 0.0

    patch.object(end, "__init__", impatient).start()


def leave_locks_of_the_dead() -> None:
    """Let a beat release nothing for a child that has died."""
    jobs = part("beat.children", "StartedJobs")
    patch.object(jobs, "release_dead", lambda self, records: False).start()


def owe_ticks_of_pauses() -> None:
    """Let ticks that come in a pause be owed after it."""
    status = part("locks.status", "LockStatus")

    def ticks(self: Any, schedule: Any) -> Any:
        return self.schedule_state

    patch.object(status, "_ticks_by", ticks).start()


def forget_slow_jobs() -> None:
    """Let beats start and report nothing of one job."""
    look = part("beat.looks", "Look")
    due, reports = look.due, look.reports

    def most_due(self: Any, *args: Any) -> Any:
        return [each for each in due(self, *args) if each.name != "rare"]

    def most_reports(self: Any, *args: Any) -> Any:
        return [each for each in reports(self, *args) if each.name != "rare"]

    patch.object(look, "due", most_due).start()
    patch.object(look, "reports", most_reports).start()


BREAKS: dict[str, tuple[Callable[[], None], str]] = {
    "lease": (acquire_what_is_held, "one body"),
    "tick": (begin_each_tick_again, "once each tick"),
    "stop": (end_jobs_at_once, "none cut"),
    "dead": (leave_locks_of_the_dead, "no dead holder"),
    "pause": (owe_ticks_of_pauses, "not owed"),
    "owed": (forget_slow_jobs, "none lost"),
}
"""What is taken out of each process of the project, and the rule that this breaks."""
