"""The table of locks."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.db import models
from django.db.models import Case, F, Max, Q, Value, When
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact, LessThanOrEqual
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.pauses import PAUSE_PREFIX
from django_shedlock.locks.status import (
    JOB_FIELDS,
    LOSS_REPORT_PERIOD,
    NEEDS_LOOK,
    OVERDUE,
    PASSED_OVER_REPORT_PERIOD,
    URGENCY_ORDER,
    JobState,
    LockState,
    LockStatus,
    RunOutcome,
)
from django_shedlock.schedules.state import ScheduleState, parse_known
from django_shedlock.sql import fields

if TYPE_CHECKING:  # Django itself has no such type
    from django_stubs_ext import StrOrPromise

# Note [Records of ShedLock]
# ShedLock releases by lock_until alone, so nobody can tell whether its own acquisitions
# were released: when the lease is over, the lock is free. It leaves our columns alone,
# so a run that was open stays open, and our next acquisition accounts for it.

# Note [A clock that was set back]
# A release ends the lease at the instant at which it began. So a released lock is free,
# whatever the clock says later. Java's ShedLock sees that once the clock is past it.


def was_released() -> Q:
    """Whether the holder, or an operator, released the lock since it was acquired."""
    return Q(released_at__gte=F("locked_at"))


def is_pause() -> Q:
    """Whether an operator acquired the lock to pause its job."""
    return Q(locked_by__startswith=PAUSE_PREFIX)


def has_open_run() -> Q:
    """Whether a run of this package is not accounted for yet."""
    return Q(open_run__isnull=False)


def lease_over() -> Q:
    """Whether the lease is over, whatever the clock says."""
    return Q(lock_until=F("locked_at"))


def held() -> Q:
    """Whether nobody can acquire the lock now."""
    return Q(lock_until__gt=fields.DatabaseNow()) & ~lease_over()


def not_in_use() -> Q:
    """Whether the lock is not held, or only ``lock_at_least_for`` keeps it."""
    return Q(lock_until__lte=fields.DatabaseNow()) | was_released()


def conditions_of_states() -> list[tuple[Q, LockState]]:
    """
    Return the condition of each state but ``FREE``, which is that of all other locks.

    The first condition that is true decides.
    """
    # See Note [The state of a lock].
    return [
        (held() & was_released(), LockState.HELD_AT_LEAST),
        (held() & is_pause(), LockState.PAUSED),
        (held(), LockState.RUNNING),
        (has_open_run(), LockState.EXPIRED),
    ]


def needs_look() -> Q:
    """Whether there is something to see but the state; see ``LockStatus``."""
    is_bad = Q(outcome__isnull=False) & ~Q(outcome=RunOutcome.SUCCEEDED.value)
    is_recent = Q(lost_at__gt=fields.DatabaseNow() - LOSS_REPORT_PERIOD)
    is_last = Q(ended_at__isnull=True) | Q(unrecorded_at__gte=F("ended_at"))
    return is_bad | is_recent | Q(unrecorded_at__isnull=False) & is_last


# Note [Ticks after a pause]
# A pause that has ended owes only later ticks, and only Python knows when they are. So
# the database leaves such a job out until ``grace`` after the end of its pause. From
# then on it may find the job too early, and ``reading.find()`` asks Python again.


def overdue(grace: timedelta) -> Q:
    """Whether a tick has not succeeded ``grace`` after it, and no job runs now."""
    late = fields.DatabaseNow() - grace
    lease_end = Coalesce(
        F("released_at"), F("lock_until"), output_field=fields.UTCDateTimeField()
    )
    # See Note [Ticks after a pause].
    may_owe = ~is_pause() | Q(LessThanOrEqual(lease_end, late))
    return not_in_use() & Q(due_at__lte=late) & may_owe


# Note [Ticks that were passed over]
# Only Python knows the ticks of a schedule. But after a success the record has three
# ticks: the former one, the newest, and the one after it, which is due. If both gaps
# are equal, as with most schedules, nothing was passed over. So the database finds the
# few records with unequal gaps, and ``reading.find()`` asks Python about these. Of a
# schedule with irregular ticks both gaps may be equal by chance: not reported then.


def may_have_passed_over() -> Q:
    """Whether the newest acquisition, not long ago, may have passed over ticks."""
    recent = Q(tick__gt=fields.DatabaseNow() - PASSED_OVER_REPORT_PERIOD)
    before = fields.TimeUntil(F("tick"), F("former_tick"))
    after = fields.TimeUntil(F("due_at"), F("tick"))
    # See Note [Ticks that were passed over].
    is_unequal = ~Q(Exact(before, after))
    return recent & Q(former_tick__lt=F("tick"), due_at__isnull=False) & is_unequal


class LockRecordQuerySet(models.QuerySet["LockRecord"]):
    """Records, filtered by the database's clock."""

    def clock(self) -> datetime:
        """Return the database's now, with one statement."""
        now = fields.DatabaseNow(output_field=fields.UTCDateTimeField())
        # No lock has this name, but an aggregate of no records still returns a row.
        nothing = self.filter(name="")
        answer: datetime = nothing.aggregate(now=Coalesce(Max(now), now))["now"]
        return answer

    def acquirable(self) -> Self:
        """Only locks that can be acquired now."""
        return self.filter(Q(lock_until__lte=fields.DatabaseNow()) | lease_over())

    def held(self) -> Self:
        """Only locks that nobody can acquire now."""
        return self.filter(held())

    def by_urgency(self, grace: timedelta | None) -> Self:
        """Sort them by ``LockStatus.urgency()``; of each place, the oldest first."""
        reasons: list[tuple[Q, str]] = [(needs_look(), NEEDS_LOOK)]
        if grace is not None:
            reasons.insert(0, (overdue(grace), OVERDUE))
        places = [
            When(condition, then=URGENCY_ORDER.index(reason))
            for condition, reason in [*reasons, *conditions_of_states()]
        ]
        place = Case(*places, default=URGENCY_ORDER.index(LockState.FREE))
        return self.order_by(place, "locked_at", "name")

    def unused(self, duration: timedelta | models.Expression) -> Self:
        """
        Only locks whose last lease ended at least so long ago.

        Not those whose run is still open, or whose job somebody asks for.
        """
        then = fields.DatabaseNow() - duration
        over = self.filter(lock_until__lte=then, open_run=None, asked_at=None)
        return over.exclude(released_at__gt=then)

    def with_status(self) -> Self:
        """Add ``state``, ``remaining`` and ``clock``, all by the database's clock."""
        states = [
            When(condition, then=Value(state.value))
            for condition, state in conditions_of_states()
        ]
        return self.annotate(
            state=Case(
                *states,
                default=Value(LockState.FREE.value),
                output_field=models.CharField(),
            ),
            remaining=fields.TimeUntil(F("lock_until"), fields.DatabaseNow()),
            clock=fields.DatabaseNow(output_field=fields.UTCDateTimeField()),
        )


