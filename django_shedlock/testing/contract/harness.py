"""What the parts of the contract share: a provider, its hooks, and helpers."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from django.test import override_settings

from django_shedlock.clocks import uptime
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockHolder, LockStatus
from django_shedlock.providers import provider_instances, use_instances
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.testing.processes import WAIT_LIMIT_SECONDS

T = TypeVar("T")
Options = dict[str, Any]
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Contract:
    """
    The base of each part. Subclass ``LockProviderContract``, not this.

    ``backend`` is the provider's class. Its class attributes, such as ``keeps_ticks``,
    decide which tests there are.
    """

    backend: type[LockProvider]
    pass_time: Callable[[Any, str, timedelta], None] | None = None
    """
    A method ``pass_time(provider, name, by)``, if the tests can let time pass.

    It makes one lock older by ``by`` in the store, so that random steps can wait.
    """

    forget_record: Callable[[Any, str], None] | None = None
    """
    A method ``forget_record(provider, name)``, if the tests can delete a record.

    People do it by hand, and some stores delete records that are unused for long.
    """

    lose_replies: Callable[[Any, int], AbstractContextManager[object]] | None = None
    """
    A context manager ``lose_replies(provider, count)``, if the tests can lose replies.

    Within its body, the store carries out what it is asked for, and the provider's
    client does not get the replies to the first ``count`` changes.
    """

    spoil_record: Callable[[Any, str, Any], None] | None = None
    """
    A method ``spoil_record(provider, name, flaw)``, if the tests can write by hand.

    It gives a lock that is held a record with this flaw. The fixture ``flaw`` has
    texts that are no JSON of an entry; override it if the records are none.
    """

    raw_record: Callable[[Any, str], object] | None = None
    """A method ``raw_record(provider, name)``: what the store has, as it has it."""

    is_for_one_host: bool = False
    """Is the clock of the one host, which has all processes, that of the store?"""

    flags: tuple[str, ...] = ()
    """The class attributes that a provider needs for the tests of this part."""
    hooks: tuple[str, ...] = ()
    """The hooks that the tests of this part call."""
    base: type[object] = LockProvider
    """The class of the providers that the tests of this part are for."""

    def __init_subclass__(cls) -> None:
        if getattr(cls, "backend", None) is None:
            return
        for part in cls.__mro__:
            if not cls._has_what_it_needs(part):
                for name in vars(part):
                    if name.startswith("test_"):
                        setattr(cls, name, None)

    @classmethod
    def _has_what_it_needs(cls, part: type) -> bool:
        needs = vars(part)
        return (
            issubclass(cls.backend, needs.get("base", LockProvider))
            and all(getattr(cls.backend, flag) for flag in needs.get("flags", ()))
            and None not in [getattr(cls, hook) for hook in needs.get("hooks", ())]
        )

    @pytest.fixture
    def options(self) -> Options:
        """Return ``OPTIONS`` of a store without locks, also for other processes."""
        return {}

    @pytest.fixture
    def unreachable_options(self) -> Options:
        """Return ``OPTIONS`` of a store that can't be reached."""
        pytest.fail(
            f"{type(self).__name__} has no fixture unreachable_options. Let it return "
            "OPTIONS with which no store answers."
        )

    @pytest.fixture
    def provider(self, options: Options) -> LockProvider:
        """Return the provider as ``SHEDLOCK_PROVIDERS`` makes it."""
        return self.backend("default", **options)

    def end_lease(self, provider: LockProvider, lock: Lock) -> None:
        """Wait until the lease is over. Override this where the tests can end it."""

        def is_over() -> bool:
            status = provider.status(lock.name)
            return status is None or not status.remaining

        wait_for(is_over)

    def outlast(self, lock: Lock) -> None:
        """Let the lease be over, in the store and as far as the holder knows."""
        self.end_lease(lock.provider, lock)
        lock.lease_end = uptime()

    def at_least(self, lease: timedelta) -> timedelta:
        """Return the lease, or the shortest that the store can end."""
        return max(lease, self.backend.shortest_lease)

    @property
    def short(self) -> timedelta:
        """A lease whose end a test can wait for."""
        return self.at_least(timedelta(milliseconds=50))


