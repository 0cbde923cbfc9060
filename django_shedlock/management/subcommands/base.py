"""What every subcommand of ``manage.py shedlock`` is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import ArgumentParser
from typing import Any, ClassVar

from django.core.management.base import CommandError, OutputWrapper

from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider
from django_shedlock.states import LockStatus

FAILED = 1
RUNNING = 3


class Subcommand(ABC):
    """One subcommand: its name, its arguments, and what it does."""

    name: ClassVar[str]
    help: ClassVar[str]

    def __init__(self, stdout: OutputWrapper):
        self.stdout = stdout

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add the subcommand's own arguments."""
        return

    def handle(self, alias: str | None, **options: Any) -> None:
        """Run with the provider of this alias, the default one if it is ``None``."""
        self.run(get_provider(alias or "default"), **options)

    @abstractmethod
    def run(self, *args: Any, **options: Any) -> None:
        """
        Do it, with the provider as the first argument.

        Raises ``CommandError`` with an exit status, or a ``ShedLockError``.
        """


def find_status(provider: LockProvider, name: str) -> LockStatus:
    """Return the lock's status, or raise ``CommandError``."""
    for status in provider.statuses(name):
        return status
    raise CommandError(
        f"There is no lock {name!r}. `shedlock list` shows all of them.",
        returncode=FAILED,
    )


def history_database(provider: LockProvider) -> str:
    """Return the alias of the database with the runs, or raise ``CommandError``."""
    if provider.history_database is None:
        raise CommandError(
            f"The provider {provider.alias!r} keeps no history.", returncode=FAILED
        )
    return provider.history_database