LEASE_COLUMNS = (
    *("state", "locked_by", "locked_at", "lock_until", "remaining", "clock"),
    *("fencing_token", "extended_at", "released_at"),
    *("schedule", "tick", "due_at", "former_tick", "repeated_tick"),
)
INSTANT_COLUMNS = (
    *("locked_at", "lock_at_least_until", "released_at", "extended_at"),
    *("tick", "due_at", "former_tick", "repeated_tick"),
    *("started_at", "ended_at", "succeeded_at"),
    *("lost_at", "unrecorded_at", "asked_at"),
)
STATUS_COLUMNS = LEASE_COLUMNS + JOB_FIELDS
"""What ``status_from_row()`` needs of a record with ``with_status()``, in order."""


def status_from_row(name: str, row: Sequence[Any]) -> LockStatus:
    """Return the lock whose record has these columns."""
    lease, job = row[: len(LEASE_COLUMNS)], row[len(LEASE_COLUMNS) :]
    state, locked_by, locked_at, lock_until, remaining, clock, token, *others = lease
    extended_at, released_at, schedule, *instants = others
    ticks = (instant and aware(instant) for instant in instants)
    return LockStatus(
        name=name,
        state=LockState(state),
        locked_by=locked_by,
        locked_at=locked_at,
        lock_until=lock_until,
        remaining=max(remaining, ZERO) if LockState(state).is_held else ZERO,
        clock=clock,
        schedule_state=ScheduleState(parse_known(schedule), *ticks),
        fencing_token=token,
        heartbeat_at=since_acquisition(extended_at, locked_at),
        job=JobState(**dict(zip(JOB_FIELDS, job, strict=True))),
        released_at=since_acquisition(released_at, locked_at),
    )


def since_acquisition(moment: datetime | None, locked_at: datetime) -> datetime | None:
    """Return the moment if it is of the last acquisition."""
    # Java's ShedLock acquires locks, and does not clear our columns.
    return moment if moment and moment >= locked_at else None


def _instant(verbose_name: "StrOrPromise") -> fields.UTCDateTimeField:
    return fields.UTCDateTimeField(verbose_name, null=True, db_default=None)


def _text(verbose_name: "StrOrPromise", max_length: int = 255) -> fields.OptionalText:
    return fields.OptionalText(
        verbose_name, max_length=max_length, null=True, db_default=None
    )


