"""``manage.py shedlock release``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.interventions import Intervention
from django_shedlock.management.subcommands.base import (
    FAILED,
    RUNNING,
    Subcommand,
    find_status,
)
from django_shedlock.management.subcommands.operators import add_reason, operator
from django_shedlock.management.subcommands.tables import printable
from django_shedlock.providers.base import LockProvider


class Release(Subcommand):
    """Frees a lock."""

    name = "release"
    help = "free a lock that lock_at_least_for keeps"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Which lock, and whether its job may run."""
        parser.add_argument("name")
        parser.add_argument(
            "--force",
            action="store_true",
            help="also if its job runs: another one may start, this one is not stopped",
        )
        add_reason(parser)

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        force: bool,
        reason: str,
        **options: Any,
    ) -> None:
        """Free the lock, or say why not."""
        intervention = Intervention(provider, name, operator=operator(), reason=reason)
        if intervention.release(running=force):
            self.stdout.write(f"Lock {name!r} is released.")
            return
        status = find_status(provider, name)
        if status.state.is_running:
            raise CommandError(
                f"Lock {name!r} is not released: its job is running as "
                f"{printable(status.locked_by)}. With --force it is released all the "
                "same, and another worker may start the job while this one goes on.",
                returncode=RUNNING,
            )
        raise CommandError(f"Lock {name!r} is not held.", returncode=FAILED)
