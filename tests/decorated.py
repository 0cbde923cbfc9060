"""The decorated jobs of the process, of which the modules of tests make many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django_shedlock.jobs import registered_jobs


@contextmanager
def only_jobs_of(*modules: str) -> Iterator[None]:
    """Forget the jobs of all other modules in the body, where new ones may come."""
    before = list(registered_jobs)
    registered_jobs.clear()
    registered_jobs.update(job for job in before if job.path.startswith(modules))
    try:
        yield
    finally:
        registered_jobs.clear()
        registered_jobs.update(before)
