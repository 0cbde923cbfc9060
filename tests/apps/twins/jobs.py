"""Jobs that Django imports only where somebody names them."""

from django_shedlock import scheduler_lock


@scheduler_lock("twins.digest")
def send_digest() -> None:
    """One of two jobs with one name."""


@scheduler_lock("twins.Digest")
def send_another_digest() -> None:
    """One whose name differs only by case."""
