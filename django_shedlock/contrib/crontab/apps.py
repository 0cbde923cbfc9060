"""The app: its command ``crontab`` takes the place of django-crontab's."""

from __future__ import annotations

from django.apps import AppConfig, apps


class CrontabConfig(AppConfig):
    """
    What to put into ``INSTALLED_APPS``: ``"django_shedlock.contrib.crontab"``.

    It has to come before ``"django_crontab"``, since the command of the first app wins.
    """

    name = "django_shedlock.contrib.crontab"
    label = "django_shedlock_crontab"


def locks_all_entries() -> bool:
    """Return whether the command ``crontab`` is the one of this app."""
    names = [app.name for app in apps.get_app_configs()]
    both = {CrontabConfig.name, "django_crontab"} <= set(names)
    return both and names.index(CrontabConfig.name) < names.index("django_crontab")
