"""``manage.py shedlock prune``."""

from argparse import ArgumentParser
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django_shedlock import conf
from django_shedlock.cli import base
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.history.pruning import prune_locks, prune_runs
from django_shedlock.history.retention import retention
from django_shedlock.providers import get_provider, provider_aliases


@dataclass(frozen=True)
class Pruning:
    """
    What to delete from the database ``using``: rows ``older_than`` this.

    They are those of the ``provider`` with this alias; with ``None``, those of all. A
    ``dry_run`` only counts. ``where`` begins the sentences about it.
    """

    using: str
    older_than: timedelta
    provider: str | None = None
    dry_run: bool = False
    where: str = ""

    def sentence(self, rows: str, count: int) -> str:
        """Say how many of these rows were deleted, or would be."""
        verb = "Would delete" if self.dry_run else "Deleted"
        return f"{self.where}{verb} {rows}: {count}."


class Prune(base.Subcommand):
    """Deletes old rows."""

    name = "prune"
    group = base.Group.TIDY
    example = "prune --older-than 30d --dry-run"
    help = "delete old runs and, with --unused-for, records of unused locks"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        base.add_duration(
            parser,
            "--older-than",
            "delete what ended longer ago than this; "
            "SHEDLOCK_HISTORY_RETENTION by default",
        )
        base.add_duration(
            parser,
            "--unused-for",
            "also delete records of locks whose last lease ended longer ago than "
            "this, but not of decorated jobs with fixed names",
        )
        base.add_switch(
            parser,
            "--all-providers",
            "in the databases of all providers, also runs of providers that are "
            "no longer in SHEDLOCK_PROVIDERS",
        )
        base.add_switch(parser, "--dry-run", "delete nothing, and say how much")

    def handle(self, alias: str | None, **options: Any) -> None:
        if options["all_providers"]:
            if alias is not None:
                raise base.WrongCall("Give --provider or --all-providers, not both.")
            found = {get_provider(each).history_database for each in provider_aliases()}
            databases = sorted(each for each in found if each is not None)
            for using in databases:
                where = f"Database {using!r}: " if len(databases) > 1 else ""
                self.run(using, None, where=where, **options)
            return
        provider = get_provider(alias or "default")
        if options["unused_for"] is not None and provider.record_database is None:
            # The records in the database with its history are another provider's.
            raise base.WrongCall(
                f"The provider {provider.alias!r} has no records of locks in a "
                "database. Leave --unused-for out."
            )
        self.run(base.history_database(provider), provider.alias, **options)

    def run(
        self,
        using: str,
        provider: str | None,
        *,
        older_than: timedelta | None,
        unused_for: timedelta | None,
        dry_run: bool,
        where: str = "",
        **options: object,
    ) -> None:
        if older_than is None:
            older_than = retention()
        if older_than is None:
            raise base.WrongCall(
                f"{conf.HISTORY_RETENTION.name} is None: give --older-than."
            )
        if older_than < timedelta(0):
            raise InvalidLockConfiguration(
                f"{conf.HISTORY_RETENTION.name} must not be negative."
            )
        pruning = Pruning(using, older_than, provider, dry_run, where)
        if unused_for is not None:
            locks = prune_locks(using, unused_for, dry_run=dry_run)
            self.stdout.write(pruning.sentence("records of unused locks", locks))
        runs = prune_runs(using, older_than, provider, dry_run=dry_run)
        self.stdout.write(pruning.sentence("runs", runs))
        self.prune_more(pruning)

    def prune_more(self, pruning: Pruning) -> None:
        """
        Delete what else is old enough for ``pruning``, and say how much.

        The core has nothing else. The console overrides this.
        """
