"""Run entries of ``CRONJOBS`` as ``crontab run`` does."""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction

from django_shedlock.contrib.crontab.entries import Entry
from django_shedlock.contrib.crontab.requests import request_for
from django_shedlock.contrib.crontab.targets import has_own_lock
from django_shedlock.executor import aexecute_request, execute_request

logger = logging.getLogger("django_shedlock")


def run_or_exit(job: Any) -> None:
    """Run the entry under a lock; if it fails, log the error and exit with 1."""
    try:
        run(Entry.parse(job))
    except Exception:
        logger.exception("The entry %r of CRONJOBS failed.", job)
        sys.exit(1)


def run(entry: Entry) -> None:
    """
    Run the entry, or skip it if somebody else holds its lock.

    A target that brings its own lock has only that one. A coroutine function is run to
    its end. Raises what the target raises, and ``LockProviderError`` if the store
    fails.
    """
    function = entry.function
    task = partial(function, *entry.args, **entry.kwargs)
    request = None if has_own_lock(entry) else request_for(entry)
    if iscoroutinefunction(function):
        # With the lock taken in its own loop it is cancelled when that is lost.
        arun = task if request is None else partial(aexecute_request, task, request)
        async_to_sync(arun)()
    elif request is None:
        task()
    else:
        execute_request(task, request)
