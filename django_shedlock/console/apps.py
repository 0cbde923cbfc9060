"""The app for people who operate many jobs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Tags, register
from django.utils.translation import pgettext_lazy

from django_shedlock import signals

if TYPE_CHECKING:
    from django_stubs_ext import StrPromise

    from django_shedlock.cli.base import Subcommand


class ConsoleConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock.console"``."""

    name = "django_shedlock.console"
    label = "shedlock_console"
    verbose_name: "StrPromise" = pgettext_lazy("shedlock", "Console of scheduler locks")
    default_auto_field: str = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the receivers that write the audit log, and register the check."""
        register(check_tables, Tags.database)
        signals.lock_force_released.connect(record_release)
        signals.lock_force_extended.connect(record_extension)

    def shedlock_subcommands(self) -> "Sequence[type[Subcommand]]":
        """Add the console's subcommands to ``shedlock``, and what it adds to others."""
        from django_shedlock.console.cli import operators
        from django_shedlock.console.cli.check import Check
        from django_shedlock.console.cli.listing import ListingWithFindings
        from django_shedlock.console.cli.prune import PruneWithActions
        from django_shedlock.console.cli.show import ShowWithFindings

        return [
            ListingWithFindings,
            ShowWithFindings,
            operators.AuditedRelease,
            operators.AuditedExtend,
            operators.ResumeCommand,
            operators.PauseCommand,
            operators.AcknowledgeCommand,
            operators.WithdrawCommand,
            PruneWithActions,
            operators.AuditedTrigger,
            Check,
        ]


def check_tables(
    databases: Sequence[str] | None = None, **kwargs: object
) -> list[CheckMessage]:
    """Check the console's tables in these databases."""
    if not databases:
        return []
    # Few processes check a database, and every process would load the module.
    from django_shedlock.console import checks

    return checks.check_tables(databases)


def record_release(**kwargs: Any) -> None:
    """Write a forced release to the audit log."""
    # Only operators' actions need the module, and every process would load it.
    from django_shedlock.console.operators import recording

    recording.record_release(**kwargs)


def record_extension(**kwargs: Any) -> None:
    """Write a forced extension to the audit log."""
    # Only operators' actions need the module, and every process would load it.
    from django_shedlock.console.operators import recording

    recording.record_extension(**kwargs)
