"""The app, which registers the checks and the receivers; a call loads their modules."""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from django.apps import AppConfig
from django.core import management
from django.core.checks import Tags, register
from django.core.management.base import BaseCommand
from django.utils.module_loading import import_string
from django.utils.translation import pgettext_lazy

from django_shedlock import conf, signals

RECORDED = {
    signals.lock_acquired: "record_abandoned",
    signals.lock_lost: "record_loss",
    signals.lock_released: "record_end",
}
CHECKS = "checks.check_settings checks.check_cachalot checks.check_tenants"
CHECKS += " checks.check_providers checks.check_jobs contrib.celery.apps.check_celery"
CHECKS += " contrib.crontab.checks.check_crontab"

load_of_django: Callable[[str, str], BaseCommand] = management.load_command_class


def load_command_class(app_name: str, name: str) -> BaseCommand:
    """Return the command as Django does, under its lock of ``SHEDLOCK_COMMANDS``."""
    command = load_of_django(app_name, name)
    if name not in conf.COMMANDS.value:
        return command
    locked: BaseCommand = late("jobs.commands.lock_command")(command=command, name=name)
    return locked


class ShedLockConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock"``."""

    name = "django_shedlock"
    verbose_name: Any = pgettext_lazy("shedlock", "Scheduler locks")
    default_auto_field: Any = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register checks and the receivers that record runs; lock commands."""
        # Both manage.py and call_command() look for it in this module.
        management.load_command_class = load_command_class
        for signal, receiver in RECORDED.items():
            signal.connect(late(f"history.recording.{receiver}"))
        # django-crontab runs checks at each tick: one wrong job would stop the others.
        if sys.argv[1:3] != ["crontab", "run"]:
            for check in CHECKS.split():
                register(late(check))
            register(late("checks.check_stores"), Tags.database)


@cache  # an app may become ready again, in tests
def late(path: str) -> Any:
    """Return what calls our function of this path, whose module is loaded only then."""

    class Late:
        def __call__(self, **kwargs: Any) -> Any:
            function = import_string(f"django_shedlock.{path}")
            Late.__call__ = staticmethod(function)  # type: ignore[method-assign]
            return function(**kwargs)

    return Late()
