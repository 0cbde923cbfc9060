"""The decorated jobs of this process: which there are, and some with a schedule."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand
from django.db.models import F
from django.test import modify_settings, override_settings

from django_shedlock import scheduler_lock
from django_shedlock.models import LockRecord
from django_shedlock.registry.jobs import registered_jobs
from tests.support.clocks import daily_far_from_now

DAILY = {
    "lock_at_most_for": "1m",
    "schedule": daily_far_from_now(settings.TIME_ZONE),
}

UNIMPORTED_APPS = ["tests.apps.packages", "tests.apps.twins"]
"""Apps with modules and a command that name the decorator."""

ran: list[str] = []
"""Which jobs ran."""


@contextmanager
def only_jobs_of(*modules: str) -> Iterator[None]:
    """Forget the jobs of all other modules in the body, where new ones may come."""
    before = list(registered_jobs)
    registered_jobs.clear()
    registered_jobs.update(job for job in before if job.path.startswith(modules))
    try:
        yield
    finally:
        registered_jobs.clear()
        registered_jobs.update(before)


@contextmanager
def app_in(folder: Path) -> Iterator[Path]:
    """Let an app that has nothing yet be all of the project; return its folder."""
    app = folder / "loose_app"
    app.mkdir()
    (app / "__init__.py").touch()
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        with override_settings(INSTALLED_APPS=["loose_app", "django_shedlock.beat"]):
            yield app
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.startswith("loose_app")]:
            del sys.modules[name]


@contextmanager
def unimported_jobs() -> Iterator[Callable[[], list[str]]]:
    """
    Let the project have apps with jobs, of which this process knows none.

    Yield a function that returns the modules of these apps that were imported since.
    """

    def imported() -> list[str]:
        return [
            name
            for name in sys.modules
            if name.startswith(tuple(f"{app}." for app in UNIMPORTED_APPS))
        ]

    for name in imported():
        del sys.modules[name]
    with (
        only_jobs_of(),
        modify_settings(INSTALLED_APPS={"append": UNIMPORTED_APPS}),
    ):
        yield imported


class Jobs:
    """Decorated jobs."""

    def __init__(self) -> None:
        ran.clear()

        @scheduler_lock("report", **DAILY)
        def report() -> None:
            ran.append("report")

        @scheduler_lock("fetch", **DAILY)
        async def fetch() -> None:
            ran.append("fetch")

        @scheduler_lock("failing", **DAILY)
        def failing() -> None:
            ran.append("failing")
            raise ZeroDivisionError("by nobody")

        @scheduler_lock("remind", **DAILY)
        def remind(group: str) -> None:
            ran.append(group)

        @scheduler_lock("tidy", lock_at_most_for="1h", lock_at_least_for="1h")
        def tidy() -> None:
            ran.append("tidy")

        @scheduler_lock("digest now", **DAILY)
        class Digest(BaseCommand):
            def handle(self, *args: Any, **options: Any) -> None:
                ran.append("digest now")

        self.report, self.fetch, self.failing = report, fetch, failing
        self.remind, self.tidy, self.digest = remind, tidy, Digest


@contextmanager
def scheduled_jobs() -> Iterator[Jobs]:
    """Let these jobs be all of the project."""
    with only_jobs_of():
        yield Jobs()


def make_late(name: str, days: int = 3) -> None:
    """Let so much time pass since the newest ticks of the lock."""
    time = timedelta(days=days)
    LockRecord.objects.filter(name=name).update(
        tick=F("tick") - time,
        due_at=F("due_at") - time,
        former_tick=F("former_tick") - time,
        repeated_tick=F("repeated_tick") - time,
    )
