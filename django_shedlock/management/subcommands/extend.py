"""``manage.py shedlock extend``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_shedlock.configuration import check_lease, parse_option
from django_shedlock.durations import format_seconds
from django_shedlock.interventions import Intervention
from django_shedlock.management.subcommands.base import FAILED, Subcommand, find_status
from django_shedlock.management.subcommands.operators import add_reason, operator
from django_shedlock.providers.base import LockProvider


class Extend(Subcommand):
    """Lengthens a lease."""

    name = "extend"
    help = "lengthen the lease of a held lock"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Which lock, and for how long."""
        parser.add_argument("name")
        parser.add_argument("duration", help='counts from now, as in "30s" or "1h30m"')
        add_reason(parser)

    def run(
        self,
        provider: LockProvider,
        *,
        name: str,
        duration: str,
        reason: str,
        **options: Any,
    ) -> None:
        """Lengthen the lease, or say why not."""
        lease = parse_option(name, "duration", duration)
        check_lease(name, lease)
        intervention = Intervention(provider, name, operator=operator(), reason=reason)
        if not intervention.extend(lease):
            find_status(provider, name)
            raise CommandError(f"Lock {name!r} is not held.", returncode=FAILED)
        remaining = format_seconds(find_status(provider, name).remaining)
        self.stdout.write(f"Lock {name!r} is held for {remaining} more at the most.")
