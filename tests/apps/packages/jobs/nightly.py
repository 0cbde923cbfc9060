"""Jobs in a module of a package that imports none of it."""

from django_shedlock import scheduler_lock


@scheduler_lock("packages.nightly", schedule="@daily", lock_at_most_for="1m")
def nightly() -> None:
    """A job further below."""
