"""
Every statement that changes a lock, whole.

All of the package rests on these: a conditional UPDATE, and its row count is the truth.
``compiling`` compiles each one once, and ``connections`` sends it. The values of
``text("…")``, ``instant("…")`` and the like are given with each execution.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from django.db.models import Case, Expression, F, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce, Greatest, Least, NullIf
from django.db.models.lookups import GreaterThan, LessThan

from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRecordQuerySet
from django_shedlock.models.records import has_open_run, held, not_in_use
from django_shedlock.sql.compiling import (
    ASYNCHRONOUS_COMMIT,
    Changes,
    Columns,
    Delete,
    HastyUpdate,
    Insert,
    InsertReturning,
    Probe,
    Reported,
    Row,
    Select,
    Update,
    UpdateReturning,
    duration,
    instant,
    number,
    seconds,
    text,
)
from django_shedlock.sql.fields import ClockMilliseconds, DatabaseNow, UTCDateTimeField


class Records(LockRecordQuerySet):
    """Records whose ``update()`` only returns what is to be compiled."""

    def update(self, **columns: object) -> Changes:  # type: ignore[override]
        """Return the records and their new columns."""
        return self, columns


def the_record() -> Records:
    """Return the one record of this name."""
    return Records(LockRecord).filter(name=text("name"))


# Note [The order of assignments]
# MySQL and MariaDB carry out the assignments of an UPDATE from left to right, and each
# sees those before it. Other databases see the old record. So an expression may read
# only columns that are assigned later, or the one it is assigned to.


# --- Acquire -------------------------------------------------------------------------


class Acquisition:
    """
    An UPDATE that acquires a lock, in two forms, each of which returns the token.

    The ``usual`` one matches if no run is open. ``over_open_run`` also accounts for the
    run of a worker that died. It is separate because its CASE expressions would slow
    down every acquisition.
    """

    def __init__(self, build: Callable[[], Changes]):
        self._build = build
        column = "fencing_token"
        self.usual: UpdateReturning = UpdateReturning(self._usual, column=column)
        self.over_open_run: UpdateReturning = UpdateReturning(
            self._over_open_run, column=column
        )

    def _usual(self) -> Changes:
        records, columns = self._build()
        return records.filter(open_run=None), columns

    def _over_open_run(self) -> Changes:
        records, columns = self._build()
        former = records.filter(open_run=text("former_run"))
        return former, {**abandoning(F("lock_until")), **columns}


def abandoning(ended_at: Expression | F) -> Columns:
    """Return the columns that account for a run that is still open, if there is one."""
    instants = UTCDateTimeField()
    return {
        "last_run": Coalesce(F("open_run"), F("last_run")),
        "outcome": Case(
            When(has_open_run(), then=Value(RunOutcome.ABANDONED.value)),
            default=F("outcome"),
        ),
        "failures": F("failures") + Case(When(has_open_run(), then=1), default=0),
        "ended_at": Case(
            When(has_open_run(), then=ended_at),
            default=F("ended_at"),
            output_field=instants,
        ),
        # ShedLock may have acquired the lock since: then its start is not known.
        "started_at": Case(
            When(open_run=F("locked_by"), then=F("locked_at")),
            When(has_open_run(), then=None),
            default=F("started_at"),
            output_field=instants,
        ),
    }


def new_lease() -> Columns:
    """Return the columns of a new acquisition, but for its token."""
    return {
        # None for an acquisition that is no run, such as a pause.
        "open_run": text("open_run"),
        "lock_until": DatabaseNow() + duration("at_most"),
        "lock_at_least_until": DatabaseNow() + duration("at_least"),
        "locked_at": DatabaseNow(),
        "locked_by": text("locked_by"),
        "released_at": None,
        "extended_at": None,
    }


def next_token() -> Columns:
    """Return the column of the next fencing token."""
    # It follows the clock, so it also grows if the record was deleted or restored.
    token = Greatest(F("fencing_token") + 1, ClockMilliseconds())
    return {"fencing_token": Reported(token)}


def next_acquisition() -> Columns:
    """Return the columns of the acquisition that follows that of the record."""
    return {**new_lease(), **next_token()}


def next_tick() -> Columns:
    """Return the columns that begin a tick."""
    # No release can change it since the read: it would end the open run.
    instants = ("tick", "former_tick", "due_at")
    return {"schedule": text("schedule"), **{each: instant(each) for each in instants}}


def no_request() -> Columns:
    """Return the columns of a record without a request to run the job."""
    return {"asked_at": None, "asked_by": None, "asked_why": None}


def to_acquire() -> Records:
    """Return the record if the lock is free, and not ours by an earlier try."""
    return the_record().acquirable().exclude(locked_by=text("locked_by"))


def to_start() -> Records:
    """Return the record if nothing but ``lock_at_least_for`` keeps the lock."""
    return the_record().filter(not_in_use()).exclude(locked_by=text("locked_by"))


def as_decided(records: Records) -> Records:
    """Return the record while a decision about its ticks holds."""
    # See Note [The decision is in Python].
    now = DatabaseNow(output_field=UTCDateTimeField())
    is_in_time = LessThan(now, instant("holds_until"))
    return records.filter(is_in_time, fencing_token=number("fencing_token"))


def as_requested(records: Records) -> Records:
    """Return the record while the request that was read is open."""
    return records.filter(asked_at=instant("asked_at"))


@Acquisition
def acquire() -> Changes:
    """Acquire a lock that is free."""
    return to_acquire().update(**next_acquisition())


@Acquisition
def acquire_for_operator() -> Changes:
    """Acquire a lock, also one that only ``lock_at_least_for`` keeps."""
    return to_start().update(**next_acquisition())


@Acquisition
def acquire_for_request() -> Changes:
    """Acquire a lock as an operator, and close the request for that."""
    return as_requested(to_start()).update(**next_acquisition(), **no_request())


@Acquisition
def begin_tick() -> Changes:
    """Acquire a lock that is free, for a tick of its schedule."""
    return as_decided(to_acquire()).update(**next_acquisition(), **next_tick())


@Acquisition
def begin_tick_for_operator() -> Changes:
    """Acquire a lock as an operator, for a tick of its schedule."""
    return as_decided(to_start()).update(**next_acquisition(), **next_tick())


@Acquisition
def begin_tick_for_request() -> Changes:
    """Acquire a lock for a tick of its schedule, and close the request for that."""
    records = as_requested(as_decided(to_start()))
    return records.update(**next_acquisition(), **next_tick(), **no_request())


def creation(build: Callable[[], Row]) -> InsertReturning:
    """Return the statement, which returns the token."""
    return InsertReturning(build, column="fencing_token")


@creation
def create() -> Row:
    """Create the record of a lock that is held from the beginning."""
    token = {"fencing_token": Reported(ClockMilliseconds())}
    return LockRecord, {"name": text("name"), **new_lease(), **token}


@Insert
def create_free() -> Row:
    """Create the record of a lock that nobody holds."""
    return LockRecord, {
        "name": text("name"),
        "lock_until": datetime(1970, 1, 1, tzinfo=UTC),
        "locked_by": "",
        "locked_at": DatabaseNow(),
        # See Note [A clock that was set back].
        "released_at": DatabaseNow(),
    }


@Update
def become_writer() -> Changes:
    """Write nothing, but wait for SQLite's one writer."""
    return Records(LockRecord).filter(name="").update(locked_by="")


