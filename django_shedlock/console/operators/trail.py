"""An operator's action on a lock, and the trail of such actions."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from django_shedlock.exceptions import LockProviderError
from django_shedlock.history.texts import fitting, scrubbed, texts
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.status import LockStatus
from django_shedlock.models import ActionKind, ActionResult, LockAction
from django_shedlock.providers.base import LockProvider
from django_shedlock.signals import logger
from django_shedlock.sql.compiling import Insert, Select, duration
from django_shedlock.sql.connections import run
from django_shedlock.sql.fields import DatabaseNow

RESENT_WITHIN = timedelta(minutes=1)
"""An INSERT whose reply was lost is sent again within this time."""


@dataclass(frozen=True)
class OperatorAction:
    """
    One action on one lock: which lock, which operator, and why.

    With ``locked_by``, it is for that acquisition only, else for the one that the lock
    has when the action begins. ``operator`` is a name for people, ``reason`` any text.
    ``facts`` are those of the findings that it acknowledges, for good or ``lasting``.
    """

    provider: LockProvider
    name: str
    locked_by: str | None = None
    operator: str = ""
    reason: str = ""
    facts: Sequence[str] = ()
    lasting: timedelta | None = None

    def look(self) -> LockStatus | None:
        """Return the lock; ``None`` if it has no record, or if the store fails."""
        with suppress(LockProviderError):
            return self.provider.status(self.name)
        return None


def write_action(
    asked: OperatorAction,
    kind: ActionKind,
    result: ActionResult,
    detail: str,
    *,
    took: timedelta = ZERO,
) -> bool:
    """
    Write an action into the trail now that its result is known.

    Return whether it is there: without a database there is no trail, and a row that
    can't be written is logged.
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
        "result": result.value,
        "took": took,
        **fitting(
            operator=asked.operator, reason=asked.reason, detail=scrubbed(detail)
        ),
    }

    def write(connection: BaseDatabaseWrapper, is_again: bool) -> None:
        # Sent again after a lost reply, our own first try may have written it.
        if not (is_again and written_just_now(connection, **values)):
            insert_action(connection, **values)

    try:
        run(write, using)
    except Exception as error:  # whatever the driver raises
        text = "The trail of operators' actions lacks one on lock %r: %s"
        logger.warning(text, asked.name, str(error).strip())
        return False
    return True


@Insert
def insert_action() -> Any:
    """Write a row of the trail."""
    columns = texts("name", "provider", "kind", "locked_by", "operator", "reason")
    return LockAction, {
        **columns,
        **texts("facts", "result", "detail"),
        "until": DatabaseNow() + duration("lasting"),
        "began": DatabaseNow() - duration("took"),
        "ended": DatabaseNow(),
    }


@Select
def written_just_now() -> Any:
    """Find the row of an INSERT whose reply was lost."""
    columns = texts("name", "provider", "kind", "locked_by", "operator", "result")
    since = DatabaseNow() - RESENT_WITHIN
    return LockAction.objects.filter(**columns, ended__gt=since).values_list("pk")[:1]
