"""The app, which registers the checks and the receivers; a call loads their modules."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.utils.module_loading import import_string
from django.utils.translation import pgettext_lazy

from django_shedlock import signals

RECORDED = {
    signals.lock_acquired: "record_start",
    signals.lock_lost: "record_loss",
    signals.lock_not_acquired: "count_skip",
    signals.lock_released: "record_end",
}
CHECKS = "checks.check_settings checks.check_cachalot checks.check_providers"
CHECKS += " checks.check_jobs contrib.celery.apps.check_celery"
CHECKS += " contrib.crontab.checks.check_crontab"


class ShedLockConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock"``."""

    name = "django_shedlock"
    verbose_name = pgettext_lazy("shedlock", "Scheduler locks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and the receivers that record runs."""
        for signal, receiver in RECORDED.items():
            signal.connect(late(f"history.recording.{receiver}"))
        signals.new_run = late("history.recording.new_run")
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
