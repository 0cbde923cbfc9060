"""The subcommands of ``manage.py shedlock``."""

from __future__ import annotations

from django_shedlock.console.cli.base import Subcommand
from django_shedlock.console.cli.catch_up import CatchUp
from django_shedlock.console.cli.check import Check
from django_shedlock.console.cli.history import History
from django_shedlock.console.cli.listing import Listing
from django_shedlock.console.cli.operators import Extend, Release
from django_shedlock.console.cli.pause import PauseJob, ResumeJob
from django_shedlock.console.cli.prune import Prune
from django_shedlock.console.cli.run import Run
from django_shedlock.console.cli.show import Show
from django_shedlock.console.cli.trigger import TriggerJob

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
