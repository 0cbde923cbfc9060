"""The time in tests: one clock for leases, ``lock_at_least_for`` and ticks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from django.db.backends.base.base import BaseDatabaseWrapper

from django_shedlock import conf
from django_shedlock.clocks import aware, host_now, local_text
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.entries import EntryLockProvider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.schedules.state import from_text, to_text
from django_shedlock.testing.attempts import attempts_here


class OneClockProvider(MemoryLockProvider):
    """The provider of ``locked_in_memory()``: the wall clock also ends its leases."""

    moment: datetime | None = None
    """The time of ``run_as_if_at()``."""

    def clock(self) -> float:
        """Return the seconds since 1970, by the clock that chooses the ticks."""
        return (self.moment or host_now()).timestamp()

    def wall_clock(self, now: float) -> datetime:
        """Return the instant of ``clock()``."""
        return datetime.fromtimestamp(now, UTC)


@contextmanager
def run_as_if_at(tick: datetime | str, *, provider: str = "default") -> Iterator[None]:
    """
    Let the clock of the locks stand still at a tick of a schedule, in the body.

    ``tick`` is a ``datetime`` or a text such as ``"2026-03-02 02:30"``, in the
    project's time zone unless it has its own. It needs ``locked_in_memory()``, and
    moves no other clock: neither that of Django nor the one the job asks. Raises
    ``AssertionError`` if a job is started whose schedule has no such tick.
    """
    store = get_provider(provider)
    if not isinstance(store, OneClockProvider):
        raise AssertionError(
            f"The provider {provider!r} has a clock that no test can move. Use "
            "run_as_if_at() inside locked_in_memory()."
        )
    if not conf.ENABLED.value:
        raise AssertionError(
            "No tick counts, since SHEDLOCK_ENABLED is off, as in unlocked(): each job "
            "runs at any time."
        )
    moment = _instant(tick)
    former, store.moment = store.moment, moment
    try:
        with attempts_here() as attempts:
            yield
    finally:
        store.moment = former
    for each in (*attempts.acquired, *attempts.skipped):
        if each.schedule and (past := next(each.schedule.ticks_until(moment))) < moment:
            after = next(each.schedule.ticks_after(moment))
            raise AssertionError(
                f"{local_text(moment)} is no tick of lock {each.name!r}, whose "
                f"schedule is {str(each.schedule)!r}: the nearest are "
                f"{local_text(past)} and {local_text(after)}."
            )


def _instant(tick: datetime | str) -> datetime:
    try:
        moment = datetime.fromisoformat(tick) if isinstance(tick, str) else tick
        return aware(moment)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"run_as_if_at({tick!r}): give a datetime, or a text such as "
            '"2026-03-02 02:30" or "2026-03-02T02:30+01:00".'
        ) from error


def reopen_tick(store: LockProvider, name: str) -> None:
    """Forget which tick of a lock, by its full name, was begun."""
    # Only now, since they load the models, and a project may import this before.
    from django_shedlock.models import LockRecord
    from django_shedlock.providers.database import DatabaseLockProvider
    from django_shedlock.sql.compiling import Changes, Update
    from django_shedlock.sql.connections import run

    if isinstance(store, DatabaseLockProvider):
        records = LockRecord.objects.filter(name=name)

        def build() -> Changes:
            return records, {"tick": None, "former_tick": None}

        def forget(connection: BaseDatabaseWrapper, is_again: bool) -> None:
            Update(build)(connection)

        run(forget, store.using)
    elif isinstance(store, EntryLockProvider):
        written = False
        while not written:
            entry, version, _ = store.read(name)
            if entry is None:
                return
            ticks = replace(from_text(entry.ticks), tick=None, former_tick=None)
            new = replace(entry, ticks=to_text(ticks))
            written = store.write(name, new, version)
