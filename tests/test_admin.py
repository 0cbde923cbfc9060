"""The admin: what an operator sees, and what only some may do."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_shedlock import Lock, LockConfiguration
from django_shedlock.functions import DatabaseNow
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.states import LockState

pytestmark = pytest.mark.django_db

LIST = "admin:django_shedlock_lockrecord_changelist"
CHANGE = "admin:django_shedlock_lockrecord_change"
DELETE = "admin:django_shedlock_lockrecord_delete"
HOSTILE = "<script>alert('n')</script>"


def take(name: str, **options: timedelta) -> Lock:
    configuration = LockConfiguration(
        name, **{"lock_at_most_for": timedelta(minutes=9), **options}
    )
    lock = get_provider().acquire(configuration)
    assert isinstance(lock, Lock)
    return lock


def state(name: str) -> LockState:
    return get_provider().statuses(name)[0].state


def operator(*permissions: str) -> Client:
    user = User.objects.create_user("operator", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def releaser() -> Client:
    return operator("view_lockrecord", "release_lockrecord")


@pytest.fixture
def viewer() -> Client:
    return operator("view_lockrecord")


def ask(client: Client, *names: str) -> Any:
    return client.post(
        reverse(LIST), {"action": "release_selected", "_selected_action": names}
    )


def confirm(client: Client, name: str, locked_by: str) -> Any:
    return client.post(
        reverse(LIST),
        {
            "action": "release_selected",
            "confirmed": "yes",
            "_selected_action": [name],
            "locked_by": [locked_by],
        },
        follow=True,
    )


def test_list_shows_each_state(viewer: Client) -> None:
    """Running, held at least, expired and free locks are told apart."""
    take("a.running")
    take("b.kept", lock_at_least_for=timedelta(minutes=1)).release()
    take("c.expired")
    LockRecord.objects.filter(name="c.expired").update(lock_until=DatabaseNow())
    take("d.free").release()
    page = viewer.get(reverse(LIST)).content.decode()
    assert re.findall(r'field-current_state">([^<]+)<', page) == [
        "running",
        "held at least",
        "expired",
        "free",
    ]


def test_list_shows_holder_and_remaining_lease(viewer: Client) -> None:
    """The list tells who holds a lock and for how long at the most."""
    lock = take("billing")
    page = viewer.get(reverse(LIST)).content.decode()
    assert lock.locked_by in page
    assert '<td class="field-remaining_lease">8m59s</td>' in page or (
        '<td class="field-remaining_lease">9m</td>' in page
    )


@pytest.mark.parametrize("wanted", list(LockState))
def test_filter_by_state(viewer: Client, wanted: LockState) -> None:
    """The filter leaves only the locks in that state."""
    take("running")
    take("held at least", lock_at_least_for=timedelta(minutes=1)).release()
    take("expired")
    LockRecord.objects.filter(name="expired").update(lock_until=DatabaseNow())
    take("free").release()
    response = viewer.get(reverse(LIST), {"state": wanted.value})
    assert [r.name for r in response.context["cl"].queryset] == [wanted.value]


def test_search_by_name_and_holder(viewer: Client) -> None:
    """The search finds locks by a part of their name or holder."""
    take("billing.digest")
    other = take("cleanup")
    by_name = viewer.get(reverse(LIST), {"q": "digest"}).context["cl"].queryset
    by_holder = viewer.get(reverse(LIST), {"q": other.locked_by}).context["cl"].queryset
    assert [r.name for r in by_name] == ["billing.digest"]
    assert [r.name for r in by_holder] == ["cleanup"]


def test_list_takes_the_same_queries_for_any_number_of_locks(viewer: Client) -> None:
    """The number of queries does not grow with the number of rows."""
    viewer.get(reverse(LIST))
    counts = []
    for name in ("first", "second", "third"):
        take(name)
        with CaptureQueriesContext(connection) as queries:
            viewer.get(reverse(LIST))
        counts.append(len(queries))
    assert len(set(counts)) == 1


def test_nobody_can_add_or_change_a_lock() -> None:
    """Even a superuser only views a lock."""
    User.objects.create_superuser("root", password="x")
    client = Client()
    client.login(username="root", password="x")
    take("billing")
    page = client.get(reverse(CHANGE, args=["billing"]))
    assert page.status_code == 200
    assert 'name="_save"' not in page.content.decode()
    assert client.post(reverse(CHANGE, args=["billing"]), {}).status_code == 403
    assert (
        client.get(reverse("admin:django_shedlock_lockrecord_add")).status_code == 403
    )


def test_held_lock_cannot_be_deleted() -> None:
    """A held lock stays, by the delete page and by the delete action."""
    client = operator("view_lockrecord", "delete_lockrecord")
    take("billing")
    assert (
        client.post(reverse(DELETE, args=["billing"]), {"post": "yes"}).status_code
        == 403
    )
    client.post(
        reverse(LIST),
        {"action": "delete_selected", "_selected_action": ["billing"], "post": "yes"},
    )
    assert state("billing") is LockState.RUNNING


def test_free_lock_can_be_deleted() -> None:
    """The record of a lock that nobody holds can be cleared away."""
    client = operator("view_lockrecord", "delete_lockrecord")
    take("old").release()
    client.post(reverse(DELETE, args=["old"]), {"post": "yes"})
    assert not LockRecord.objects.exists()


def test_lock_taken_after_the_delete_page_stays(rf: Any) -> None:
    """Deleting is conditional on the lock being free at that instant."""
    from django.contrib import admin

    model_admin = admin.site._registry[LockRecord]
    take("old").release()
    record = model_admin.get_queryset(rf.get("/")).get(name="old")
    take("old")
    model_admin.delete_model(rf.post("/"), record)
    assert state("old") is LockState.RUNNING


def test_release_asks_first(releaser: Client) -> None:
    """The action shows what may still run, and changes nothing yet."""
    lock = take("billing")
    page = ask(releaser, "billing")
    assert page.status_code == 200
    assert "may still be running" in page.content.decode()
    assert lock.locked_by in page.content.decode()
    assert state("billing") is LockState.RUNNING


def test_confirmed_release_frees_the_lock(releaser: Client) -> None:
    """After the confirmation the lock is free, and the admin's log says who did it."""
    lock = take("billing")
    page = confirm(releaser, "billing", lock.locked_by)
    assert "is released" in page.content.decode()
    assert state("billing") is LockState.FREE
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user.get_username()) == ("billing", "operator")
    assert lock.locked_by in entry.change_message


