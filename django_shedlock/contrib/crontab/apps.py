"""The app whose command ``crontab`` replaces django-crontab's."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from django_shedlock.registry.jobs import Job


class CrontabConfig(AppConfig):
    """
    The app that ``INSTALLED_APPS`` names as ``"django_shedlock.contrib.crontab"``.

    It must stand before ``"django_crontab"``, because the first app's command wins.
    """

    name = "django_shedlock.contrib.crontab"
    label = "django_shedlock_crontab"

    def shedlock_jobs(self) -> "Iterator[Job]":
        """Return the entries as jobs, which start by the names of their locks."""
        from django_shedlock.contrib.crontab.entries import crontab_jobs

        return crontab_jobs()
