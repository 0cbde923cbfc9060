"""People who use the admin, and the pages that they open."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

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
