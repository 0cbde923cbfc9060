"""An operator's action on a lock, and the trail of such actions."""

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import token_hex
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F
from django.utils.translation import gettext

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.durations import format_duration, format_left
from django_shedlock.exceptions import LockProviderError
from django_shedlock.fields import DatabaseNow, UTCDateTimeField
from django_shedlock.history.journal import Journal, fitting, scrubbed, texts
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.lock import identity_of
from django_shedlock.locks.states import LockStatus
from django_shedlock.models import ActionKind, ActionResult, LockAction
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database.connections import run_here
from django_shedlock.providers.database.statements import (
    Insert,
    Select,
    Update,
    duration,
    number,
    text,
)


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


@dataclass(frozen=True)
class Trail:
    """
    The rows of a provider's table of actions; without a database there are none.

    If a row can't be written, that is logged, and the action goes on.
    """

    provider: LockProvider

    def begin(
        self,
        kind: ActionKind,
        asked: OperatorAction,
        result: ActionResult = ActionResult.STARTED,
    ) -> int | None:
        """Write that an action begins; return the row, if there is one."""
        values = {
            "name": asked.name,
            "provider": self.provider.alias,
            "kind": kind.value,
            **fitting(operator=asked.operator, reason=asked.reason),
            "locked_by": asked.locked_by or "",
            "facts": "\n".join(asked.facts),
            "lasting": asked.lasting,
            "result": result.value,
        }
        return JOURNAL.begin(self.provider, values)

    def end(
        self, row: int | None, name: str, result: ActionResult, detail: str
    ) -> None:
        """Write the result of the action."""
        if row is not None:
            end = {"result": result.value, **fitting(detail=scrubbed(detail))}
            JOURNAL.finish(self.provider, row, {"name": name}, end)

    def claim(self, row: int, name: str) -> bool:
        """Return whether this process, and no other one, may carry out the request."""
        claim = f"Carried out by {identity_of(os.getpid())}{token_hex(8)}."
        claimed = {"row": row, "claim": claim, "lifetime": lifetime()}

        def update(connection: BaseDatabaseWrapper, is_again: bool) -> bool:
            # Sent again after a lost reply, our own first try may have claimed it.
            is_ours = bool(CLAIM(connection, **claimed))
            return is_ours or (is_again and bool(CLAIMED(connection, **claimed)))

        return bool(JOURNAL.write(self.provider, name, update))

    def requests(self, **columns: Any) -> Sequence[LockAction]:
        """Return the open requests to run a job, the oldest first."""
        since = DatabaseNow() - lifetime()
        return self._read(**OPEN, began__gt=since, **columns)

    def open_requests(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return who asked for a run of these locks' jobs, and how long ago."""
        return {row.name: request_of(row) for row in self.requests(name__in=names)}

    def close_requests(self, name: str, detail: str) -> int:
        """Refuse the open requests for this lock; return how many there were."""
        return self._close(CLOSE, name, detail, name=name)

    def expire_requests(self) -> None:
        """Refuse the requests that nobody has carried out in time."""
        within = format_duration(lifetime())
        detail = f"It expired: nobody carried it out within {within}."
        self._close(EXPIRE, "", detail, lifetime=lifetime())

    def _close(self, close: Update, of: str, detail: str, **values: Any) -> int:
        values |= {"provider": self.provider.alias, **fitting(detail=detail)}
        closed = JOURNAL.write(self.provider, of, lambda each, _: close(each, **values))
        return closed or 0

    def note_catch_up(self) -> None:
        """Write into the provider's one row for it when a catch-up was last seen."""
        provider = self.provider.alias
        seen = {"provider": provider, **fitting(detail=socket.gethostname())}
        first = {**dict.fromkeys(IDENTITY, ""), "lasting": None, **seen, **OF_CATCH_UP}

        def note(connection: BaseDatabaseWrapper, is_again: bool) -> None:
            if not SEEN(connection, **seen):
                JOURNAL.inserted(connection, **first)
                SEEN(connection, **seen)

        JOURNAL.write(self.provider, "", note)

    def last_catch_up(self) -> datetime | None:
        """Return when a catch-up was last seen, on any host."""
        return max((row.began for row in self._read(**OF_CATCH_UP)), default=None)

    def _read(self, **columns: Any) -> list[LockAction]:
        using = self.provider.history_database
        if using is None:
            return []
        rows = LockAction.objects.using(using).filter(**columns)
        mine = rows.filter(provider=self.provider.alias).order_by("pk")
        asked = {"asked": F("operator"), "asked_at": F("began")}
        clock = DatabaseNow(output_field=UTCDateTimeField())
        mine = mine.annotate(clock=clock, **asked)
        return run_here(lambda: list(mine.all()), using)


def request_of(row: Any) -> str:
    """Return who asked for a run of the lock's job, and how long ago, if anyone did."""
    if row.asked_at is None:
        return ""
    text = gettext("%(operator)s asked for a run %(age)s ago, which is still open")
    age = max(timedelta(0), aware(row.clock) - aware(row.asked_at))
    return text % {"operator": row.asked, "age": format_left(age)}


def lifetime() -> timedelta:
    """Return for how long a request may wait."""
    return default_duration(conf.REQUEST_LIFETIME)


def _of_row(**columns: Any) -> Any:
    return LockAction.objects.filter(pk=number("row"), **columns)


IDENTITY = (
    *("name", "provider", "kind", "locked_by"),
    *("operator", "reason", "facts", "result"),
)
"""The columns by which a row is found again, if the reply to its INSERT was lost."""
OPEN = {"kind": ActionKind.RUN.value, "result": ActionResult.REQUESTED.value}
OF_CATCH_UP = {"name": "", "kind": ActionKind.CATCH_UP.value}

BEGUN: dict[str, Any] = {
    "until": DatabaseNow() + duration("lasting"),
    "began": DatabaseNow(),
    "detail": "",
}

JOURNAL = Journal(
    "The trail of operators' actions lacks one on",
    Insert(lambda: (LockAction, {**texts(*IDENTITY), **BEGUN})),
    Select(
        lambda: (
            LockAction.objects.filter(**texts(*IDENTITY), ended=None)
            .order_by("-pk")
            .values_list("pk")[:1]
        )
    ),
    Update(lambda: (_of_row(), {**texts("result", "detail"), "ended": DatabaseNow()})),
)
CLAIM = Update(
    lambda: (
        _of_row(
            result=ActionResult.REQUESTED.value,
            began__gt=DatabaseNow() - duration("lifetime"),
        ),
        {"result": ActionResult.STARTED.value, "detail": text("claim")},
    )
)
CLAIMED = Select(lambda: _of_row(detail=text("claim")).values_list("pk"))


def _refusing(**which: Any) -> Update:
    mine = {**OPEN, **texts("provider"), **which}
    refused = {"result": ActionResult.REFUSED.value, **texts("detail")}
    return Update(
        lambda: (LockAction.objects.filter(**mine), {**refused, "ended": DatabaseNow()})
    )


CLOSE = _refusing(name=text("name"))
EXPIRE = _refusing(began__lte=DatabaseNow() - duration("lifetime"))
SEEN = Update(
    lambda: (
        LockAction.objects.filter(**OF_CATCH_UP, **texts("provider")),
        {
            **dict.fromkeys(("began", "ended"), DatabaseNow()),
            **texts("detail"),
            "result": ActionResult.DONE.value,
        },
    )
)
