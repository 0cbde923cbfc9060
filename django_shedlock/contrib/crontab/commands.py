"""Run somebody else's management command under a lock."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.management import call_command

from django_shedlock.calls import adapted, note
from django_shedlock.executor import execute_request
from django_shedlock.options import LockRequest, make_request

Seconds = float | str | None
"""A duration that JSON can carry."""


def locked_command(
    name: str,
    /,
    *args: Any,
    lock: str | None = None,
    lock_at_most_for: Seconds = None,
    lock_at_least_for: Seconds = None,
    lock_provider: str = "default",
    **options: Any,
) -> None:
    """
    Run a management command under a lock, or not at all if somebody else holds it.

    Name it in ``CRONJOBS``. The lock has the command's name, unless ``lock`` says
    otherwise. All other arguments are the command's. Raises what the command raises,
    ``InvalidLockConfiguration`` for options of no lock, and ``LockProviderError`` if
    the store fails.
    """
    request = command_request(
        name,
        lock=lock,
        lock_at_most_for=lock_at_most_for,
        lock_at_least_for=lock_at_least_for,
        lock_provider=lock_provider,
    )
    task = partial(call_command, name, *args, **options)
    result = execute_request(task, adapted(locked_command, request))
    note(locked_command, was_executed=result.was_executed)


def command_request(
    name: str,
    /,
    *args: Any,
    lock: str | None = None,
    lock_at_most_for: Seconds = None,
    lock_at_least_for: Seconds = None,
    lock_provider: str = "default",
    **options: Any,
) -> LockRequest:
    """Return what ``locked_command()`` with these arguments asks for."""
    durations = {
        "lock_at_most_for": lock_at_most_for,
        "lock_at_least_for": lock_at_least_for,
    }
    return make_request(
        name if lock is None else lock, {**durations, "provider": lock_provider}
    )
