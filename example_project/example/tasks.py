"""django.tasks: however often it is enqueued in a tick, it runs once."""

from __future__ import annotations

try:
    from django.tasks import task
except ImportError:  # Django 5.2, for which there is the package django-tasks
    from django_tasks import task

from django_shedlock import scheduler_lock
from example.jobs import work


@task
@scheduler_lock("invoices.send", lock_at_most_for="50s", lock_at_least_for="45s")
def send_invoices() -> None:
    """Send the invoices of the day."""
    work("invoices.send")