class LockRecord(models.Model):
    """
    One lock and the state of its job: a row of the table ``shedlock``.

    The first four columns are those of ShedLock, with their meaning. All others have
    database defaults, so a Java service can insert only these four.

    The lease: ``extended_at`` is when the holder itself extended its lease last. The
    schedule: its columns are those of ``ScheduleState``, which says what they mean.
    The other columns are those of ``JobState``, which says what they mean.
    """

    name: fields.LockNameField = fields.LockNameField(
        pgettext_lazy("shedlock", "name"), max_length=255, primary_key=True
    )
    lock_until: fields.LockUntilField = fields.LockUntilField(
        pgettext_lazy("shedlock", "lock until")
    )
    locked_at: fields.UTCDateTimeField = fields.UTCDateTimeField(
        pgettext_lazy("shedlock", "locked at")
    )
    locked_by: fields.Text = fields.Text(
        pgettext_lazy("shedlock", "locked by"), max_length=255
    )
    lock_at_least_until: fields.UTCDateTimeField = _instant(_("lock at least until"))
    released_at: fields.UTCDateTimeField = _instant(
        pgettext_lazy("shedlock", "released at")
    )
    extended_at: fields.UTCDateTimeField = _instant(
        pgettext_lazy("shedlock", "extended at")
    )
    fencing_token: fields.Number = fields.Number(
        pgettext_lazy("shedlock", "fencing token"), db_default=0
    )
    schedule: fields.OptionalText = _text(pgettext_lazy("shedlock", "schedule"))
    tick: fields.UTCDateTimeField = _instant(pgettext_lazy("shedlock", "tick"))
    due_at: fields.UTCDateTimeField = _instant(pgettext_lazy("shedlock", "due at"))
    former_tick: fields.UTCDateTimeField = _instant(
        pgettext_lazy("shedlock", "former tick")
    )
    repeated_tick: fields.UTCDateTimeField = _instant(
        pgettext_lazy("shedlock", "repeated tick")
    )
    open_run: fields.OptionalText = _text(pgettext_lazy("shedlock", "open run"))
    last_run: fields.OptionalText = _text(pgettext_lazy("shedlock", "last run"))
    outcome: fields.OptionalText = _text(pgettext_lazy("shedlock", "outcome"), 20)
    started_at: fields.UTCDateTimeField = _instant(
        pgettext_lazy("shedlock", "started at")
    )
    ended_at: fields.UTCDateTimeField = _instant(pgettext_lazy("shedlock", "ended at"))
    succeeded_at: fields.UTCDateTimeField = _instant(
        pgettext_lazy("shedlock", "succeeded at")
    )
    failures: fields.Count = fields.Count(
        pgettext_lazy("shedlock", "failures in a row"), db_default=0
    )
    usual: fields.OptionalFloat = fields.OptionalFloat(
        pgettext_lazy("shedlock", "usual duration"), null=True, db_default=None
    )
    lost_at: fields.UTCDateTimeField = _instant(pgettext_lazy("shedlock", "lost at"))
    lost_run: fields.OptionalText = _text(pgettext_lazy("shedlock", "lost run"))
    unrecorded_at: fields.UTCDateTimeField = _instant(
        pgettext_lazy("shedlock", "unrecorded at")
    )
    asked_at: fields.UTCDateTimeField = _instant(
        pgettext_lazy("shedlock", "run requested at")
    )
    asked_by: fields.OptionalText = _text(pgettext_lazy("shedlock", "run requested by"))
    asked_why: fields.OptionalText = _text(
        pgettext_lazy("shedlock", "reason of the request"), 2000
    )

    objects = LockRecordQuerySet.as_manager()

    class Meta:
        db_table: ClassVar[str] = (
            conf.TABLE.value
        )  # its migration also reads the setting
        verbose_name: ClassVar["StrOrPromise"] = pgettext_lazy("shedlock", "lock")
        verbose_name_plural: ClassVar["StrOrPromise"] = pgettext_lazy(
            "shedlock", "locks"
        )
        default_permissions: ClassVar[tuple[str, ...]] = ("view",)
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=fields.Readable("lock_until", *INSTANT_COLUMNS),
                name="shedlock_readable",
            )
        ]
        permissions: ClassVar[list[tuple[str, "StrOrPromise"]]] = [
            ("release_lockrecord", "Can release lock"),
        ]

    def __str__(self) -> str:
        return str(self.name)

    @property
    def heartbeat_at(self) -> datetime | None:
        """When the holder extended its lease last, if it did."""
        return since_acquisition(self.extended_at, self.locked_at)

    @property
    def lease_used(self) -> float:
        """
        The used part of a held lock's lease, from 0 to 1, by the database's clock.

        It counts from the last extension, so a healthy job with ``keep_alive`` uses
        little of it. Needs ``with_status()``.
        """
        remaining: timedelta = vars(self)["remaining"]
        whole = self.lock_until - (self.heartbeat_at or self.locked_at)
        if whole <= ZERO:
            return 1.0
        used: float = 1 - remaining / whole
        return min(max(used, 0.0), 1.0)

    @cached_property
    def status(self) -> LockStatus:
        """The lock when it was read; needs ``with_status()``."""
        return status_from_row(self.name, attrgetter(*STATUS_COLUMNS)(self))
