"""Run entries of ``CRONJOBS``: for ``crontab run``, or by the names of their locks."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.conf import settings

from django_shedlock.contrib.crontab.entries import Entry, locks_all_entries, own_lock
from django_shedlock.contrib.crontab.locks import Plan, request_for, schedule_of
from django_shedlock.jobs.named import NamedJob, named_job, run_locked
from django_shedlock.jobs.registry import invoked_by
from django_shedlock.schedules.state import BY_SCHEDULER, Start

logger = logging.getLogger("django_shedlock")


def run_or_exit(job: Any) -> None:
    """Run the entry under a lock; if it fails, log the error and exit with 1."""
    try:
        run(Entry.parse(job))
    except Exception:
        logger.exception("The entry %r of CRONJOBS failed.", job)
        sys.exit(1)


def run(entry: Entry, start: Start = BY_SCHEDULER) -> bool:
    """
    Run the entry, or skip it if somebody else holds its lock or has run its tick.

    A target that brings its own lock gets no other one. Return whether the target was
    executed. Raises what it raises, and ``LockProviderError`` if the store fails.
    """
    target = own_lock(entry)
    if target is None:
        return _run_locked(entry, start)
    with invoked_by(start, target, schedule=schedule_of(entry)) as call:
        _run_target(entry)
    return call.was_executed is True


def _run_locked(entry: Entry, start: Start) -> bool:
    request = request_for(entry)
    if request is None:
        _run_target(entry)
        return True
    request = replace(request, start=start)
    return run_locked(request, entry.function, *entry.args, **entry.kwargs)


def _run_target(entry: Entry) -> None:
    function = entry.function
    if iscoroutinefunction(function):
        function = async_to_sync(function)
    function(*entry.args, **entry.kwargs)


def entries_as_jobs() -> Iterator[NamedJob]:
    """Return the entries that run under a lock; log the entries that are wrong."""
    if not locks_all_entries():
        return
    for job in getattr(settings, "CRONJOBS", []):
        try:
            entry = Entry.parse(job)
            request = Plan(entry).request
        except Exception:  # whatever importing a target raises
            logger.warning("The entry %r of CRONJOBS is wrong.", job, exc_info=True)
            continue
        if request is not None:
            yield named_job(request, partial(run, entry))
