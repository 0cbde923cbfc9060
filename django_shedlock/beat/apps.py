"""The app that starts jobs where a project has no scheduler."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.utils.translation import pgettext_lazy


class BeatConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock.beat"``."""

    name = "django_shedlock.beat"
    label = "shedlock_beat"
    verbose_name: Any = pgettext_lazy("shedlock", "Starts of scheduled jobs")

    def shedlock_subcommands(self) -> Sequence[Any]:
        """Add the subcommands ``catch-up`` and ``beat`` to ``shedlock``."""
        from django_shedlock.beat.cli import Beat, CatchUp

        return [CatchUp, Beat]
