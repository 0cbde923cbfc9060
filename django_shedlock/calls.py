"""What starts the jobs that bring their own lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from django_shedlock.options import LockRequest
from django_shedlock.providers import get_provider
from django_shedlock.schedules import Schedule
from django_shedlock.triggers import Trigger


@dataclass
class Call:
    """
    One call of a target, and what came of it.

    ``None`` as target stands for every job. ``schedule`` is for a target that has none
    of its own. ``was_executed`` is ``None`` until it is known.
    """

    target: object
    trigger: Trigger
    schedule: Schedule | str | None = None
    was_executed: bool | None = None


_call: ContextVar[Call | None] = ContextVar("django_shedlock_call", default=None)


@contextmanager
def called(
    target: object, trigger: Trigger, schedule: Schedule | str | None = None
) -> Iterator[Call]:
    """Let the target know in the body what starts it; it notes what came of it."""
    call = Call(target, trigger, schedule)
    token = _call.set(call)
    try:
        yield call
    finally:
        _call.reset(token)


def adapted(target: object, request: LockRequest) -> LockRequest:
    """Return what the target asks for when it is called so."""
    call = _call.get()
    if call is None or not (call.target is None or call.target is target):
        return request
    return replace(scheduled(request, call.schedule), trigger=call.trigger)


def scheduled(request: LockRequest, schedule: Schedule | str | None) -> LockRequest:
    """Return the request with a schedule, if it has none and its provider can."""
    if schedule is None or request.schedule is not None:
        return request
    if not get_provider(request.provider).keeps_ticks:
        return request
    return replace(request, schedule=schedule)


def note(target: object, *, was_executed: bool) -> None:
    """Tell who called the target whether it was executed."""
    call = _call.get()
    if call is not None and call.target is target:
        call.was_executed = was_executed
