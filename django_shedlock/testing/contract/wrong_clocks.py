"""The store's clock decides and is shown, and not that of the host that asks."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_shedlock.clocks import aware
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState
from django_shedlock.providers.base import LockProvider
from django_shedlock.testing.contract.harness import (
    HOUR,
    MINUTE,
    Contract,
    Options,
    configure,
    status_of,
    take_from,
    try_from,
)
from django_shedlock.testing.processes import Parent, worker

WRONG_BY = timedelta(minutes=4)
"""Longer than the leases; AWS refuses requests of clocks that are wrong by more."""

Backend = type[LockProvider]
true_datetime = datetime
true_time: Callable[[], float] = time.time
true_time_ns: Callable[[], int] = time.time_ns


class AnyDatetime(type):
    """The type of ``WrongDatetime``: each ``datetime`` is an instance of that."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, true_datetime)


class WrongDatetime(true_datetime, metaclass=AnyDatetime):
    """Makes plain ``datetime`` objects, and is wrong about the present one."""

    wrong_by: timedelta = timedelta(0)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = true_datetime if cls is WrongDatetime else cls
        return true_datetime.__new__(made, *args, **kwargs)

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return true_datetime.now(tz) + cls.wrong_by

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return cls.now()


def wrong_time() -> float:
    return true_time() + WrongDatetime.wrong_by.total_seconds()


def wrong_time_ns() -> int:
    return true_time_ns() + WrongDatetime.wrong_by // timedelta(microseconds=1) * 1000


def set_clock_wrong(by: timedelta) -> None:
    """
    Let this process's clock be wrong by so much, as Python code reads it.

    ``time.time()`` and ``datetime.now()`` are wrong in all modules. This can't be taken
    back, so only a process of its own does it.
    """
    WrongDatetime.wrong_by = by
    wrong: dict[object, object] = {
        true_datetime: WrongDatetime,
        true_time: wrong_time,
        true_time_ns: wrong_time_ns,
    }
    for module in list(sys.modules.values()):
        if module is sys.modules[__name__]:
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            for true, replacement in wrong.items():
                if value is true:
                    setattr(module, name, replacement)


@dataclass(frozen=True)
class Sight:
    """What a process sees of a lock; seconds since 1970, for a pipe."""

    now: float
    is_acquired: bool
    state: LockState
    locked_at: float
    remaining: timedelta


def look_with_wrong_clock(
    parent: Parent, backend: Backend, options: Options, by: timedelta
) -> Sight:
    """Try to acquire the lock on a host whose clock is wrong; return what it sees."""
    set_clock_wrong(by)
    provider = backend("default", **options)
    is_acquired = isinstance(try_from(provider, configure()), Lock)
    status, now = status_of(provider), provider.now()
    return Sight(
        aware(now).timestamp(),
        is_acquired,
        status.state,
        aware(status.locked_at).timestamp(),
        status.remaining,
    )


def write_with_wrong_clock(
    parent: Parent, backend: Backend, options: Options, by: timedelta
) -> None:
    """Acquire, extend, keep and request locks on a host whose clock is wrong."""
    set_clock_wrong(by)
    provider = backend("default", **options)
    take_from(provider, configure("acquired"))
    lock = take_from(provider, configure("extended"))
    assert provider.extend(lock, MINUTE)
    assert provider.release(take_from(provider, configure("kept", HOUR, MINUTE)))
    provider.request_run("requested", "alice", "again")


class WrongClockContract(Contract):
    """A host whose clock is wrong sees and does what all others do."""

    flags: tuple[str, ...] = ("is_shared",)

    @pytest.fixture(params=[WRONG_BY, -WRONG_BY], ids=["ahead", "behind"])
    def wrong_by(self, request: pytest.FixtureRequest) -> timedelta:
        """Return by how much the clock of the other process is wrong."""
        if self.is_for_one_host:
            pytest.skip("the clock of the only host is right")
        by: timedelta = request.param
        return by

    def look(self, options: Options, by: timedelta) -> Sight:
        with worker(look_with_wrong_clock, self.backend, options, by) as host:
            return host.result()

    def test_held_lock_on_a_host_with_a_wrong_clock(
        self, provider: LockProvider, options: Options, wrong_by: timedelta
    ) -> None:
        """It sees the store's clock, and a lease that is not over."""
        take_from(provider, configure())
        status, before = status_of(provider), provider.now()
        sight = self.look(options, wrong_by)
        for true, seen in (
            (aware(before).timestamp(), sight.now),
            (aware(status.locked_at).timestamp(), sight.locked_at),
        ):
            assert abs(seen - true) < 2 * MINUTE.total_seconds()
        assert not sight.is_acquired
        assert sight.state is LockState.RUNNING
        assert timedelta(0) < sight.remaining < 2 * MINUTE

    def test_expired_lock_on_a_host_with_a_wrong_clock(
        self, provider: LockProvider, options: Options, wrong_by: timedelta
    ) -> None:
        """It acquires a lock whose lease is over."""
        self.outlast(take_from(provider, configure(lock_at_most_for=self.short)))
        assert self.look(options, wrong_by).is_acquired

    def test_what_a_host_with_a_wrong_clock_writes(
        self, provider: LockProvider, options: Options, wrong_by: timedelta
    ) -> None:
        """Its leases are as long as those of others, and its instants the store's."""
        with worker(write_with_wrong_clock, self.backend, options, wrong_by) as host:
            host.result()
        for name in ("acquired", "extended", "kept"):
            assert timedelta(0) < status_of(provider, name).remaining < 2 * MINUTE
        asked_at = status_of(provider, "requested").job.asked_at
        assert asked_at is not None
        assert abs(aware(asked_at) - aware(provider.now())) < 2 * MINUTE
