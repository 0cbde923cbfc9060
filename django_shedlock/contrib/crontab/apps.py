"""The app: its command ``crontab`` replaces django-crontab's."""

from collections.abc import Iterator
from typing import Any

from django.apps import AppConfig


class CrontabConfig(AppConfig):
    """
    What to put into ``INSTALLED_APPS``: ``"django_shedlock.contrib.crontab"``.

    It must come before ``"django_crontab"``, because the first app's command wins.
    """

    name = "django_shedlock.contrib.crontab"
    label = "django_shedlock_crontab"

    def shedlock_jobs(self) -> Iterator[Any]:
        """Let operators start the entries by the names of their locks."""
        from django_shedlock.contrib.crontab.entries import crontab_jobs

        return crontab_jobs()
