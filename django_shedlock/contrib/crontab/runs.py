"""Run entries of ``CRONJOBS`` as ``crontab run`` does."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction

from django_shedlock.calls import called
from django_shedlock.contrib.crontab.entries import Entry
from django_shedlock.contrib.crontab.requests import request_for, schedule_of
from django_shedlock.contrib.crontab.targets import own_lock
from django_shedlock.executor import aexecute_request, execute_request
from django_shedlock.triggers import Trigger

logger = logging.getLogger("django_shedlock")


def run_or_exit(job: Any) -> None:
    """Run the entry under a lock; if it fails, log the error and exit with 1."""
    try:
        run(Entry.parse(job))
    except Exception:
        logger.exception("The entry %r of CRONJOBS failed.", job)
        sys.exit(1)


def run(entry: Entry, trigger: Trigger = Trigger.SCHEDULER) -> bool:
    """
    Run the entry, or skip it if somebody else holds its lock or has run its tick.

    A target that brings its own lock has only that one. A coroutine function is run to
    its end. Return whether the target was executed. Raises what it raises, and
    ``LockProviderError`` if the store fails.
    """
    target = own_lock(entry)
    if target is None:
        return _run_locked(entry, trigger)
    with called(target, trigger, schedule_of(entry)) as call:
        _finish(entry.function, _task(entry))
    return call.was_executed is True


def _run_locked(entry: Entry, trigger: Trigger) -> bool:
    request = request_for(entry)
    if request is None:
        _finish(entry.function, _task(entry))
        return True
    request = replace(request, trigger=trigger)
    if iscoroutinefunction(entry.function):
        # With the lock taken in its own loop it is cancelled when that is lost.
        return async_to_sync(aexecute_request)(_task(entry), request).was_executed
    return execute_request(_task(entry), request).was_executed


def _task(entry: Entry) -> Callable[[], Any]:
    return partial(entry.function, *entry.args, **entry.kwargs)


def _finish(function: Any, task: Callable[[], Any]) -> None:
    if iscoroutinefunction(function):
        async_to_sync(task)()
    else:
        task()
