"""The app: it registers the system checks, and the receivers that record runs."""

import atexit
import sys
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Tags, register
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
        signals.lock_acquired.connect(record_abandoned)
        signals.lock_lost.connect(record_loss)
        signals.lock_released.connect(record_end)
        signals.lock_force_released.connect(record_forced_release)
        if conf.COMMANDS.value:
            lock_commands()
        # django-crontab runs checks at each tick: one wrong job would stop the others.
        if sys.argv[1:3] != ["crontab", "run"]:
            self._register_checks()

    def _register_checks(self) -> None:
        register(check_project)
        register(check_stores, Tags.database)
        if apps.is_installed("django_crontab"):
            from django_shedlock.contrib.crontab.checks import check_crontab

            register(check_crontab)
        if apps.is_installed("django_shedlock.contrib.pings"):
            from django_shedlock.contrib.pings.checks import check_pings

            register(check_pings)


# Note [Modules that few processes need]
# Every process of the project loads this module, and most of them run no job, or no
# check. So what is registered here loads its own module when it is called.


def check_project(**kwargs: object) -> list[CheckMessage]:
    """Check settings, providers and jobs."""
    # See Note [Modules that few processes need].
    from django_shedlock import checks

    return [
        *checks.check_settings(),
        *checks.check_tenants(),
        *checks.check_providers(),
        *checks.check_jobs(),
        *checks.check_celery(),
    ]


def check_stores(
    databases: Sequence[str] | None = None, **kwargs: object
) -> list[CheckMessage]:
    """Let each provider check its store, if that is in one of the databases."""
    # See Note [Modules that few processes need].
    from django_shedlock import checks

    return checks.check_stores(databases)


def record_abandoned(**kwargs: Any) -> None:
    """Write the run that an acquisition accounted for to the history."""
    # See Note [Modules that few processes need].
    from django_shedlock.history import recording

    recording.record_abandoned(**kwargs)


def record_loss(**kwargs: Any) -> None:
    """Write a run that loses its lock to the history."""
    # See Note [Modules that few processes need].
    from django_shedlock.history import recording

    recording.record_loss(**kwargs)


def record_end(**kwargs: Any) -> None:
    """Write a run that is over to the history."""
    # See Note [Modules that few processes need].
    from django_shedlock.history import recording

    recording.record_end(**kwargs)


def record_forced_release(**kwargs: Any) -> None:
    """Write the run whose lock an operator released to the history."""
    # See Note [Modules that few processes need].
    from django_shedlock.history import recording

    recording.record_forced_release(**kwargs)
