"""The jobs that can be started by the names of their locks."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.core.management import BaseCommand, CommandError, call_command

from django_shedlock.calls import called
from django_shedlock.discovery import import_decorated_modules
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.executor import aexecute_request, execute_request
from django_shedlock.jobs import Job, registered_jobs
from django_shedlock.options import LockRequest
from django_shedlock.schedules import Schedule
from django_shedlock.triggers import Trigger

logger = logging.getLogger("django_shedlock")


@dataclass(frozen=True)
class KnownJob:
    """
    A job by the full name of its lock.

    ``start`` runs it here and now, and returns whether it was executed; it is ``None``
    if the job needs arguments. It raises what the job raises.
    """

    name: str
    provider: str
    schedule: Schedule | None
    start: Callable[[Trigger], bool] | None


Source = Callable[[], Iterator[KnownJob]]


def decorated_jobs() -> Iterator[KnownJob]:
    """Return the decorated jobs whose locks have a fixed name."""
    # Whoever asks for jobs by name starts them, or takes others for unused.
    import_decorated_modules(logging.WARNING)
    for job in sorted(registered_jobs, key=lambda job: job.path):
        if not job.has_fields:
            with suppress(InvalidLockConfiguration):  # a system check tells of it
                yield known_job(job.request, _starter(job))


def known_job(
    request: LockRequest, start: Callable[[Trigger], bool] | None
) -> KnownJob:
    """Return the job of this lock; the settings are read for it."""
    configuration = request.configuration()
    schedule = configuration.occasion.schedule
    return KnownJob(configuration.name, request.provider, schedule, start)


sources: list[Source] = [decorated_jobs]
"""Whatever knows jobs; apps may add to it when they are ready."""


def known_jobs(provider: str) -> Iterator[KnownJob]:
    """Return the jobs whose locks this provider keeps, from all sources."""
    for source in sources:
        for job in _jobs_of(source):
            if job.provider == provider:
                yield job


def _jobs_of(source: Source) -> Iterator[KnownJob]:
    try:
        yield from source()
    except Exception:
        # The jobs of the others are overdue, too.
        logger.exception("Not all jobs of %s are known.", source.__qualname__)


def _starter(job: Job) -> Callable[[Trigger], bool] | None:
    if not _needs_no_arguments(job):
        return None
    if job.command is not None:
        return partial(_start_command, job, job.command)
    return partial(_start_function, job)


def _needs_no_arguments(job: Job) -> bool:
    if job.command is not None:
        return _parses_nothing(job.command)
    try:
        inspect.signature(job.function).bind()
    except (NameError, TypeError, ValueError):
        # Of some builtins nobody knows, nor from Python 3.14 on of a function with an
        # annotation that has no value at run time.
        return False
    return True


def _parses_nothing(command: type[BaseCommand]) -> bool:
    try:
        command().create_parser("", command.__module__).parse_args([])
    except CommandError:
        return False
    except Exception:  # whoever starts it is told; the other jobs have to be known
        return True
    return True


def _start_function(job: Job, trigger: Trigger) -> bool:
    with called(job, trigger):
        request = job.request_for((), {})
    if iscoroutinefunction(job.function):
        # With the lock taken in its own loop it is cancelled when that is lost.
        result = async_to_sync(aexecute_request)(job.function, request)
    else:
        result = execute_request(job.function, request)
    return result.was_executed


def _start_command(job: Job, command: type[BaseCommand], trigger: Trigger) -> bool:
    with called(job, trigger) as call:
        call_command(command())
    return call.was_executed is True
