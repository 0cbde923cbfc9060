"""The subcommands of ``manage.py shedlock``, one a file."""

from __future__ import annotations

from django_shedlock.management.subcommands.base import Subcommand
from django_shedlock.management.subcommands.check import Check
from django_shedlock.management.subcommands.extend import Extend
from django_shedlock.management.subcommands.history import History
from django_shedlock.management.subcommands.listing import Listing
from django_shedlock.management.subcommands.prune import Prune
from django_shedlock.management.subcommands.release import Release
from django_shedlock.management.subcommands.run import Run

SUBCOMMANDS: tuple[type[Subcommand], ...] = (
    Listing,
    History,
    Release,
    Extend,
    Prune,
    Check,
    Run,
)
"""In the order in which ``--help`` shows them."""
