"""``manage.py shedlock prune``, which also deletes old rows of the console's tables."""

from datetime import timedelta

from django_shedlock.cli.prune import Prune, Pruning
from django_shedlock.console.models import LockAction
from django_shedlock.console.monitoring.notices import prune_notices
from django_shedlock.history.pruning import prune_rows


class PruneWithActions(Prune):
    """Deletes old rows, also those of the audit log, and of readers that are gone."""

    help = "delete old runs and actions and, with --unused-for, records of unused locks"

    def prune_more(self, pruning: Pruning) -> None:
        where = pruning.using, pruning.older_than, pruning.provider
        actions = prune_actions(*where, dry_run=pruning.dry_run)
        notices = prune_notices(*where, dry_run=pruning.dry_run)
        deleted = {"actions of operators": actions, "notices": notices}
        for rows, count in deleted.items():
            if count:
                self.stdout.write(pruning.sentence(rows, count))


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
    actions = LockAction.objects.using(using)
    return prune_rows(actions, older_than, provider, dry_run=dry_run)
