"""People who use the admin, and the pages that they open."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import unescape
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

LIST = "admin:django_shedlock_lockrecord_changelist"
CHANGE = "admin:django_shedlock_lockrecord_change"
TIMELINE = "admin:django_shedlock_lockrecord_timeline"
DELETE = "admin:django_shedlock_lockrecord_delete"
RUNS = "admin:django_shedlock_lockrun_changelist"
RUN = "admin:django_shedlock_lockrun_change"
ACTIONS = "admin:shedlock_console_lockaction_changelist"
ACTION = "admin:shedlock_console_lockaction_change"
HOSTILE = "<script>alert('n')</script>"
ALL = (
    "view_lockrecord",
    "release_lockrecord",
    "extend_lockrecord",
    "pause_lockrecord",
    "acknowledge_lockrecord",
    "run_lockrecord",
    "view_lockrun",
    "view_lockaction",
)


def operator(*permissions: str, name: str = "operator") -> Client:
    """Return the client of a new user who has these permissions."""
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return logged_in(user)


def superuser() -> Client:
    """Return the client of a new user who has all permissions, also later ones."""
    return logged_in(User.objects.create_superuser("root"))


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def ask(
    client: Client, *names: str, action: str = "release_selected", follow: bool = False
) -> Any:
    """Choose an action for some locks, as in the list."""
    chosen = {"action": action, "_selected_action": names}
    return client.post(reverse(LIST), chosen, follow=follow)


def confirm(
    client: Client,
    name: str,
    locked_by: str,
    *,
    action: str = "release_selected",
    query: str = "",
    follow: bool = True,
    **fields: str,
) -> Any:
    """
    Send the confirmation page, with a reason unless another one is given.

    For an action that lets a job start again, its process is said to be gone.
    """
    starts_job = action in {"release_selected", "resume_selected"}
    assured = {"process_is_gone": "on"} if starts_job else {}
    return client.post(
        reverse(LIST) + query,
        {
            "action": action,
            "confirmed": "yes",
            "_selected_action": [name],
            "locked_by": [locked_by],
            "reason": "the pod is gone",
            **assured,
            **fields,
        },
        follow=follow,
    )


def content(page: Any) -> str:
    """Return the text of the content of an answer or of its HTML, as people read it."""
    whole = page if isinstance(page, str) else page.content.decode()
    _, html = whole.split('id="content-main"', 1)
    _, html = html.split(">", 1)
    text = re.sub(r"<[^>]*>", "", html.partition('<div class="submit-row"')[0])
    return unescape(" ".join(text.split()))


def statements(queries: Iterable[Any]) -> list[str]:
    """Return what a page asked; only a test's own transaction needs savepoints."""
    return [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]
