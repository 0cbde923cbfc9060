"""The app for people who operate many jobs."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.utils.translation import pgettext_lazy

from django_shedlock import signals


class ConsoleConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock.console"``."""

    name = "django_shedlock.console"
    label = "shedlock_console"
    verbose_name: Any = pgettext_lazy("shedlock", "Console of scheduler locks")
    default_auto_field: Any = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the receivers that write the audit log, and register the check."""
        from django_shedlock.console.checks import check_tables
        from django_shedlock.console.operators import recording

        register(check_tables, Tags.database)

        signals.lock_force_released.connect(recording.record_release)
        signals.lock_force_extended.connect(recording.record_extension)

    def shedlock_subcommands(self) -> Sequence[Any]:
        """Add the console's subcommands to ``shedlock``, and what it adds to others."""
        from django_shedlock.console.cli.check import Check
        from django_shedlock.console.cli.listing import ListingWithFindings
        from django_shedlock.console.cli.operators import (
            ACTION_COMMANDS,
            AuditedTrigger,
        )
        from django_shedlock.console.cli.prune import PruneWithActions
        from django_shedlock.console.cli.show import ShowWithFindings

        return [
            ListingWithFindings,
            ShowWithFindings,
            *ACTION_COMMANDS,
            PruneWithActions,
            AuditedTrigger,
            Check,
        ]
