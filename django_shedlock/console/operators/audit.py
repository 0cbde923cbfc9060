"""The audit log: what operators did to locks, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet
from django.utils.translation import pgettext

from django_shedlock.console.models import ActionKind, ActionResult, LockAction
from django_shedlock.execution.operators import OperatorAction
from django_shedlock.history.retention import prune_after_write
from django_shedlock.history.texts import fitting
from django_shedlock.locks.configuration import ZERO
from django_shedlock.scrubbing import scrubbed
from django_shedlock.signals import logger
from django_shedlock.sql.compiling import Insert, Select, duration, flag, texts
from django_shedlock.sql.connections import run
from django_shedlock.sql.fields import DatabaseNow


@dataclass(frozen=True)
class AuditedAction(OperatorAction):
    """
    An operator's action with the facts of the findings that it acknowledges.

    They are acknowledged for good, or for as long as ``lasting``. Only with
    ``process_is_gone`` the operator says that the process of their run is gone.
    """

    facts: Sequence[str] = ()
    lasting: timedelta | None = None
    process_is_gone: bool = False

    @classmethod
    def of(cls, action: OperatorAction, facts: Sequence[str] = ()) -> Self:
        """Return this action; with ``facts``, the process of their run is gone."""
        who = action.locked_by, action.operator, action.reason
        return cls(
            action.provider, action.name, *who, facts, process_is_gone=bool(facts)
        )


def write_action(
    asked: AuditedAction,
    kind: ActionKind,
    result: ActionResult,
    detail: str,
    *,
    took: timedelta = ZERO,
) -> bool:
    """
    Write an action into the audit log now that its result is known.

    Return whether it is there: without a database there is no audit log, and a row that
    can't be written is logged. Some of the calls also delete old rows.
    """
    using = asked.provider.history_database
    if using is None:
        return False
    values = {
        "name": asked.name,
        "provider": asked.provider.alias,
        "kind": kind.value,
        "locked_by": asked.locked_by or "",
        "facts": "\n".join(asked.facts),
        "lasting": asked.lasting,
        "process_is_gone": asked.process_is_gone,
        "result": result.value,
        "took": took,
        **fitting(
            LockAction,
            operator=asked.operator,
            reason=asked.reason,
            detail=scrubbed(detail),
        ),
    }

    def write(connection: BaseDatabaseWrapper, is_again: bool) -> None:
        # Sent again after a lost reply, our own first try may have written it.
        if not (is_again and written_just_now(connection, **values)):
            insert_action(connection, **values)

    try:
        run(write, using)
    except Exception as error:  # whatever the driver raises
        text = "The audit log lacks an action on lock %r: %s"
        logger.warning(text, asked.name, str(error).strip())
        return False
    prune_after_write(LockAction.objects.using(using))
    return True


def remark_on(row: LockAction) -> str:
    """Return what tables of the audit log say of the row besides its kind."""
    if row.process_is_gone:
        return pgettext("shedlock", "process counts as gone")
    return ""


@Insert
def insert_action() -> tuple[type[LockAction], dict[str, object]]:
    """Write a row of the audit log."""
    columns = texts("name", "provider", "kind", "locked_by", "operator", "reason")
    return LockAction, {
        **columns,
        **texts("facts", "result", "detail"),
        "process_is_gone": flag("process_is_gone"),
        "until": DatabaseNow() + duration("lasting"),
        "began": DatabaseNow() - duration("took"),
        "ended": DatabaseNow(),
    }


@Select
def written_just_now() -> "QuerySet[LockAction, tuple[int]]":
    """Find the row of an INSERT whose reply was lost."""
    columns = texts("name", "provider", "kind", "locked_by", "operator", "result")
    columns |= texts("facts", "detail")  # another action may be alike in all else
    since = DatabaseNow() - timedelta(minutes=1)  # it is sent again sooner than that
    return LockAction.objects.filter(**columns, ended__gt=since).values_list("pk")[:1]
