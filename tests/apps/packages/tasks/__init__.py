"""Jobs in a package."""

from django_shedlock import scheduler_lock


@scheduler_lock("packages.task", schedule="@hourly", lock_at_most_for="1m")
def task() -> None:
    """A job in the package itself."""