# --- Extend --------------------------------------------------------------------------


def held_by(locked_by: str) -> Records:
    """Return the record while this acquisition holds the lock."""
    return the_record().filter(locked_by=text(locked_by)).held()


def ours() -> Records:
    """Return the record while the lock is held and nobody has released it."""
    return held_by("locked_by").filter(released_at=None)


def longer_lease() -> Columns:
    """Return the column of a lease that counts from now, and is not shorter."""
    until = Greatest(F("lock_until"), DatabaseNow() + duration("at_most"))
    return {"lock_until": until}


@Update
def extend() -> Changes:
    """Extend a lease that is valid."""
    return ours().update(**longer_lease(), extended_at=DatabaseNow())


@Update
def extend_both() -> Changes:
    """Extend a lease that is valid, and change ``lock_at_least_for``."""
    at_least_until = DatabaseNow() + duration("at_least")
    columns = {"extended_at": DatabaseNow(), "lock_at_least_until": at_least_until}
    return ours().update(**longer_lease(), **columns)


@HastyUpdate
def heartbeat() -> Changes:
    """Extend a lease that is valid, or fail at once if a transaction has its record."""
    return ours().update(**longer_lease(), extended_at=DatabaseNow())


@Probe
def probe() -> QuerySet[LockRecord, object]:
    """Fail at once if a transaction has the record."""
    return the_record().values_list("name")


# --- Release, and account for the run ------------------------------------------------


def released_now() -> Expression:
    """Return the instant of a release."""
    # Never before it was acquired: a lock is released if it was released after that.
    return Greatest(DatabaseNow(), F("locked_at"))


def no_lease() -> Columns:
    """Return the columns of a lock that is free from now on."""
    # See Note [A clock that was set back].
    return {"lock_until": F("locked_at"), "released_at": released_now()}


