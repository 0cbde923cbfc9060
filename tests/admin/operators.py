"""What the admin's tests share: locks, and people with some permissions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from django_shedlock import Lock, LockConfiguration
from django_shedlock.functions import DatabaseNow
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.outcomes import RunOutcome
from django_shedlock.providers import get_provider
from django_shedlock.states import LockState

LIST = "admin:django_shedlock_lockrecord_changelist"
CHANGE = "admin:django_shedlock_lockrecord_change"
DELETE = "admin:django_shedlock_lockrecord_delete"
RUNS = "admin:django_shedlock_lockrun_changelist"
RUN = "admin:django_shedlock_lockrun_change"
HOSTILE = "<script>alert('n')</script>"
ALL = (
    "view_lockrecord",
    "delete_lockrecord",
    "release_lockrecord",
    "extend_lockrecord",
    "view_lockrun",
)


def take(name: str, **options: timedelta) -> Lock:
    configuration = LockConfiguration(
        name, **{"lock_at_most_for": timedelta(minutes=9), **options}
    )
    lock = get_provider().acquire(configuration)
    assert isinstance(lock, Lock)
    return lock


def expire(name: str) -> None:
    LockRecord.objects.filter(name=name).update(lock_until=DatabaseNow())


def state(name: str) -> LockState:
    return get_provider().statuses(name)[0].state


def add_run(
    name: str,
    outcome: RunOutcome = RunOutcome.SUCCEEDED,
    *,
    locked_by: str = "web-1:7:a",
    provider: str = "default",
    **columns: Any,
) -> LockRun:
    run = LockRun.objects.create_running(
        name=name, provider=provider, locked_by=locked_by
    )
    LockRun.objects.filter(pk=run.pk).update(outcome=outcome, **columns)
    return run


def operator(*permissions: str) -> Client:
    user = User.objects.create_user("operator", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def ask(client: Client, *names: str, action: str = "release_selected") -> Any:
    """Choose an action for some locks, as in the list."""
    return client.post(reverse(LIST), {"action": action, "_selected_action": names})


def confirm(
    client: Client,
    name: str,
    locked_by: str,
    *,
    action: str = "release_selected",
    query: str = "",
    **fields: str,
) -> Any:
    """Send the confirmation page, with a reason unless another one is given."""
    return client.post(
        reverse(LIST) + query,
        {
            "action": action,
            "confirmed": "yes",
            "_selected_action": [name],
            "locked_by": [locked_by],
            "reason": "the pod is gone",
            **fields,
        },
        follow=True,
    )
