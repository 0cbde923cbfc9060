"""The app: its command ``crontab`` takes the place of django-crontab's."""

from __future__ import annotations

import sys

from django.apps import AppConfig, apps


class CrontabConfig(AppConfig):
    """
    What to put into ``INSTALLED_APPS``: ``"django_shedlock.contrib.crontab"``.

    It has to come before ``"django_crontab"``, since the command of the first app wins.
    """

    name = "django_shedlock.contrib.crontab"
    label = "django_shedlock_crontab"

    def ready(self) -> None:
        """Let the entries be known by the names of their locks."""
        from django_shedlock.contrib.crontab.jobs import entries_as_jobs
        from django_shedlock.known_jobs import sources

        if entries_as_jobs not in sources:
            sources.append(entries_as_jobs)


def locks_all_entries() -> bool:
    """Return whether the command ``crontab`` is the one of this app."""
    names = [app.name for app in apps.get_app_configs()]
    both = {CrontabConfig.name, "django_crontab"} <= set(names)
    return both and names.index(CrontabConfig.name) < names.index("django_crontab")


def is_tick() -> bool:
    """Return whether cron has started this process to run one entry."""
    return sys.argv[1:3] == ["crontab", "run"]
