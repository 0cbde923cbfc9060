"""The first part of the demo: all workers start the same job at the same moment."""

from __future__ import annotations

from django.core.management import CommandError

from django_shedlock.models import LockRecord
from django_shedlock.testing import force_release
from example.models import JobRun
from example.screen import Screen
from example.triggers import TRIGGERS
from example.workers import RAN, Worker

ROUNDS = ("report", "digest", "rates", "cleanup") * 2
LINE = "  {:<5}  {:<26}  {:<10}  {:<8}  {:<8}  {:<8}  {}"


class Rounds:
    """Fires each round, and shows which worker ran and which skipped."""

    def __init__(self, screen: Screen, team: list[Worker]):
        self.screen = screen
        self.team = team

    def play(self) -> None:
        """Fire all rounds. Raises ``CommandError`` unless each job ran exactly once."""
        names = [worker.name for worker in self.team]
        self.screen.write(LINE.format("round", "job", "started as", *names, "runs"))
        for number, trigger in enumerate(ROUNDS, start=1):
            self.fire(number, trigger)

    def fire(self, number: int, trigger: str) -> None:
        """Let every worker start the job, and compare with the ledger."""
        job, tick = TRIGGERS[trigger].job, f"round-{number}"
        make_ready(job)
        for worker in self.team:
            worker.fire(trigger, tick)
        outcomes = {worker.name: worker.outcome() for worker in self.team}
        runs = complete_runs(job, tick)
        self.show(number, trigger, outcomes, runs)
        check_once(job, tick, runs)
        check_reports(outcomes, runs)

    def show(
        self, number: int, trigger: str, outcomes: dict[str, str], runs: list[str]
    ) -> None:
        """Write the table's line for this round."""
        cells = [self.screen.outcome(outcome, width=8) for outcome in outcomes.values()]
        job, kind = TRIGGERS[trigger].job, TRIGGERS[trigger].kind
        self.screen.write(LINE.format(number, job, kind, *cells, len(runs)))


def make_ready(job: str) -> None:
    """Act as if the last round were long ago, and this one the job's next tick."""
    force_release(job)  # lock_at_least_for would keep it
    LockRecord.objects.filter(name=job).update(tick=None)


def complete_runs(job: str, tick: str) -> list[str]:
    """Return the workers whose jobs wrote both their begin and their end."""
    runs = JobRun.objects.filter(job=job, tick=tick, ended_at__isnull=False)
    return list(runs.values_list("worker", flat=True))


def check_once(job: str, tick: str, runs: list[str]) -> None:
    """Raise ``CommandError`` unless the ledger has exactly one run."""
    if len(runs) != 1:
        raise CommandError(f"{job} ran {len(runs)} times in {tick} instead of once.")


def check_reports(outcomes: dict[str, str], runs: list[str]) -> None:
    """Raise ``CommandError`` unless the workers' answers match the ledger."""
    reported = [name for name, outcome in outcomes.items() if outcome == RAN]
    if reported != runs:
        raise CommandError(f"{runs} ran, but {reported} said so.")
