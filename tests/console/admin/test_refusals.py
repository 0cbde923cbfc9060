"""What the admin does not do, and how it says so."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import DELETION, LogEntry
from django.test import Client, override_settings
from django.urls import path, reverse

from django_shedlock.console.admin import LockRecordAdmin, actions, deletion
from django_shedlock.locks.states import LockState
from django_shedlock.models import (
    ActionKind,
    ActionResult,
    LockAction,
    LockRecord,
    LockRecordQuerySet,
    LockRunQuerySet,
)
from django_shedlock.providers.database.acquisition import NEVER
from tests.support.locks import add_run, state, take
from tests.support.operators import (
    CHANGE,
    DELETE,
    LIST,
    RUN,
    RUNS,
    ask,
    confirm,
    operator,
)
from tests.support.records import counted_records

HISTORY = "admin:django_shedlock_lockrecord_history"

pytestmark = pytest.mark.django_db


class OfOneTeam(LockRecordAdmin):
    """A project's own admin, which shows the locks of one team."""

    def get_queryset(self, request: Any) -> LockRecordQuerySet:
        return super().get_queryset(request).filter(name__startswith="billing")


def test_counters_count_what_the_list_shows(chief: Client) -> None:
    """A subclass whose list leaves locks out does not count them either."""
    site = admin.AdminSite(name="team")
    site.register(LockRecord, OfOneTeam)
    urls: Any = ModuleType("urls")
    urls.urlpatterns = [path("team/", site.urls)]
    for name in ("billing.invoices", "billing.reports", "search.index"):
        take(name)
    with override_settings(ROOT_URLCONF=urls):
        page: Any = chief.get("/team/django_shedlock/lockrecord/")
    [running] = page.context["shedlock_states"]
    assert (running.choice, running.locks) == ("running", 2)


NUL = "billing\0"


@pytest.mark.parametrize("page", [CHANGE, DELETE, HISTORY, RUN])
def test_nul_in_an_address(chief: Client, page: str) -> None:
    """No lock and no run has such a name: the reader is led back, as by any other."""
    take("billing")
    for answer in (
        chief.get(reverse(page, args=[NUL])),
        chief.post(reverse(page, args=[NUL]), {"post": "yes"}),
    ):
        assert answer.status_code in {302, 403}
    assert chief.get(reverse(CHANGE, args=["billing"])).status_code == 200


@pytest.mark.parametrize("page", [LIST, RUNS])
@pytest.mark.parametrize(
    "parameter", ["name", "name__exact", "locked_by", "q", "state", "host", "o"]
)
def test_nul_in_a_filter(chief: Client, page: str, parameter: str) -> None:
    """A filter that no database understands shows the list without it."""
    take("billing")
    add_run("billing")
    answer = chief.get(reverse(page), {parameter: NUL}, follow=True)
    assert answer.status_code == 200
    assert "billing" in answer.content.decode()


@pytest.mark.parametrize("action", ["release_selected", "delete_selected"])
def test_nul_in_a_posted_name(chief: Client, action: str) -> None:
    """Nothing happens to any lock."""
    lock = take("billing")
    assert ask(chief, NUL, action=action).status_code == 302
    assert confirm(chief, NUL, lock.locked_by, action=action).status_code == 200
    assert confirm(chief, "billing", NUL, action=action).status_code == 200
    assert state("billing") is LockState.RUNNING


