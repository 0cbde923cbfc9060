"""django-crontab: entries of ``CRONJOBS`` under locks. Here: commands under a lock."""

from functools import partial
from typing import Any

from django.core.management import call_command

from django_shedlock.execution.executor import execute_request
from django_shedlock.locks.configuration import LockRequest, make_request
from django_shedlock.registry.jobs import apply, report

__all__ = ["locked_command"]


def locked_command(name: str, /, *args: Any, **options: Any) -> None:
    """
    Run a management command under a lock, or skip it if somebody else holds the lock.

    Name it in ``CRONJOBS``. The options ``lock`` (the lock's name, by default the
    command with its arguments), ``lock_at_most_for``, ``lock_at_least_for`` and
    ``lock_provider`` are for the lock, all others for the command. Raises what the
    command raises, ``InvalidLockConfiguration`` if no lock can have these options, and
    ``LockProviderError`` if the store fails.
    """
    request, of_command = parse_command(name, *args, **options)
    task = partial(call_command, name, *args, **of_command)
    result = execute_request(task, apply(locked_command, request))
    report(locked_command, was_executed=result.was_executed)


def parse_command(
    name: str, /, *args: Any, **options: Any
) -> tuple[LockRequest, dict[str, Any]]:
    """Return the lock of such a call of ``locked_command()``, and the other options."""
    lock = options.pop("lock", None)
    of_lock = {
        "lock_at_most_for": options.pop("lock_at_most_for", None),
        "lock_at_least_for": options.pop("lock_at_least_for", None),
        "provider": options.pop("lock_provider", "default"),
    }
    if lock is None:
        named = (f"{option}={value}" for option, value in sorted(options.items()))
        lock = " ".join(map(str, [name, *args, *named]))
    return make_request(lock, of_lock), options
