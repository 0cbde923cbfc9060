"""The entries of ``CRONJOBS`` as jobs that can be started by name."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

from django.conf import settings

from django_shedlock.contrib.crontab.apps import locks_all_entries
from django_shedlock.contrib.crontab.entries import Entry
from django_shedlock.contrib.crontab.plans import Plan
from django_shedlock.contrib.crontab.runs import run
from django_shedlock.known_jobs import KnownJob, known_job

logger = logging.getLogger("django_shedlock")


def entries_as_jobs() -> Iterator[KnownJob]:
    """Return the entries that run under a lock by themselves; log what is wrong."""
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
            yield known_job(request, partial(run, entry))
