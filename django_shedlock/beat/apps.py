"""The app that starts jobs where a project has no scheduler."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, register
from django.utils.translation import pgettext_lazy

from django_shedlock import conf

if TYPE_CHECKING:
    from django_shedlock.cli.base import Subcommand
    from django_shedlock.registry.jobs import Job


class BeatConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock.beat"``."""

    name = "django_shedlock.beat"
    label = "shedlock_beat"
    verbose_name = pgettext_lazy("shedlock", "Starts of scheduled jobs")

    def ready(self) -> None:
        """Register the check of ``SHEDLOCK_SCHEDULE``."""
        # django-crontab runs checks at each tick: one wrong job would stop the others.
        if sys.argv[1:3] != ["crontab", "run"]:
            register(check_schedule)

    @property
    def shedlock_jobs(self) -> "Callable[[], Iterator[Job]] | None":
        """The source of the jobs of ``SHEDLOCK_SCHEDULE``; ``None`` without it."""
        if not getattr(settings, conf.SCHEDULE.name, None):
            return None
        # Only a project with entries loads their module.
        from django_shedlock.beat.entries import schedule_jobs

        return schedule_jobs

    def shedlock_subcommands(self) -> "Sequence[type[Subcommand]]":
        """Return the subcommands that this app adds to ``shedlock``."""
        from django_shedlock.beat.catch_up import CatchUp
        from django_shedlock.beat.cli import Beat

        return [Beat, CatchUp]


def check_schedule(**kwargs: object) -> list[CheckMessage]:
    """Check the entries of ``SHEDLOCK_SCHEDULE``, and ``SHEDLOCK_GRACE``."""
    if not any(hasattr(settings, each.name) for each in (conf.SCHEDULE, conf.GRACE)):
        return []
    # Only these settings need the module, and nearly every command would load it.
    from django_shedlock.beat.checks import check_entries, check_grace

    return [*check_entries(), *check_grace()]
