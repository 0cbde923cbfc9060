"""What an operator does to somebody else's lock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from django_shedlock.clocks import Backoff, aware
from django_shedlock.console.operators.answers import Answer, Attempt
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.states import LockState, LockStatus
from django_shedlock.models.console import ActionKind
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.signals import (
    lock_force_extended,
    lock_force_released,
    lock_paused,
    lock_resumed,
)


@dataclass(frozen=True)
class OperatorAction:
    """
    An action on a lock: which lock, which operator, and why.

    With ``locked_by``, the action is for that acquisition only, else for the one that
    the lock has when the action begins. ``operator`` is a name for people, ``reason``
    any text. The methods write the trail, and send a signal if it was done. They raise
    ``LockProviderError`` if the store failed.
    """

    provider: LockProvider
    name: str
    locked_by: str | None = None
    operator: str = ""
    reason: str = ""

    def release(self, *, running: bool = False) -> Answer:
        """Release the lock; with ``running``, even while its job runs or is paused."""
        before = self.status()
        seen = self._of(before)
        was_held = before is not None and before.state is not LockState.FREE
        answer = seen._do(
            ActionKind.RELEASE,
            before,
            lambda: seen._force_release(running=running),
            lambda after: was_held and after.state is LockState.FREE,
        )
        if answer:
            lock_force_released.send_robust(type(self.provider), action=seen)
        return answer

    def extend(self, lock_at_most_for: timedelta) -> Answer:
        """Extend the lease of a held lock from now; never shorten it."""
        before = self.status()
        seen = self._of(before)

        def force_extend() -> bool:
            return self.provider.force_extend(
                self.name, lock_at_most_for, locked_by=seen.locked_by
            )

        def is_done(after: LockStatus) -> bool:
            if before is None or not after.state.is_held:
                return False
            return aware(after.lock_until) >= aware(before.clock) + lock_at_most_for

        answer = seen._do(ActionKind.EXTEND, before, force_extend, is_done)
        if answer:
            lock_force_extended.send_robust(
                type(self.provider),
                action=seen,
                lock_at_most_for=lock_at_most_for,
                remaining=answer.status.remaining if answer.status else None,
            )
        return answer

    def pause(
        self,
        lasting: timedelta = FOREVER,
        *,
        wait: timedelta = ZERO,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Answer:
        """
        Hold the lock by an acquisition of the operator's own, so its job does not run.

        A job that runs is not stopped; with ``wait``, wait so long for its end. A pause
        with another reason or end is replaced. A lock without a record gets one.
        """
        before = self.status()
        configuration = LockConfiguration(
            self.name, lasting, start=Start(Trigger.OPERATOR)
        )
        lock = Lock(self.provider, configuration)
        lock.locked_by = Pause(self.operator, self.reason).identity()
        own = replace(self, locked_by=lock.locked_by)

        def take() -> bool:
            if self._is_stale(before) or _is_paused_so(before, lock):
                return False
            before_us = before.locked_by if before and before.pause else None
            if before_us and self.provider.take_over(lock, before_us):
                return True
            backoff = Backoff(wait)
            while self.provider.take(lock) is not None:
                if backoff.is_over:
                    return False
                sleep(backoff.pause())
            return True

        acting = self if self._is_stale(before) else own
        answer = acting._do(
            ActionKind.PAUSE,
            before,
            take,
            lambda after: after.state is LockState.PAUSED,
        )
        if answer:
            lock_paused.send_robust(type(self.provider), action=own, lasting=lasting)
        return answer

    def resume(self) -> Answer:
        """End the pause of a lock; the next start of its job runs it."""
        before = self.status()
        seen = self._of(before)

        def end_pause() -> bool:
            # A name that was forged must not release a lock that a job acquires now.
            is_paused = before is not None and before.pause is not None
            is_meant = is_paused and not seen._is_stale(before)
            return is_meant and seen._force_release(running=True)

        answer = seen._do(
            ActionKind.RESUME,
            before,
            end_pause,
            lambda after: after.state is LockState.FREE,
        )
        if answer:
            lock_resumed.send_robust(type(self.provider), action=seen)
        return answer

    def status(self) -> LockStatus | None:
        """Return the lock as it is now; ``None`` if it has no record."""
        return next(iter(self.provider.statuses(self.name)), None)

    def _of(self, status: LockStatus | None) -> OperatorAction:
        # Else an action that is sent again could hit the next acquisition.
        if self.locked_by is not None or status is None:
            return self
        return replace(self, locked_by=status.locked_by)

    def _is_stale(self, status: LockStatus | None) -> bool:
        if self.locked_by is None:
            return False
        return status is None or status.locked_by != self.locked_by

    def _force_release(self, *, running: bool) -> bool:
        return self.provider.force_release(
            self.name, running=running, locked_by=self.locked_by
        )

    def _do(
        self,
        kind: ActionKind,
        before: LockStatus | None,
        act: Callable[[], bool],
        is_done: Callable[[LockStatus], bool],
    ) -> Answer:
        attempt = Attempt(kind, self.provider, self.name, self.locked_by, before)
        return attempt.answer(act, is_done, operator=self.operator, reason=self.reason)


def _is_paused_so(status: LockStatus | None, lock: Lock) -> bool:
    """Return whether a pause with this reason and this end is there already."""
    wanted = Pause.parse(lock.locked_by)
    if status is None or status.pause is None or wanted is None:
        return False
    is_forever = lock.configuration.lock_at_most_for == FOREVER
    return status.pause.reason == wanted.reason and status.is_endless and is_forever
