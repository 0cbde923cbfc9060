"""The app, which registers the checks and the receivers."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import pgettext_lazy


class ShedLockConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock"``."""

    name = "django_shedlock"
    verbose_name = pgettext_lazy("shedlock", "Scheduler locks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and the receivers that record runs."""
        from django_shedlock import checks
        from django_shedlock.contrib.celery import checks as celery_checks
        from django_shedlock.contrib.crontab import checks as crontab_checks
        from django_shedlock.contrib.crontab.entries import is_tick
        from django_shedlock.history import recording  # noqa: F401

        crontab_checks.register_checks()
        # django-crontab runs checks at each tick: one wrong job would stop the others.
        if not is_tick():
            checks.register_checks()
            celery_checks.register_checks()