@pytest.mark.parametrize("action", ["release_selected", "delete_selected"])
def test_selection_of_all_locks_is_not_loaded(
    chief: Client, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """Of "select all" the database sends as many locks as are refused, and no more."""
    monkeypatch.setattr(actions, "MOST_LOCKS", 2)
    monkeypatch.setattr(deletion, "MOST_LOCKS", 2)
    LockRecord.objects.bulk_create(
        LockRecord(name=f"job-{n}", locked_by="", lock_until=NEVER, locked_at=NEVER)
        for n in range(9)
    )
    everything = {
        "action": action,
        "_selected_action": ["job-1"],
        "select_across": "1",
        "post": "yes",
    }
    with counted_records(monkeypatch) as loaded:
        answer = chief.post(reverse(LIST), everything)
    assert answer.status_code == 302
    assert len(loaded) <= 3
    assert LockRecord.objects.count() == 9
    page = chief.get(reverse(LIST)).content.decode()
    assert "Select fewer locks at a time." in page


def messages_of(page: Any) -> str:
    return " ".join(str(message) for message in page.context["messages"])


def test_deletion_of_a_held_lock_says_who_holds_it(chief: Client) -> None:
    """Its page says why there is no button, and its address leads there."""
    lock = take("billing")
    note = f"This lock can't be deleted while {lock.locked_by} holds it."
    page = chief.get(reverse(CHANGE, args=["billing"])).content.decode()
    assert note in page
    for answer in (
        chief.get(reverse(DELETE, args=["billing"]), follow=True),
        chief.post(reverse(DELETE, args=["billing"]), {"post": "yes"}, follow=True),
        delete(chief, "billing"),
    ):
        assert f"is not deleted: {lock.locked_by} holds it" in messages_of(answer)
    assert not LogEntry.objects.exists()
    lock.release()
    page = chief.get(reverse(CHANGE, args=["billing"])).content.decode()
    assert "be deleted while" not in page


def test_held_lock_is_no_secret_of_the_delete_page() -> None:
    """Without the permission to delete, the page says no more than no."""
    client = operator("view_lockrecord")
    take("billing")
    assert client.get(reverse(DELETE, args=["billing"])).status_code == 403
    page = client.get(reverse(CHANGE, args=["billing"])).content.decode()
    assert "be deleted while" not in page


def test_deletion_is_logged_and_told(chief: Client) -> None:
    """What was deleted is in log and trail, by the page and by the action."""
    for name in ("a", "b", "c"):
        take(name).release()
    page = chief.post(reverse(DELETE, args=["a"]), {"post": "yes"}, follow=True)
    assert "was deleted successfully" in messages_of(page)
    asked = ask(chief, "b", "c", action="delete_selected")
    assert "Are you sure" in asked.content.decode()
    page = delete(chief, "b", "c")
    assert "2 locks are deleted." in messages_of(page)
    logged = LogEntry.objects.order_by("object_id").values_list(
        "object_id", "action_flag"
    )
    assert list(logged) == [("a", DELETION), ("b", DELETION), ("c", DELETION)]
    trail = LockAction.objects.order_by("name").values_list("name", "kind", "operator")
    assert list(trail) == [(name, ActionKind.DELETE, "operator") for name in "abc"]
    assert not LockRecord.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_deletion_is_done_when_it_is_committed(
    chief: Client, monkeypatch: pytest.MonkeyPatch, *, is_rolled_back: bool
) -> None:
    """If the page fails after it, the record is there, and the trail says no more."""

    def fail(*args: Any, **options: Any) -> Any:
        raise ZeroDivisionError

    take("job").release()
    chief.raise_request_exception = False
    if is_rolled_back:
        monkeypatch.setattr(LockRecordAdmin, "response_delete", fail)
    chief.post(reverse(DELETE, args=["job"]), {"post": "yes"})
    assert LockRecord.objects.exists() is is_rolled_back
    results = LockAction.objects.values_list("result", flat=True)
    assert (ActionResult.DONE in results) is not is_rolled_back


def delete(client: Client, *names: str) -> Any:
    chosen = {"action": "delete_selected", "_selected_action": names, "post": "yes"}
    return client.post(reverse(LIST), chosen, follow=True)


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another worker acquire the lock "raced" just before it is deleted."""
    record_abandoned = LockRunQuerySet.record_abandoned

    def late(runs: LockRunQuerySet) -> int:
        take("raced")
        return record_abandoned(runs)

    monkeypatch.setattr(LockRunQuerySet, "record_abandoned", late)


@pytest.mark.usefixtures("race")
def test_deletion_that_lost_a_race(chief: Client) -> None:
    """The lock stays; the operator learns who holds it, and nothing is logged."""
    take("raced").release()
    page = chief.post(reverse(DELETE, args=["raced"]), {"post": "yes"}, follow=True)
    holder = LockRecord.objects.get().locked_by
    assert messages_of(page) == (f"Lock “raced” is not deleted: {holder} holds it.")
    assert not LogEntry.objects.exists()


@pytest.mark.usefixtures("race")
def test_selection_of_which_one_lost_a_race(chief: Client) -> None:
    """The others are deleted and logged, and counted without it."""
    take("raced").release()
    take("other").release()
    told = messages_of(delete(chief, "other", "raced"))
    assert "Lock “raced” is not deleted: " in told
    assert "1 lock is deleted." in told
    assert LogEntry.objects.get().object_id == "other"
    assert LockRecord.objects.get().name == "raced"
