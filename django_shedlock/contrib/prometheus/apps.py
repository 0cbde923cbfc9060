"""The app: connects the receivers."""

from django.apps import AppConfig


class PrometheusConfig(AppConfig):
    """What to put into ``INSTALLED_APPS``: ``"django_shedlock.contrib.prometheus"``."""

    name = "django_shedlock.contrib.prometheus"
    label = "django_shedlock_prometheus"

    def ready(self) -> None:
        from django_shedlock.contrib.prometheus import receivers  # noqa: F401