def configure(
    name: str = "job",
    lock_at_most_for: timedelta = MINUTE,
    lock_at_least_for: timedelta = ZERO,
) -> LockConfiguration:
    """Return the configuration of a lock without a schedule."""
    return LockConfiguration(name, lock_at_most_for, lock_at_least_for)


@contextmanager
def configured(provider: LockProvider) -> Iterator[None]:
    """Let jobs in the body use this provider, and no settings of the project."""
    outer = provider_instances()
    with override_settings(
        SHEDLOCK_ENABLED=True,
        SHEDLOCK_NAMESPACE="",
        SHEDLOCK_HISTORY=False,
        SHEDLOCK_DEFAULT_LOCK_AT_MOST_FOR=MINUTE,
        SHEDLOCK_DEFAULT_LOCK_AT_LEAST_FOR=ZERO,
    ):
        use_instances({provider.alias: provider})
        try:
            yield
        finally:
            use_instances(outer)


def try_from(
    provider: LockProvider, configuration: LockConfiguration
) -> Lock | LockHolder:
    """Return the lock, or its holder."""
    provider.check_configuration(configuration)
    lock = Lock(provider, configuration)
    return provider.acquire(lock) or lock


def take_from(provider: LockProvider, configuration: LockConfiguration) -> Lock:
    """Acquire the lock; fail if it is not free."""
    lock = try_from(provider, configuration)
    assert isinstance(lock, Lock), f"{configuration.name} is {lock.reason}"
    return lock


def take_at_last(provider: LockProvider, configuration: LockConfiguration) -> Lock:
    """Acquire the lock as soon as it is free."""
    for _ in _tries():
        lock = try_from(provider, configuration)
        if isinstance(lock, Lock):
            return lock
        time.sleep(random.uniform(0.001, 0.01))
    pytest.fail(f"nobody released {configuration.name}")


def is_held(provider: LockProvider, configuration: LockConfiguration) -> bool:
    """Return whether the lock can't be acquired; release it if it can."""
    lock = try_from(provider, configuration)
    if isinstance(lock, LockHolder):
        return True
    provider.release(lock)
    return False


def status_of(provider: LockProvider, name: str = "job") -> LockStatus:
    """Return the lock as the store knows it."""
    status = provider.status(name)
    assert status is not None, f"there is no record of {name}"
    return status


def force_release(provider: LockProvider, name: str = "job") -> bool:
    """Release the lock as an operator does; return whether it was done."""
    status = provider.status(name)
    return status is not None and provider.replace(status, ZERO)


def force_extend(provider: LockProvider, name: str, lasting: timedelta) -> bool:
    """Extend the lease as an operator does; return whether it was done."""
    status = provider.status(name)
    return status is not None and provider.replace(status, lasting)


def let_its_clock_move(provider: LockProvider, by: timedelta = ZERO) -> None:
    """Wait until the store's clock has passed ``by``: some have whole seconds."""
    before = provider.now() + by

    def has_moved() -> bool:
        return provider.now() > before

    wait_for(has_moved)


def wait_until_free(provider: LockProvider) -> None:
    """Wait until the lock can be acquired; then release it again."""

    def is_free() -> bool:
        return not is_held(provider, configure())

    wait_for(is_free)


def pause(provider: LockProvider, lasting: timedelta = HOUR) -> Lock:
    """Acquire the lock as an operator does, so that its job does not run."""
    start = Start(Trigger.OPERATOR)
    wanted = LockConfiguration("job", lasting, start=start)
    lock = Lock(provider, wanted, opens_run=False)
    lock.locked_by = Pause("alice", "the mail server moves").identity()
    assert provider.acquire(lock) is None
    return lock


def wait_for(condition: Callable[[], T], pause: float = 0.01) -> T:
    """Call ``condition`` every ``pause`` seconds; return its first true result."""
    for _ in _tries():
        if result := condition():
            return result
        time.sleep(pause)
    raise AssertionError("it did not happen in time")


def _tries() -> Iterator[None]:
    # The limit counts the time in which this process runs: a try counts as a second at
    # most, since the machine may stand still in it.
    left, before = float(WAIT_LIMIT_SECONDS), time.monotonic()
    while left > 0:
        yield
        now = time.monotonic()
        left -= min(now - before, 1)
        before = now
