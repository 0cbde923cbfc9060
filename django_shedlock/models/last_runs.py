"""How the last run of each lock ended, how long runs take, and who asks for one."""

from datetime import timedelta
from typing import Any

from django.db import connections, models
from django.db.models import OuterRef, Subquery

from django_shedlock import fields
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models.console import ActionKind, ActionResult, LockAction
from django_shedlock.models.records import LockRecordQuerySet
from django_shedlock.models.runs import LockRun, LockRunQuerySet

USUAL_OF = 20
"""The median of so many last successes is how long a job usually takes."""


def with_last_run(records: LockRecordQuerySet, provider: str) -> LockRecordQuerySet:
    """
    Add the key, outcome and duration of the provider's last ended run of each lock.

    ``usual_duration`` is added, too: see ``with_usual_duration()``.
    """
    all_runs = LockRun.objects.using(records.db)
    runs = all_runs.filter(name=OuterRef("name"), provider=provider)
    last: models.QuerySet[Any] = runs.ended().order_by("-pk")
    found: LockRecordQuerySet = with_usual_duration(records, runs)
    return found.annotate(
        last_run_pk=fields.Kept(Subquery(last.values("pk")[:1])),
        last_outcome=fields.Kept(Subquery(last.values("current_outcome")[:1])),
        last_duration=fields.Kept(Subquery(last.values("duration")[:1])),
    )


def with_request(
    records: LockRecordQuerySet, provider: str, lifetime: timedelta
) -> LockRecordQuerySet:
    """Add by whom a run of each lock's job was ``asked``, and ``asked_at``."""
    requests = LockAction.objects.using(records.db).of_lock(OuterRef("name"), provider)
    requests = requests.filter(kind=ActionKind.RUN, result=ActionResult.REQUESTED)
    requests = requests.filter(began__gt=fields.DatabaseNow() - lifetime)
    newest: models.QuerySet[Any] = requests.order_by("-pk")
    return records.annotate(
        asked=fields.Kept(Subquery(newest.values("operator")[:1])),
        asked_at=fields.Kept(Subquery(newest.values("began")[:1])),
    )


# Note [The median of the last successes]
# Few databases have a median. PostgreSQL has one, the others list the durations, and
# Python takes it. A limit inside keeps the costs down (see Note [A count with a
# limit]); MySQL and MariaDB can't look at the lock from within it, and would read all
# its successes, so there each duration is looked up by itself.
LISTED = "(SELECT GROUP_CONCAT(duration) FROM (%(subquery)s) recent)"
MEDIAN = (
    "(SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY duration) "
    "FROM (%(subquery)s) recent)"
)


def with_usual_duration(found: Any, runs: LockRunQuerySet) -> Any:
    """
    Add ``usual_duration``, the median of the last ``USUAL_OF`` successes of a lock.

    ``runs`` are the runs of one row of ``found``. Of an even number it is the shorter
    one of the two in the middle.
    """
    recent = runs.filter(outcome=RunOutcome.SUCCEEDED).order_by("-pk")
    durations: Any = recent.values("duration")
    options: dict[str, Any] = {"output_field": fields.MedianField()}
    usual: Any
    if (vendor := connections[found.db].vendor) == "mysql":
        each = [Subquery(durations[at : at + 1]) for at in range(USUAL_OF)]
        usual = models.Func(models.Value(","), *each, function="CONCAT_WS", **options)
    else:
        options["template"] = MEDIAN if vendor == "postgresql" else LISTED
        usual = Subquery(durations[:USUAL_OF], **options)
    return found.annotate(usual_duration=fields.Kept(usual))
