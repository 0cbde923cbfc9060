"""Three workers fire the same jobs at the same moment: each job runs once."""

from __future__ import annotations

import shlex
import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand
from django.urls import reverse

from django_shedlock.testing import force_release
from example import crash
from example.apps import CLOCK_VARIABLE
from example.crash import Crash
from example.incident import (
    TEAM,
    Incident,
    WrongClock,
    bring_history_back,
    forget_everything,
)
from example.jobs import LEASE
from example.models import JobRun
from example.rounds import Rounds
from example.screen import Screen
from example.workers import WorkerFailed, workers

INTERRUPTED = 130
"""The exit status that shells give to Ctrl-C."""


class Command(BaseCommand):
    """Show which worker runs and which skip; fail unless each job ran once."""

    help = "Shows three workers that fire the same jobs; one worker runs each job."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options for the incident."""
        parser.add_argument(
            "--incident",
            action="store_true",
            help="make ten faults instead, for the console to report, until Ctrl-C",
        )
        parser.add_argument(
            "--no-wait",
            action="store_true",
            help="end the incident at once, without waiting for Ctrl-C",
        )

    def handle(self, *args: Any, incident: bool, no_wait: bool, **options: Any) -> None:
        """Prepare, show both parts or the incident, and say where to see the locks."""
        screen = Screen(self)
        try:
            prepare()
            if incident:
                show_incident(screen, waits=not no_wait)
                return
            show(screen)
        except WorkerFailed as failure:
            raise CommandError(str(failure)) from failure
        except KeyboardInterrupt:
            raise CommandError("Interrupted.", returncode=INTERRUPTED) from None
        screen.title("Every job ran once. See the locks in the admin")
        tell_where_to_look(screen)


def prepare() -> None:
    """Create the tables and a user, and delete what earlier demos left."""
    bring_history_back()
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


def show_incident(screen: Screen, *, waits: bool) -> None:
    """Make all faults, and keep them until Ctrl-C, or end them at once."""
    if not settings.SHEDLOCK_ENABLED:
        raise CommandError("Without locks there is no incident: unset SHEDLOCK_OFF.")
    forget_everything()
    try:
        with workers(*TEAM) as team:
            Incident(screen, team).play()
            tell_how_to_see_incident(screen)
            if waits:
                wait_for_interrupt(screen)
    finally:
        forget_everything()


def wait_for_interrupt(screen: Screen) -> None:
    """Wait for Ctrl-C, the orderly end of an incident."""
    try:
        screen.write("\nCtrl-C ends the hanging processes, and deletes these locks.")
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        screen.write("The incident is over.")


def tell_how_to_see_incident(screen: Screen) -> None:
    """Write what shows the incident."""
    ahead = int(WrongClock.ahead.total_seconds())
    screen.write(
        "\n  The tables say of most that it happened minutes or hours ago: the demo has"
        "\n  moved the instants in their rows back, since nobody waits for a day. Most"
        "\n  earlier runs are copies: each job ran once, and the demo copied that run."
    )
    screen.title("Look at it in another terminal, as on the host with the wrong clock")
    screen.write(f"  clock    export {CLOCK_VARIABLE}={ahead}")
    screen.write(f"  verdict  {manage('shedlock check')}")
    screen.write(f"  locks    {manage('shedlock list')}")
    screen.write(f"  mail     {manage('shedlock check --mail-admins --verbosity 0')}")
    tell_where_to_look(screen)


def tell_where_to_look(screen: Screen) -> None:
    """Write how to see the locks in the admin."""
    variable = "SHEDLOCK_EXAMPLE_DATABASE_URL"
    where = f"  (with this {variable})" if settings.DATABASE_URL else ""
    screen.write(f"  start    {manage('runserver')}{where}")
    page = reverse("admin:django_shedlock_lockrecord_changelist")
    screen.write(f"  address  {settings.SHEDLOCK_SITE_URL}{page}")
    screen.write("  login    admin / admin")


def manage(command: str) -> str:
    """Return a command of this project, as the reader has to type it."""
    return f"{shlex.join([sys.orig_argv[0], sys.argv[0]])} {command}"
