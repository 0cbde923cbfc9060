"""What operators did, in its list and on the pages of locks."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_shedlock.console.models import ActionKind, ActionResult, LockAction
from tests.support.locks import take
from tests.support.operators import (
    ACTION,
    ACTIONS,
    CHANGE,
    HOSTILE,
    operator,
    statements,
)
from tests.support.pages import add_action

pytestmark = pytest.mark.django_db


def names(page: Any) -> list[str]:
    return [action.name for action in page.context["cl"].result_list]


def test_list_has_the_newest_on_top(viewer: Client) -> None:
    """Each action has its lock, operator, reason, result and detail."""
    add_action("first")
    add_action(
        "second",
        kind=ActionKind.EXTEND,
        result=ActionResult.REFUSED,
        operator="bob",
        reason="slow today",
        detail="web-1:7:a does not hold it any more.",
    )
    page = viewer.get(reverse(ACTIONS))
    assert names(page) == ["second", "first"]
    html = page.content.decode()
    told = ("extend", "refused", "bob", "slow today", "web-1:7:a does not hold it")
    for shown in (*told, reverse(CHANGE, args=["second"])):
        assert shown in html


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"kind": "pause"}, ["a"]),
        ({"result": "failed"}, ["b"]),
        ({"operator": "bob"}, ["b"]),
        ({"operator": "nobody"}, []),
        ({"kind": "dance"}, []),
        ({"q": "gone"}, ["a"]),
        ({"name__exact": "b"}, ["b"]),
    ],
)
def test_filters(viewer: Client, query: dict[str, str], found: list[str]) -> None:
    """The list can be filtered by what it was, by its result, and by operator."""
    add_action("b", result=ActionResult.FAILED, operator="bob")
    add_action("a", kind=ActionKind.PAUSE, reason="the node is gone")
    assert names(viewer.get(reverse(ACTIONS), query)) == found


def test_what_a_later_version_writes_is_shown(viewer: Client) -> None:
    """A kind or a result that is not known here is shown as it is."""
    action = add_action("a", kind="juggle", result="dropped")
    for address in (reverse(ACTIONS), reverse(ACTION, args=[action.pk])):
        page = viewer.get(address).content.decode()
        assert "juggle" in page
        assert "dropped" in page


def test_page_of_an_action(viewer: Client) -> None:
    """It has the whole reason and the acquisition that it was about."""
    action = add_action("a", reason="long " * 100, locked_by="web-1:7:a")
    page = viewer.get(reverse(ACTION, args=[action.pk])).content.decode()
    assert ("long " * 100).strip() in page
    assert "web-1:7:a" in page


def test_audit_log_cannot_be_rewritten() -> None:
    """Even a superuser can't add, change or delete an action."""
    User.objects.create_superuser("root", password="x")
    client = Client()
    client.login(username="root", password="x")
    action = add_action("a")
    before = LockAction.objects.values().get()
    base = "admin:shedlock_console_lockaction"
    assert client.get(reverse(f"{base}_add")).status_code == 403
    page = reverse(ACTION, args=[action.pk])
    assert client.post(page, {"result": "failed"}).status_code == 403
    deleting = client.post(reverse(f"{base}_delete", args=[action.pk]), {"post": "yes"})
    assert deleting.status_code == 403
    client.post(
        reverse(ACTIONS),
        {"action": "delete_selected", "_selected_action": [action.pk], "post": "yes"},
    )
    assert LockAction.objects.values().get() == before


def test_audit_log_needs_its_permission() -> None:
    """Who may only see locks and runs sees nothing of what operators did."""
    client = operator("view_lockrecord", "view_lockrun")
    take("a")
    action = add_action("a", reason="secret")
    assert client.get(reverse(ACTIONS)).status_code == 403
    assert client.get(reverse(ACTION, args=[action.pk])).status_code == 403
    assert "secret" not in client.get(reverse(CHANGE, args=["a"])).content.decode()


def test_hostile_texts_are_escaped(viewer: Client) -> None:
    """Markup in names, operators, reasons and details is shown as text."""
    take(HOSTILE)
    action = add_action(HOSTILE, operator=HOSTILE, reason=HOSTILE, detail=HOSTILE)
    lock = reverse(CHANGE, args=[quote(HOSTILE)])
    for address in (reverse(ACTIONS), reverse(ACTION, args=[action.pk]), lock):
        page = viewer.get(address).content.decode()
        assert HOSTILE not in page
        assert "&lt;script&gt;" in page


def test_lock_page_has_the_last_actions(viewer: Client) -> None:
    """Only those on this lock, the newest first, and a link to all of them."""
    take("a")
    for number in range(6):
        add_action("a", reason=f"reason {number}.")
    add_action("other", reason="of another lock")
    add_action("a", reason="of another store", provider="second")
    response = viewer.get(reverse(CHANGE, args=["a"]))
    reasons = [line["row"].reason for line in response.context["shedlock_audit_log"]]
    assert reasons == [f"reason {number}." for number in range(5, 0, -1)]
    page = response.content.decode()
    assert "of another" not in page
    assert f"{reverse(ACTIONS)}?name__exact=a" in page


def test_lock_page_without_actions_has_no_audit_log(viewer: Client) -> None:
    """Where nobody did anything nothing is said of it."""
    take("a")
    page = viewer.get(reverse(CHANGE, args=["a"])).content.decode()
    assert "What operators did" not in page


def test_list_has_as_many_queries_with_more_rows(viewer: Client) -> None:
    """No row asks for anything more."""
    counts = []
    viewer.get(reverse(ACTIONS))
    for _ in range(3):
        add_action("a")
        with CaptureQueriesContext(connection) as queries:
            viewer.get(reverse(ACTIONS))
        counts.append(len(statements(queries)))
    assert len(set(counts)) == 1
    assert counts[0] < 10
