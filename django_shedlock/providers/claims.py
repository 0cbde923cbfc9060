"""What an acquisition asks of the record of its lock, and writes into it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, Expression, F, Q, When
from django.db.models.functions import Coalesce, Greatest
from django.db.models.lookups import GreaterThanOrEqual, LessThan

from django_shedlock.fields import UTCDateTimeField
from django_shedlock.functions import DatabaseNow, Instant
from django_shedlock.locks import Lock
from django_shedlock.models import LockRecordQuerySet
from django_shedlock.progress import A_SECOND
from django_shedlock.ticks import TickChoice
from django_shedlock.triggers import Trigger

# Note [The tick is chosen in the UPDATE]
# Which tick it is depends on the database's clock. So we send those around our own
# clock, each with the instant from which on it is the one, and the database chooses in
# the very statement that takes the lock. If its clock is outside of them all, it takes
# nothing, and we send those around its clock.


@dataclass(frozen=True)
class Claim:
    """A lock to be taken, with the ticks around a clock if it has a schedule."""

    lock: Lock
    choice: TickChoice | None = None
    due: TickChoice | None = None
    clock: datetime | None = None

    @classmethod
    def around(cls, lock: Lock, now: datetime) -> Claim:
        """Return the claim with the ticks around this clock."""
        occasion = lock.configuration.occasion
        return cls(lock, occasion.choice(now), occasion.due(now), now)

    def among(self, records: LockRecordQuerySet) -> LockRecordQuerySet:
        """Leave only the record that may be taken now."""
        by_operator = self._trigger is Trigger.OPERATOR
        records = records.not_running() if by_operator else records.acquirable()
        if self.choice is None:
            return records
        records = records.filter(*_in_reach(self.choice))
        if self.due is None:
            return records.filter(self._is_to_run(self.choice))
        return records.filter(*_in_reach(self.due), _is_to_catch_up(_chosen(self.due)))

    @property
    def columns(self) -> dict[str, Any]:
        """What is written into a record that is there."""
        if self.choice is None:
            return self._lease
        return {**self._lease, **self._schedule, **self._ticks(self.choice)}

    @property
    def columns_of_new(self) -> dict[str, Any]:
        """What is written into a new record, if the clock is the store's."""
        if self.choice is None or self.clock is None:
            return self._lease
        tick = self.choice.at(self.clock)
        # See Note [Before the first tick].
        ticks = {"tick": tick, "succeeded_tick": tick - A_SECOND}
        return {**self._lease, **self._schedule, **ticks}

    @property
    def _trigger(self) -> Trigger:
        return self.lock.configuration.occasion.trigger

    @property
    def _lease(self) -> dict[str, Any]:
        configuration = self.lock.configuration
        return {
            "lock_until": DatabaseNow() + configuration.lock_at_most_for,
            "lock_at_least_until": DatabaseNow() + configuration.lock_at_least_for,
            "locked_at": DatabaseNow(),
            "locked_by": self.lock.locked_by,
            "released_at": None,
        }

    @property
    def _schedule(self) -> dict[str, Any]:
        return {"schedule": str(self.lock.configuration.occasion.schedule)}

    def _is_to_run(self, choice: TickChoice) -> Q:
        chosen = _chosen(choice)
        if self._trigger is Trigger.SCHEDULER:
            # See Note [Ticks beyond them all].
            is_wrong = Q(tick__gt=_instant(choice.ticks[-1]))
            return Q(tick=None) | Q(tick__lt=chosen) | is_wrong
        if self._trigger is Trigger.RETRY:
            is_new = Q(tick=None) | Q(tick__lt=chosen)
            # See Note [Before the first tick], for what is later than the tick.
            is_other = Q(succeeded_tick__lt=F("tick")) | Q(succeeded_tick__gt=F("tick"))
            return is_new | is_other | Q(succeeded_tick=None)
        return Q()

    def _ticks(self, choice: TickChoice) -> dict[str, Any]:
        chosen = _chosen(choice)
        columns = {"tick": chosen, "succeeded_tick": F("succeeded_tick")}
        if self._trigger is Trigger.SCHEDULER:
            columns |= without_beyond(choice, "succeeded_tick", "caught_up_tick")
        elif self._trigger is Trigger.CATCH_UP:
            columns["caught_up_tick"] = chosen
        else:
            columns["tick"] = Greatest(Coalesce(F("tick"), chosen), chosen)
        # See Note [Before the first tick]. To choose it, too, would cost each statement
        # for what is needed once; that of our own clock is off by a tick at the most.
        before = _instant(choice.at(self.clock or choice.ticks[0]) - A_SECOND)
        columns["succeeded_tick"] = Coalesce(columns["succeeded_tick"], before)
        return columns


def without_beyond(choice: TickChoice, *columns: str) -> dict[str, Case]:
    """Return the columns, emptied of ticks beyond them all, see ``Progress``."""
    last = _instant(choice.ticks[-1])
    return {
        column: Case(
            When(**{f"{column}__gt": last}, then=None),
            default=F(column),
            output_field=UTCDateTimeField(),
        )
        for column in columns
    }


def _is_to_catch_up(due: Expression) -> Q:
    no_newer_was_run = Q(tick=None) | Q(tick__lte=due)
    not_yet_caught_up = Q(caught_up_tick=None) | Q(caught_up_tick__lt=due)
    return no_newer_was_run & not_yet_caught_up & Q(succeeded_tick__lt=due)


def _in_reach(choice: TickChoice) -> tuple[Any, Any]:
    return (
        GreaterThanOrEqual(_now(), _instant(choice.since[0])),
        LessThan(_now(), _instant(choice.until)),
    )


def _chosen(choice: TickChoice) -> Expression:
    # See Note [The tick is chosen in the UPDATE].
    *earlier, last = choice.ticks
    ends = zip(earlier, choice.since[1:], strict=True)
    cases = [
        When(LessThan(_now(), _instant(end)), then=_instant(tick)) for tick, end in ends
    ]
    return Case(*cases, default=_instant(last), output_field=UTCDateTimeField())


def _now() -> DatabaseNow:
    return DatabaseNow(output_field=UTCDateTimeField())


def _instant(moment: datetime) -> Instant:
    return Instant(moment, UTCDateTimeField())
