"""Three workers fire the same jobs at the same moment: each job runs once."""

from __future__ import annotations

import time
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand

from django_shedlock.providers import get_provider
from django_shedlock.states import LockStatus
from django_shedlock.test import free
from example.models import JobRun
from example.workers import Worker, workers

ROUNDS = ("rates.refresh", "billing.send_digest", "report:acme") * 2
PATIENCE = 15
"""Seconds after which the demo says that something is wrong."""


class Command(BaseCommand):
    """Show who runs and who skips; fail if a job ran twice, or not at all."""

    help = "Shows three workers that fire the same jobs, of which one runs each."

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare, fire the rounds, kill a worker, and tell where to look."""
        self.prepare()
        with workers("worker-1", "worker-2", "worker-3") as team:
            self.title("Three workers fire the same job at the same moment")
            for number, job in enumerate(ROUNDS, start=1):
                self.fire(team, job, tick=f"round-{number}")
            self.title("A worker is killed in the middle of a job with a lease of 2 s")
            self.kill_one(team)
        self.tell_where_to_look()

    def prepare(self) -> None:
        """Make the tables and a user, and forget earlier demos."""
        call_command("migrate", verbosity=0, skip_checks=True)
        JobRun.objects.all().delete()
        users = get_user_model().objects
        if not users.filter(username="admin").exists():
            users.create_superuser("admin", "admin@example.com", "admin")
        for name in (*ROUNDS, "backup"):
            free(name)

    def fire(self, team: list[Worker], job: str, tick: str) -> None:
        """Let all workers run ``job`` at once, and show what each of them did."""
        for worker in team:
            worker.fire(job, tick)
        outcomes = [f"{worker.name} {worker.outcome():<9}" for worker in team]
        self.stdout.write(f"  {job:<20} {'   '.join(outcomes)}".rstrip())
        self.stdout.flush()
        self.check_once(job, tick)
        free(job)  # the next round would otherwise wait for lock_at_least_for

    def check_once(self, job: str, tick: str) -> None:
        """Fail unless the bodies' own records say that one of them ran."""
        runs = JobRun.objects.filter(job=job, tick=tick).count()
        if runs != 1:
            raise CommandError(f"{job} ran {runs} times in {tick} instead of once.")

    def kill_one(self, team: list[Worker]) -> None:
        """Show how a lock comes free whose holder died."""
        victim, survivor, _ = team
        victim.fire("backup", "crash")
        self.until(lambda: JobRun.objects.filter(job="backup").exists())
        self.show("while it runs")
        victim.kill()
        self.show(f"{victim.name} is dead")
        self.try_to_run(survivor)
        self.until(lambda: not self.status().state.is_held)
        self.show("its lease is over")
        survivor.fire("backup", "afterwards")
        self.stdout.write(f"  {survivor.name} {survivor.outcome()}")
        self.check_once("backup", "afterwards")
        self.show("and gave it back")

    def try_to_run(self, survivor: Worker) -> None:
        """Show that a dead holder's lock still protects its job for the lease."""
        survivor.fire("backup", "too-early")
        outcome = survivor.outcome()
        self.stdout.write(f"  {survivor.name} {outcome}: the lease protects the job")
        if outcome != "skipped":
            raise CommandError("backup ran while its lock was held.")

    def status(self) -> LockStatus:
        """Return the state of the lock in this part."""
        return get_provider().statuses("backup")[0]

    def show(self, moment: str) -> None:
        """Write a line of the table of locks."""
        lock = self.status()
        left = (
            f"{lock.remaining.total_seconds():.1f} s left" if lock.state.is_held else ""
        )
        line = f"  {moment:<20} {lock.name}  {lock.state:<8} {lock.locked_by}  {left}"
        self.stdout.write(line.rstrip())
        self.stdout.flush()

    def until(self, condition: Any) -> None:
        """Wait for ``condition``, but not for ever."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise CommandError(f"It did not happen within {PATIENCE} s.")
            time.sleep(0.05)

    def title(self, text: str) -> None:
        """Write a headline."""
        self.stdout.write(f"\n{self.style.MIGRATE_HEADING(text)}")

    def tell_where_to_look(self) -> None:
        """Write how to see the locks in the admin."""
        self.title("Every job ran once. See the locks in the admin")
        self.stdout.write("  start    python example_project/manage.py runserver")
        self.stdout.write(
            "  address  http://127.0.0.1:8000/admin/django_shedlock/lockrecord/"
        )
        self.stdout.write("  login    admin / admin")
