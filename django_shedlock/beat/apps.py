"""The app that starts jobs where a project has no scheduler."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.translation import pgettext_lazy

if TYPE_CHECKING:
    from django_shedlock.cli.base import Subcommand


class BeatConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock.beat"``."""

    name = "django_shedlock.beat"
    label = "shedlock_beat"
    verbose_name = pgettext_lazy("shedlock", "Starts of scheduled jobs")

    def shedlock_subcommands(self) -> "Sequence[type[Subcommand]]":
        """Return the subcommands that this app adds to ``shedlock``."""
        from django_shedlock.beat.catch_up import CatchUp
        from django_shedlock.beat.cli import Beat

        return [CatchUp, Beat]