def test_release_frees_a_lock_that_is_only_kept(releaser: Client) -> None:
    """A lock kept by lock_at_least_for is in nobody's way any more."""
    lock = take("billing", lock_at_least_for=timedelta(minutes=1))
    lock.release()
    confirm(releaser, "billing", lock.locked_by)
    assert state("billing") is LockState.FREE


def test_release_spares_a_holder_that_came_in_between(releaser: Client) -> None:
    """The confirmation is for the acquisition that the operator saw."""
    seen = take("billing")
    seen.release()
    take("billing")
    page = confirm(releaser, "billing", seen.locked_by)
    assert "is not released" in page.content.decode()
    assert state("billing") is LockState.RUNNING
    assert not LogEntry.objects.exists()


def test_release_needs_its_permission(viewer: Client) -> None:
    """Somebody who may only view has no action, and a forged POST does nothing."""
    lock = take("billing")
    assert "release_selected" not in viewer.get(reverse(LIST)).content.decode()
    confirm(viewer, "billing", lock.locked_by)
    assert state("billing") is LockState.RUNNING
    assert not LogEntry.objects.exists()


def test_release_by_get_does_nothing(releaser: Client) -> None:
    """Following a link never releases a lock."""
    lock = take("billing")
    releaser.get(
        reverse(LIST),
        {
            "action": "release_selected",
            "confirmed": "yes",
            "_selected_action": "billing",
            "locked_by": lock.locked_by,
        },
    )
    assert state("billing") is LockState.RUNNING


def test_names_are_escaped(releaser: Client) -> None:
    """A name with markup is shown as text on every page."""
    take(HOSTILE)
    pages = [releaser.get(reverse(LIST)), ask(releaser, HOSTILE)]
    assert all(page.status_code == 200 for page in pages)
    assert all(HOSTILE not in page.content.decode() for page in pages)
    assert "&lt;script&gt;" in pages[1].content.decode()
