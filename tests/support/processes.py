"""Worker processes that find more modules loaded than those of a project's tests."""

from django_shedlock.testing.processes import (
    Parent,
    Worker,
    addresses,
    context,
    race,
    use,
    worker,
    workers,
)

context.set_forkserver_preload(["tests.support.preload"])

__all__ = [
    "Parent",
    "Worker",
    "addresses",
    "context",
    "race",
    "use",
    "worker",
    "workers",
]
