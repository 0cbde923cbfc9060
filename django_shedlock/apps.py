"""The app, which registers the checks and the receivers."""

from __future__ import annotations

import sys

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.utils.translation import pgettext_lazy


class ShedLockConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock"``."""

    name = "django_shedlock"
    verbose_name = pgettext_lazy("shedlock", "Scheduler locks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and the receivers that record runs."""
        from django_shedlock import checks
        from django_shedlock.contrib.celery.apps import check_celery
        from django_shedlock.contrib.crontab.checks import check_crontab
        from django_shedlock.history import recording  # noqa: F401

        # django-crontab runs checks at each tick: one wrong job would stop the others.
        if sys.argv[1:3] == ["crontab", "run"]:
            return
        for check in (
            checks.check_settings,
            checks.check_cachalot,
            checks.check_providers,
            checks.check_jobs,
            check_celery,
            check_crontab,
        ):
            register(check)
        register(checks.check_stores, Tags.database)
