"""The subcommands of ``manage.py shedlock``."""

from __future__ import annotations

from django_shedlock.management.subcommands.base import Subcommand
from django_shedlock.management.subcommands.catch_up import CatchUp
from django_shedlock.management.subcommands.check import Check
from django_shedlock.management.subcommands.history import History
from django_shedlock.management.subcommands.listing import Listing
from django_shedlock.management.subcommands.operators import Extend, Release
from django_shedlock.management.subcommands.pause import PauseJob, ResumeJob
from django_shedlock.management.subcommands.prune import Prune
from django_shedlock.management.subcommands.run import Run
from django_shedlock.management.subcommands.show import Show
from django_shedlock.management.subcommands.trigger import TriggerJob

SUBCOMMANDS: tuple[type[Subcommand], ...] = (
    Listing,
    Show,
    History,
    Release,
    Extend,
    PauseJob,
    ResumeJob,
    Prune,
    Check,
    Run,
    TriggerJob,
    CatchUp,
)
"""In the order in which ``--help`` shows them."""