def kept_lease() -> Columns:
    """Return the columns of a lock that ``lock_at_least_for`` may keep."""
    # If the clock was set back, keep the lock no longer than if acquired now.
    longest = DatabaseNow() + duration("at_least")
    kept_until = Least(F("lock_at_least_until"), longest)
    is_kept = GreaterThan(kept_until, DatabaseNow())
    until = Case(When(is_kept, then=kept_until), default=F("locked_at"))
    return {"lock_until": until, "released_at": released_now()}


def our_open_run() -> Records:
    """Return the record while the run of this acquisition is not accounted for."""
    run = text("locked_by")
    return the_record().filter(locked_by=run, open_run=run)


def run_over() -> Columns:
    """Return the columns of a run that has ended."""
    return {
        "last_run": text("locked_by"),
        "started_at": F("locked_at"),
        "ended_at": DatabaseNow(),
        "open_run": None,
    }


def succeeded() -> Columns:
    """Return the columns of a run that has succeeded; see ``next_usual()``."""
    usual, took = F("usual"), seconds("took")
    counted = Least(usual * 2 + 15, Greatest(usual * 0.75, took))
    return {
        **run_over(),
        "outcome": RunOutcome.SUCCEEDED.value,
        "failures": 0,
        "succeeded_at": DatabaseNow(),
        "usual": Coalesce(usual * 0.75 + counted * 0.25, took),
    }


def failed() -> Columns:
    """Return the columns of a run that has failed, or timed out."""
    return {**run_over(), "outcome": text("outcome"), "failures": F("failures") + 1}


# If a crash of the server loses a release, the lease ends by itself. A tick that has
# succeeded must not run again, so that is durable.


@Update
def release_succeeded() -> Changes:
    """Release a lock whose job has succeeded."""
    return (
        our_open_run().filter(ASYNCHRONOUS_COMMIT).update(**no_lease(), **succeeded())
    )


@Update
def release_succeeded_kept() -> Changes:
    """Release a lock whose job has succeeded, or keep it as configured."""
    return (
        our_open_run().filter(ASYNCHRONOUS_COMMIT).update(**kept_lease(), **succeeded())
    )


@Update
def release_tick() -> Changes:
    """Release a lock whose tick has succeeded."""
    due_at = instant("due_at")
    return our_open_run().update(**no_lease(), **succeeded(), due_at=due_at)


@Update
def release_tick_kept() -> Changes:
    """Release a lock whose tick has succeeded, or keep it as configured."""
    due_at = instant("due_at")
    return our_open_run().update(**kept_lease(), **succeeded(), due_at=due_at)


@Update
def release_failed() -> Changes:
    """Release a lock whose job has failed."""
    return our_open_run().filter(ASYNCHRONOUS_COMMIT).update(**no_lease(), **failed())


@Update
def release_failed_kept() -> Changes:
    """Release a lock whose job has failed, or keep it as configured."""
    return our_open_run().filter(ASYNCHRONOUS_COMMIT).update(**kept_lease(), **failed())


def repeatable() -> Records:
    """Return the record while the tick of our open run can be given back."""
    # By a former acquisition that began it as well, it can't be given back.
    was_begun = Q(former_tick=None) | ~Q(former_tick=F("tick"))
    was_repeated = Q(repeated_tick=None) | ~Q(repeated_tick=F("tick"))
    return our_open_run().filter(was_begun, was_repeated)


def given_back() -> Columns:
    """Return the columns of a tick that may be begun once more."""
    return {"repeated_tick": F("tick"), "tick": F("former_tick")}


@Update
def release_repeatable_tick() -> Changes:
    """Release a lock whose body was interrupted, and give its tick back once."""
    return repeatable().update(**no_lease(), **failed(), **given_back())


@Update
def release_repeatable_tick_kept() -> Changes:
    """Give a tick back as above, or keep the lock as configured."""
    return repeatable().update(**kept_lease(), **failed(), **given_back())


def never_began() -> Columns:
    """Return the columns of a lock whose body never began: its request is open."""
    return {
        **no_lease(),
        "open_run": None,
        "asked_by": Case(
            When(asked_at=None, then=text("asked_by")), default=F("asked_by")
        ),
        "asked_why": Case(
            When(asked_at=None, then=text("asked_why")), default=F("asked_why")
        ),
        "asked_at": Coalesce(F("asked_at"), instant("asked_at")),
    }


@Update
def give_back() -> Changes:
    """Release a lock whose body never began."""
    return our_open_run().update(**never_began())


@Update
def give_tick_back() -> Changes:
    """Release a lock whose body never began, so that its tick is open again."""
    return our_open_run().update(**never_began(), tick=F("former_tick"))


