"""``manage.py shedlock prune``, which also deletes old rows of the audit log."""

from datetime import timedelta

from django_shedlock.cli.prune import Prune, Pruning
from django_shedlock.console.models import LockAction
from django_shedlock.history.pruning import prune_rows


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
    Delete actions of operators that ended longer ago than that; return how many.

    Acknowledgements that still count are kept. Otherwise see ``prune_runs()``.
    """
    actions = LockAction.objects.using(using).older_than(older_than)
    if provider is not None:
        actions = actions.filter(provider=provider)
    return prune_rows(actions, dry_run=dry_run)
