"""Three workers fire the same jobs at the same moment: each job runs once."""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand

from django_shedlock.testing import force_release
from example import crash
from example.crash import Crash
from example.jobs import LEASE
from example.models import JobRun
from example.rounds import Rounds
from example.screen import Screen
from example.workers import WorkerFailed, workers

ADDRESS = "http://127.0.0.1:8000/admin/shedlock_console/lockrecord/"
INTERRUPTED = 130
"""The exit status that shells give to Ctrl-C."""


class Command(BaseCommand):
    """Show which worker runs and which skip; fail unless each job ran once."""

    help = "Shows three workers that fire the same jobs; one worker runs each job."

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare, show both parts, and say where to see the locks."""
        screen = Screen(self)
        try:
            prepare()
            show(screen)
        except WorkerFailed as failure:
            raise CommandError(str(failure)) from failure
        except KeyboardInterrupt:
            raise CommandError("Interrupted.", returncode=INTERRUPTED) from None
        tell_where_to_look(screen)


def prepare() -> None:
    """Create the tables and a user, and delete what earlier demos left."""
    call_command("migrate", verbosity=0, skip_checks=True)
    JobRun.objects.all().delete()
    force_release(crash.JOB)
    users = get_user_model().objects
    if not users.filter(username="admin").exists():
        users.create_superuser("admin", "admin@example.com", "admin")


def show(screen: Screen) -> None:
    """Run both parts with three workers."""
    with workers("worker-1", "worker-2", "worker-3") as team:
        screen.title("Three workers start the same job at the same moment")
        Rounds(screen, team).play()
        screen.title(
            f"A worker is killed in the middle of a job with a lease of {LEASE}"
        )
        Crash(screen, victim=team[0], survivor=team[1]).play()


def tell_where_to_look(screen: Screen) -> None:
    """Write how to see the locks in the admin."""
    variable = "SHEDLOCK_EXAMPLE_DATABASE_URL"
    where = f"  (with this {variable})" if settings.DATABASE_URL else ""
    screen.title("Every job ran once. See the locks in the admin")
    screen.write(f"  start    {sys.orig_argv[0]} {sys.argv[0]} runserver{where}")
    screen.write(f"  address  {ADDRESS}")
    screen.write("  login    admin / admin")