@Update
def release_no_run() -> Changes:
    """Release an acquisition without an open run, such as a lost one."""
    records = the_record().filter(locked_by=text("locked_by"), released_at=None)
    return records.update(**no_lease())


def is_our_last(*outcomes: RunOutcome) -> Q:
    """Return whether our run is still open, or the last one with such an outcome."""
    run, known = text("locked_by"), [outcome.value for outcome in outcomes]
    return Q(open_run=run) | Q(last_run=run, outcome__in=known)


def loss(ended_at: Expression) -> Columns:
    """Return the columns of a run that lost its lock, unless another run is last."""
    run = text("locked_by")
    is_open = Q(open_run=run)
    is_last = is_our_last(RunOutcome.ABANDONED, RunOutcome.LOST)
    instants = UTCDateTimeField()
    return {
        "started_at": Case(
            When(Q(is_open, locked_by=run), then=F("locked_at")),
            When(is_open, then=None),
            default=F("started_at"),
            output_field=instants,
        ),
        "ended_at": ended_at,
        "failures": F("failures") + Case(When(is_open, then=1), default=0),
        "outcome": Case(
            When(is_last, then=Value(RunOutcome.LOST.value)), default=F("outcome")
        ),
        "last_run": Case(When(is_open, then=run), default=F("last_run")),
        "open_run": NullIf(F("open_run"), run),
        # Only once: the end of its body is written later.
        "lost_at": Case(
            When(lost_run=run, then=F("lost_at")),
            default=DatabaseNow(output_field=instants),
            output_field=instants,
        ),
        "lost_run": run,
    }


@Update
def account_for_loss() -> Changes:
    """Account for a run whose lock is lost while its body goes on."""
    # Not for a lost one, which may have ended: this may come late from another thread.
    ended_at = Case(
        When(is_our_last(RunOutcome.ABANDONED), then=None),
        default=F("ended_at"),
        output_field=UTCDateTimeField(),
    )
    return the_record().update(**loss(ended_at))


@Update
def account_for_lost_end() -> Changes:
    """Account for a run whose lock was lost, when its body has ended."""
    instants = UTCDateTimeField()
    ended_at = Case(
        When(
            is_our_last(RunOutcome.ABANDONED, RunOutcome.LOST),
            then=DatabaseNow(output_field=instants),
        ),
        default=F("ended_at"),
        output_field=instants,
    )
    return the_record().update(**loss(ended_at))


@Update
def note_unrecorded() -> Changes:
    """Note that the history of a run could not be written."""
    return the_record().update(unrecorded_at=DatabaseNow())


# --- Delete --------------------------------------------------------------------------


@Delete
def delete_unused() -> QuerySet[LockRecord, object]:
    """Delete a record that nobody uses any more."""
    return the_record().unused(duration("unused_for"))


# --- Fence ---------------------------------------------------------------------------


@Update
def fence() -> Changes:
    """Write the record as it is, so that nobody else can before the commit."""
    return ours().update(locked_by=F("locked_by"))


# --- What operators do ---------------------------------------------------------------


@Update
def force_release() -> Changes:
    """Release the lock of an acquisition, and account for its run."""
    # ShedLock may have acquired the lock since its run was left open.
    records = the_record().filter(held() | has_open_run(), locked_by=text("before"))
    return records.update(
        **abandoning(Least(F("lock_until"), DatabaseNow())),
        **no_lease(),
        open_run=None,
        # So the holder's own release keeps nothing.
        lock_at_least_until=F("locked_at"),
    )


@Update
def force_extend() -> Changes:
    """Extend the lease of an acquisition."""
    return held_by("before").update(**longer_lease())


@Update
def pause_again() -> Changes:
    """Replace a pause by another one."""
    ended_at = Least(F("lock_until"), DatabaseNow())
    return held_by("before").update(
        **abandoning(ended_at), **new_lease(), **next_token()
    )


@Update
def request_run() -> Changes:
    """Ask for a run of the lock's job."""
    return the_record().update(
        asked_at=DatabaseNow(), asked_by=text("asked_by"), asked_why=text("asked_why")
    )


@Update
def withdraw_request() -> Changes:
    """Close a request that is still open."""
    return as_requested(the_record()).update(**no_request())


# --- Read ----------------------------------------------------------------------------


@Select
def holder() -> QuerySet[LockRecord, object]:
    """Read who acquired the lock last, for how long, and which run is open."""
    columns = ("locked_by", "remaining", "open_run", "locked_at", "lock_until")
    return the_record().with_status().values_list(*columns)


@Select
def last_run() -> QuerySet[LockRecord, object]:
    """Read which run was accounted for last."""
    return the_record().values_list("last_run", "outcome", "started_at", "ended_at")
