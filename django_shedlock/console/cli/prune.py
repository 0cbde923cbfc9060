"""``manage.py shedlock prune``, which also deletes old rows of the audit log."""

from datetime import timedelta

from django_shedlock.cli.prune import Prune, Pruning
from django_shedlock.console.models import LockAction
from django_shedlock.history.retention import PRUNING_BATCH_SIZE
from django_shedlock.sql.connections import read_here, run_here


class PruneWithActions(Prune):
    """Deletes old rows, also those of the audit log."""

    help = "delete old runs and actions and, with --unused-for, records of unused locks"

    def prune_more(self, pruning: Pruning) -> None:
        actions = prune_actions(
            pruning.using,
            pruning.older_than,
            pruning.provider,
            dry_run=pruning.dry_run,
        )
        if actions:
            self.stdout.write(pruning.sentence("actions of operators", actions))


def prune_actions(
    using: str,
    older_than: timedelta,
    provider: str | None = None,
    *,
    dry_run: bool = False,
) -> int:
    """
    Delete actions of operators that began longer ago than that; return how many.

    Otherwise see prune_runs().
    """
    old = LockAction.objects.using(using).prunable(older_than)
    if provider is not None:
        old = old.filter(provider=provider)
    if dry_run:
        return run_here(old.count, using)
    deleted = 0
    oldest = old.order_by("pk").values_list("pk", flat=True)
    while keys := read_here(oldest[:PRUNING_BATCH_SIZE], using):
        rows = LockAction.objects.using(using).filter(pk__in=keys)
        deleted += run_here(rows.delete, using)[0]
    return deleted
