"""Run a management command under a lock, without decorating it."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

from django.core.management import call_command

from django_shedlock.executor import execute_request
from django_shedlock.jobs.registry import apply, report
from django_shedlock.locks.configuration import (
    LONGEST_NAME,
    LockRequest,
    full_name,
    make_request,
)

OF_THE_LOCK = {"lock", "lock_at_most_for", "lock_at_least_for", "lock_provider"}
"""The keyword arguments of ``locked_command()`` that are not the command's."""
DIGITS = 16
"""The length of the hash at the end of a name that is cut."""


def locked_command(
    name: str,
    /,
    *args: Any,
    lock: str | None = None,
    lock_at_most_for: float | str | None = None,
    lock_at_least_for: float | str | None = None,
    lock_provider: str = "default",
    **options: Any,
) -> None:
    """
    Run a management command under a lock, or skip it if somebody else holds the lock.

    Name it in ``CRONJOBS``. ``lock`` is the lock's name, by default the command with
    its arguments. All other arguments are the command's. Raises what the command
    raises, ``InvalidLockConfiguration`` if no lock can have these options, and
    ``LockProviderError`` if the store fails.
    """
    request = command_request(
        name,
        *args,
        **options,
        lock=lock,
        lock_at_most_for=lock_at_most_for,
        lock_at_least_for=lock_at_least_for,
        lock_provider=lock_provider,
    )
    task = partial(call_command, name, *args, **options)
    result = execute_request(task, apply(locked_command, request))
    report(locked_command, was_executed=result.was_executed)


def command_request(name: str, /, *args: Any, **options: Any) -> LockRequest:
    """Return the request of ``locked_command()`` with these arguments."""
    lock = options.get("lock")
    if lock is None:
        named = sorted(command_options(options).items())
        words = [name, *args, *(f"{option}={value}" for option, value in named)]
        lock = fitting(" ".join(map(str, words)))
    of_lock = {
        "lock_at_most_for": options.get("lock_at_most_for"),
        "lock_at_least_for": options.get("lock_at_least_for"),
        "provider": options.get("lock_provider", "default"),
    }
    return make_request(lock, of_lock)


def command_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return those options of ``locked_command()`` that are the command's."""
    return {key: value for key, value in options.items() if key not in OF_THE_LOCK}


def fitting(name: str) -> str:
    """Return the name, cut and with a hash at the end if it is too long."""
    room = LONGEST_NAME - len(full_name(""))
    if len(name) <= room:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:DIGITS]
    return f"{name[: room - DIGITS - 1].rstrip()}~{digest}"
