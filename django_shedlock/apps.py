"""The app: it registers the system checks, and the receivers that record runs."""

import atexit
import sys
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import Tags, register
from django.utils.translation import pgettext_lazy

from django_shedlock import conf, signals
from django_shedlock.execution.shutdown import shut_down
from django_shedlock.registry.commands import lock_commands


class ShedLockConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock"``."""

    name = "django_shedlock"
    verbose_name: Any = pgettext_lazy("shedlock", "Scheduler locks")
    default_auto_field: Any = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the receivers that record runs, register checks, lock commands."""
        # After the imports above have registered theirs, so that it is called first.
        atexit.register(shut_down)
        from django_shedlock.history import recording

        signals.lock_acquired.connect(recording.record_abandoned)
        signals.lock_lost.connect(recording.record_loss)
        signals.lock_released.connect(recording.record_end)
        signals.lock_force_released.connect(recording.record_forced_release)
        if conf.COMMANDS.value:
            lock_commands()
        # django-crontab runs checks at each tick: one wrong job would stop the others.
        if sys.argv[1:3] != ["crontab", "run"]:
            self._register_checks()

    def _register_checks(self) -> None:
        from django_shedlock import checks

        register(checks.check_settings)
        register(checks.check_tenants)
        register(checks.check_providers)
        register(checks.check_jobs)
        register(checks.check_celery)
        register(checks.check_stores, Tags.database)
        if apps.is_installed("django_crontab"):
            from django_shedlock.contrib.crontab.checks import check_crontab

            register(check_crontab)
        if apps.is_installed("django_shedlock.contrib.pings"):
            from django_shedlock.contrib.pings.checks import check_pings

            register(check_pings)
