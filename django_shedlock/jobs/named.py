"""The jobs that can be started by the names of their locks."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.core.management import BaseCommand, CommandError, call_command

from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.executor import aexecute_request, execute_request
from django_shedlock.jobs.discovery import import_decorated_modules
from django_shedlock.jobs.registry import Job, invoked_by, registered_jobs
from django_shedlock.locks.configuration import LockRequest
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start

logger = logging.getLogger("django_shedlock")


Starter = Callable[[Start], bool]
"""
Runs a job here and now; returns whether it was executed.

It raises what the job raises.
"""


@dataclass(frozen=True)
class NamedJob:
    """A job by the full name of its lock; without ``start`` if it needs arguments."""

    name: str
    provider: str
    schedule: Schedule | None
    start: Starter | None


def decorated_jobs() -> Iterator[NamedJob]:
    """Return the decorated jobs whose locks have a fixed name."""
    # A job that is missing here would not be started, or its record would be pruned.
    import_decorated_modules(logging.WARNING)
    for job in sorted(registered_jobs, key=lambda job: job.path):
        if not job.has_fields:
            with suppress(InvalidLockConfiguration):  # a system check reports it
                yield named_job(job.request, _starter(job))


def named_job(request: LockRequest, start: Starter | None) -> NamedJob:
    """Return the job of this lock; the settings are read for it."""
    configuration = request.configuration()
    schedule = configuration.schedule
    return NamedJob(configuration.name, request.provider, schedule, start)


sources: list[Callable[[], Iterator[NamedJob]]] = [decorated_jobs]
"""Where jobs are found; apps may add to it when they are ready."""


def named_jobs(provider: str) -> Iterator[NamedJob]:
    """Return the jobs whose locks this provider keeps, from all sources."""
    for source in sources:
        try:
            yield from (job for job in source() if job.provider == provider)
        except Exception:  # the other sources' jobs are overdue, too
            logger.exception("Not all jobs of %s are known.", source.__qualname__)


def _starter(job: Job) -> Starter | None:
    if job.command is not None:
        start = partial(_start_command, job, job.command)
        return start if _parses_nothing(job.command) else None
    try:
        inspect.signature(job.function).bind()
    except (NameError, TypeError, ValueError):
        # Some builtins have no signature, nor has, from Python 3.14 on, a function with
        # an annotation that has no value at run time.
        return None
    return partial(_start_function, job)


def _parses_nothing(command: type[BaseCommand]) -> bool:
    try:
        command().create_parser("", command.__module__).parse_args([])
    except CommandError:
        return False
    except Exception:  # starting it raises this again; the other jobs must be known
        return True
    return True


def _start_function(job: Job, start: Start) -> bool:
    with invoked_by(start, job):
        request = job.request_for((), {})
    return run_locked(request, job.function)


def run_locked(
    request: LockRequest, function: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> bool:
    """
    Call the function under its lock, to the end if it is a coroutine function.

    Return whether it was executed. Raises what it raises, and ``LockProviderError`` if
    the store fails.
    """
    task = partial(function, *args, **kwargs)
    if iscoroutinefunction(function):
        # If the coroutine's own loop acquires the lock, its loss cancels the coroutine.
        return async_to_sync(aexecute_request)(task, request).was_executed
    return execute_request(task, request).was_executed


def _start_command(job: Job, command: type[BaseCommand], start: Start) -> bool:
    with invoked_by(start, job) as call:
        call_command(command())
    return call.was_executed is True
