"""The app: connects the receivers."""

from __future__ import annotations

from importlib.util import find_spec

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured


class CeleryConfig(AppConfig):
    """What to put into ``INSTALLED_APPS``: ``"django_shedlock.contrib.celery"``."""

    name = "django_shedlock.contrib.celery"
    label = "django_shedlock_celery"

    def ready(self) -> None:
        """
        Connect the receivers that tell jobs which attempts of a task are retries.

        Raises ``ImproperlyConfigured`` if Celery is missing.
        """
        if find_spec("celery") is None:
            raise ImproperlyConfigured(
                f"{self.name!r} is in INSTALLED_APPS, but Celery is missing: install "
                "celery, or remove the app."
            )
        from django_shedlock.contrib.celery.receivers import connect

        connect()
