"""A module with a job that cannot be imported."""

import a_package_that_is_not_installed  # type: ignore[import-not-found]  # noqa: F401

from django_shedlock import scheduler_lock


@scheduler_lock("broken.job")
def job() -> None:
    """A job that nobody finds."""
