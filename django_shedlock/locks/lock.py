"""A lock that its caller holds: its identity, its lease, and its loss."""

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from secrets import token_hex
from typing import TYPE_CHECKING, ClassVar

from asgiref.sync import sync_to_async

from django_shedlock.background import losses
from django_shedlock.clocks import uptime
from django_shedlock.durations import Duration
from django_shedlock.exceptions import (
    LockLost,
    LockProviderError,
    NoActiveLock,
    message_of,
)
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.status import (
    AbandonedRun,
    LockState,
    LockStatus,
    RunOutcome,
    is_interruption,
    is_success,
)
from django_shedlock.locks.time_limits import TimeLimitExceeded, process_time_limit
from django_shedlock.mutexes import Mutex
from django_shedlock.signals import lock_extended, lock_lost, lock_released, logger

if TYPE_CHECKING:
    from django_shedlock.providers.base import LockProvider


class Lock:
    """
    A lock that its caller holds, until it is released or its lease ends.

    Each acquisition has its own identity, ``locked_by``. With a schedule, ``tick`` is
    the tick that it runs; without one it is ``None``. ``lock_at_least_for`` is the
    configuration's, or that of the last extension. The state belongs to this one
    acquisition. A forked child inherits the object, but never the lock.

    With ``locked_by``, the lock stands for the acquisition of a process that has died,
    and can only be released. ``has_deadline`` says whether a store that hangs must not
    keep the caller for long.
    """

    receivers_timeout_seconds: ClassVar[float] = 5
    """For so long the end of a body waits for the receivers of ``lock_lost``."""

    def __init__(
        self,
        provider: "LockProvider",
        configuration: LockConfiguration,
        *,
        lease_end: float | None = None,
        opens_run: bool = True,
        locked_by: str = "",
        has_deadline: bool = False,
    ):
        self.provider: LockProvider = provider
        self.configuration: LockConfiguration = configuration
        self.name: str = configuration.name
        """The lock's full name, with the namespace."""
        # Short enough for its column, and new after a fork.
        self.locked_by: str = locked_by or identity_of(os.getpid()) + (
            configuration.start.acquisition or token_hex(8)
        )
        self.is_orphaned: bool = locked_by != ""
        """Whether the process has died that acquired it, and this one releases it."""
        self.lock_at_least_for: timedelta = configuration.lock_at_least_for
        self.tick: datetime | None = None
        lease = configuration.lock_at_most_for.total_seconds()
        self.lease_end: float = uptime() + lease if lease_end is None else lease_end
        """When the lease ends, by ``uptime()``."""
        self.was_release_tried: bool = False
        """Whether a release failed, perhaps after the store had carried it out."""
        self.opens_run: bool = opens_run
        """Whether a body runs under it, for which the record accounts."""
        self.has_deadline: bool = has_deadline or not opens_run
        """Whether its statements end soon if the store hangs."""
        self.is_being_acquired: bool = False
        """Whether a thread still waits for the answer, whose caller may be gone."""
        self.never_began: bool = False
        """Whether its body has not begun, so that an end now leaves no run."""
        self.was_interrupted: bool = False
        """Whether something else than the job has ended its body."""
        self.abandoned: AbandonedRun | None = None
        """The run that the acquisition accounted for, if one was still open."""
        self.began: float = time.monotonic()
        """When the body began, by this process's clock."""
        self.failed_outcome: RunOutcome = RunOutcome.FAILED
        """How its run counts if it does not succeed: *failed*, or *timed out*."""
        self.ended: float | None = None
        """When the body ended, by this process's clock."""
        self.lost_since: float | None = None
        """When the loss became known, by this process's clock."""
        self.former_tick: datetime | None = None
        """The newest tick that was begun before, if the store keeps ticks."""
        self._pid = os.getpid()
        self.known_token: int | None = None if lease_end is None else 0
        """The fencing token, if the store has reported it."""
        self._released = False
        self._releasing = Mutex()
        self._mutex = Mutex()
        self._watchers: list[Callable[[], None]] = []
        self._sent: threading.Event | None = None
        self._sender: int | None = None

    def __repr__(self) -> str:
        return f"<Lock {self.name!r} of {self.locked_by}>"

    @cached_property
    def lost(self) -> threading.Event:
        """Set as soon as the loss is known."""
        # A skip needs none. Two threads that ask at once get the same.
        event: threading.Event = vars(self).setdefault("lost", threading.Event())
        return event

    @property
    def is_lost(self) -> bool:
        """Whether the lease ended, or somebody else released or acquired the lock."""
        return self.lost.is_set() or (not self._released and uptime() >= self.lease_end)

    @property
    def took(self) -> float:
        """For how many seconds the body runs or ran, by this process's clock."""
        ended = time.monotonic() if self.ended is None else self.ended
        return ended - self.began

    @property
    def ends_run(self) -> bool:
        """Whether its release accounts for a run: a loss or no body leaves none."""
        return self.opens_run and not self.never_began and not self.lost.is_set()

    @property
    def gives_tick_back(self) -> bool:
        """Whether its tick may be begun once more, since its body was interrupted."""
        wanted = self.configuration
        is_repeated = self.was_interrupted and wanted.start.rerun and self.ends_run
        return is_repeated and wanted.schedule is not None

    @property
    def is_active(self) -> bool:
        """Whether this process holds the lock as far as it can know."""
        return self.is_ours and not self.is_lost

    @property
    def is_ours(self) -> bool:
        """Whether this process acquired the lock, and did not release it."""
        return not self._released and self._pid == os.getpid()

    def assert_locked(self) -> None:
        """
        Do nothing if the lock is still held, as far as this process can know.

        Raises ``LockLost`` if it was lost, ``NoActiveLock`` if this process released
        it, or never acquired it.
        """
        if self.is_lost:
            raise LockLost(
                f"Lock {self.name!r} is no longer held by {self.locked_by}. "
                "Another worker may be running the same job."
            )
        if not self.is_ours:
            raise NoActiveLock(
                f"Lock {self.name!r} is not held here: this process released it, or is "
                "a child of the process that acquired it. Acquire it again."
            )

    def remaining(self) -> timedelta:
        """
        Return what is left of the lease, at least zero.

        It is counted by this host's ``uptime()`` from before the lock was asked for,
        so the store never ends the lease earlier. With ``SHEDLOCK_ENABLED =
        False`` the lease never ends, and this is the whole of it.
        """
        if math.isinf(self.lease_end):
            return self.configuration.lock_at_most_for
        return timedelta(seconds=max(0.0, self.lease_end - uptime()))

    def extend(
        self,
        lock_at_most_for: Duration | None = None,
        lock_at_least_for: Duration | None = None,
    ) -> None:
        """
        Extend the lease from now; never shorten it.

        Without ``lock_at_most_for`` it is the configuration's. ``lock_at_least_for``
        also counts from now; without it what was configured stays. Raises ``LockLost``
        if the lock is not ours any more, ``LockProviderError`` if the store failed.
        """
        if lock_at_most_for is None:
            lock_at_most_for = self.configuration.lock_at_most_for
        if lock_at_least_for is None:
            wanted = LockConfiguration(self.name, lock_at_most_for)
            self._extend(wanted.lock_at_most_for)
        else:
            wanted = LockConfiguration(self.name, lock_at_most_for, lock_at_least_for)
            self._extend(wanted.lock_at_most_for, wanted.lock_at_least_for)
        self.send_extended()

    async def aextend(
        self,
        lock_at_most_for: Duration | None = None,
        lock_at_least_for: Duration | None = None,
    ) -> None:
        """See extend()."""
        await sync_to_async(self.extend)(lock_at_most_for, lock_at_least_for)

    def heartbeat(self) -> None:
        """
        Extend the lease as the heartbeat does, which waits for no receiver.

        It sends ``lock_lost`` in another thread, and leaves ``lock_extended`` to
        ``send_extended()``. Raises what extend() raises.
        """
        self._extend(self.configuration.lock_at_most_for, is_heartbeat=True)

    def send_extended(self) -> None:
        """Send ``lock_extended``."""
        lock_extended.send_robust(type(self.provider), lock=self)

    def _extend(self, *durations: timedelta, is_heartbeat: bool = False) -> None:
        asked = uptime()
        was_extended, failure = False, None
        try:
            # Even past the lease's end: an operator may have extended it.
            if self.is_ours and not self.lost.is_set():
                if is_heartbeat:
                    was_extended = self.provider.heartbeat(self)
                else:
                    was_extended = self.provider.extend(self, *durations)
        except LockProviderError as error:
            if self.is_active:
                raise
            failure = error
        if not was_extended:
            self._declare_lost_unless_released(in_background=is_heartbeat)
            raise LockLost(
                f"Lock {self.name!r} can't be extended: {self.locked_by} does not hold "
                "it. Its lease ended, or somebody else released or acquired it."
            ) from failure
        at_most, *at_least = durations
        self._prolong(asked, at_most)
        if at_least:
            self.lock_at_least_for = at_least[0]

    def _prolong(self, asked: float, left: timedelta) -> None:
        with self._mutex:  # the heartbeat may extend at the same time
            self.lease_end = max(self.lease_end, asked + left.total_seconds())

    def release(self, exception: BaseException | None = None) -> bool:
        """
        Release the lock; return whether it was still ours.

        ``lock_at_least_for`` is kept. ``exception`` is what ended the body, for the
        receivers of ``lock_released``. A second call does nothing; in another thread it
        waits for the first. Raises ``LockProviderError`` if the store failed; the lease
        then ends by itself, and another call tries it again. If the process that
        acquired it has died, and it holds nothing, this does nothing.
        """
        if self._pid != os.getpid():  # nor wait for a thread of the parent
            return False
        with self._releasing:
            if self._released:
                return False
            if self.ended is None:
                self.ended = time.monotonic()
            exception = process_time_limit.judge(exception, self.began, self.ended)
            if exception is not None:
                self.was_interrupted = is_interruption(exception)
                if isinstance(exception, TimeLimitExceeded):
                    self.failed_outcome = RunOutcome.TIMED_OUT
            was_lost = not (
                self.is_orphaned
                or self.is_active
                or self.refresh()
                or self._has_ended()
            )
            succeeded = is_success(exception) and not was_lost
            self._released = True
            try:
                if was_lost and not self.never_began:
                    self.declare_lost()  # so the store takes it for no end of a run
                was_ours = self.provider.release(self, succeeded=succeeded)
            except BaseException:
                self._released = False
                self.was_release_tried = True
                raise
            if self.is_orphaned and not was_ours:
                self._released = False
                return False
            # The heartbeat may have noticed a loss meanwhile.
            released = was_ours and not was_lost and not self.lost.is_set()
            if not released and not self.never_began:
                self.declare_lost()
                self._account_for_loss()  # now its body has ended
            lock_released.send_robust(
                type(self.provider), lock=self, released=released, exception=exception
            )
            return released

    def _has_ended(self) -> bool:
        # A release whose reply was lost may have been carried out in time.
        if not self.was_release_tried or self.lost.is_set():
            return False
        with suppress(LockProviderError):
            status = self.provider.status(self.name)
            if status is not None:
                return status.job.was_released_by(self.locked_by)
        return False

    async def arelease(self, exception: BaseException | None = None) -> bool:
        """See release(). A call that waits for another blocks no event loop."""
        return await sync_to_async(self.release)(exception)

    def fence(self) -> None:
        """
        Let the current transaction commit only if the lock is still ours.

        Call it inside ``atomic()`` on the lock's own database. From here to the end of
        the transaction nobody can acquire the lock: an attempt waits. Raises
        ``LockLost`` if it is not ours any more, ``TransactionManagementError`` outside
        ``atomic()``, ``LockProviderError`` if the store failed or can't fence.
        """
        if not self.is_ours or not self.provider.fence(self):
            self._declare_lost_unless_released()
            raise LockLost(
                f"Lock {self.name!r} can't fence this transaction: {self.locked_by} "
                "does not hold it. Let the transaction roll back."
            )

    async def afence(self) -> None:
        """See fence(). Django has no async transactions, so mind the thread."""
        await sync_to_async(self.fence)()

    @property
    def fencing_token(self) -> int:
        """
        A number that grows with each acquisition of this name.

        It is the store's clock in milliseconds, or one more than the token before if
        that is greater, so it also grows when the record was deleted or restored.
        Another system can refuse writes with a token lower than one it has seen. Where
        the acquisition does not return it, one statement reads it at first use. Raises
        ``LockLost`` if the record is not ours any more, ``LockProviderError`` if the
        store failed.
        """
        if self.known_token is None:
            status = self._own(self.provider.lease_of(self))
            if status is None:
                self._declare_lost_unless_released()
                raise LockLost(
                    f"Lock {self.name!r} has no fencing token for {self.locked_by}: "
                    "somebody else acquired it."
                )
            self.known_token = status.fencing_token
        return self.known_token

    def refresh(self) -> bool:
        """
        Ask the store what is left of the lease; return whether it is anything.

        An operator may have extended it without this process knowing. Without an
        answer the lease ends as it is known here.
        """
        asked = uptime()
        with suppress(LockProviderError):
            is_known = self.lost.is_set() or not self.is_ours
            status = None if is_known else self._own(self.provider.lease_of(self))
            if status is not None and status.state is LockState.RUNNING:
                self._prolong(asked, status.remaining)
        return self.is_active

    def _own(self, status: LockStatus | None) -> LockStatus | None:
        if status is not None and status.unreadable:
            raise LockProviderError(
                f"Lock {self.name!r} (provider {self.provider.alias!r}): its record "
                f"can't be read: {status.unreadable}."
            )
        is_ours = status is not None and status.locked_by == self.locked_by
        return status if is_ours else None

    def declare_lost(self, *, in_background: bool = False) -> None:
        """
        Set ``lost``, call the watchers, and send ``lock_lost``: all of it once.

        If another thread does it, wait for that. With ``in_background`` the signal is
        sent in another thread, and nobody waits.
        """
        with self._mutex:
            is_first = not self.lost.is_set()
            if is_first:
                self._sent = threading.Event()
                self.lost_since = time.monotonic()
                self.lost.set()
        if is_first:
            try:
                for watcher in self._watchers.copy():
                    try:
                        watcher()
                    except Exception:  # the other watchers must be called
                        text = "%r failed when it was told that a lock is lost."
                        logger.exception(text, watcher)
            finally:
                self._send_lost(in_background=in_background)
        elif self._sent and self._sender != threading.get_ident() and not in_background:
            # The process may end soon, and with it the thread that sends the signal.
            self._sent.wait(self.receivers_timeout_seconds)

    def _send_lost(self, *, in_background: bool = False) -> None:
        if in_background:
            with suppress(RuntimeError):  # no room for a thread
                losses.call(self._send_lost_and_account)
                return
        self._send_lost_now()
        if not self._released:  # else the release accounts for it
            self._account_in_background()

    def _send_lost_and_account(self) -> None:
        self._send_lost_now()
        if not self._released:
            self._account_for_loss()

    def _send_lost_now(self) -> None:
        self._sender = threading.get_ident()
        try:
            lock_lost.send_robust(type(self.provider), lock=self)
        finally:
            if self._sent:
                self._sent.set()

    def _account_in_background(self) -> None:
        # The store may hang, and the body goes on.
        if self.provider.is_seen_here_only():
            self._account_for_loss()
            return
        with suppress(RuntimeError):  # no room for a thread: its end accounts for it
            losses.call(self._account_for_loss)

    def _account_for_loss(self) -> None:
        if not self.opens_run:
            return
        try:
            self.provider.account_for_loss(self, has_ended=self._released)
        except LockProviderError as error:  # the next acquisition accounts for it
            text = "The record of lock %r does not show that it was lost: %s"
            logger.warning(text, self.name, message_of(error))

    def _declare_lost_unless_released(self, *, in_background: bool = False) -> None:
        # A release of our own, perhaps in another thread or unanswered, is no loss.
        if self.is_ours and not self.was_release_tried:
            self.declare_lost(in_background=in_background)

    @contextmanager
    def watched_by(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call ``watcher``, from whatever thread, if the lock is lost in the body."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)


def own_host() -> str:
    """Return the name of this host, as it is in the identities of its acquisitions."""
    return socket.gethostname()[:200]


@lru_cache(maxsize=1)
def identity_of(pid: int) -> str:
    """Return this host's ``host:pid:``, to which each acquisition adds its own."""
    return f"{own_host()}:{pid}:"


def split_identity(locked_by: str) -> tuple[str, int | None]:
    """Return host and process of a ``host:pid:random``; any other text is a host."""
    host, *rest = locked_by.rsplit(":", 2)
    # Python refuses to read numbers of thousands of digits.
    if len(rest) == 2 and rest[0].isdecimal() and len(rest[0]) < 20:
        return host, int(rest[0])
    return locked_by, None


def process_of(locked_by: str) -> str:
    """Return the ``host:pid`` of this acquisition; the whole identity of Java's."""
    return locked_by.rpartition(":")[0] or locked_by
