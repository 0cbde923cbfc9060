"""What operators did, in its list and on the pages of locks."""

from __future__ import annotations

import pytest
from django.contrib.admin.utils import quote
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_shedlock.console.models import ActionKind, ActionResult, LockAction
from tests.console.admin.reading import audit_log, html_of, names, rows, steady
from tests.support.locks import take
from tests.support.operators import (
    ACTION,
    ACTIONS,
    CHANGE,
    HOSTILE,
    operator,
    statements,
    superuser,
)
from tests.support.pages import add_action

pytestmark = pytest.mark.django_db


def test_list_has_the_newest_on_top(viewer: Client) -> None:
    """A row has time, kind, lock, result, operator, reason and detail."""
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
    html = html_of(page)
    assert [steady(row) for row in rows(html)] == [
        "INSTANT Extend second refused bob slow today "
        "web-1:7:a does not hold it any more.",
        "INSTANT Release first done alice - -",
    ]
    assert reverse(CHANGE, args=["second"]) in html


def test_list_can_be_filtered(viewer: Client) -> None:
    """The list can be filtered by what it was, by its result, and by operator."""
    add_action("b", result=ActionResult.FAILED, operator="bob")
    add_action("a", kind=ActionKind.PAUSE, reason="the node is gone")
    found = {
        "kind=pause": ["a"],
        "result=failed": ["b"],
        "operator=bob": ["b"],
        "operator=nobody": [],
        "kind=dance": [],
        "q=gone": ["a"],
        "name__exact=b": ["b"],
    }
    for query, expected in found.items():
        page = viewer.get(f"{reverse(ACTIONS)}?{query}")
        assert (query, names(page)) == (query, expected)


def test_what_a_later_version_writes_is_shown(viewer: Client) -> None:
    """A kind or a result that is not known here is shown as it is."""
    action = add_action("a", kind="juggle", result="dropped")
    for address in (reverse(ACTIONS), reverse(ACTION, args=[action.pk])):
        page = viewer.get(address).content.decode()
        assert "juggle" in page
        assert "dropped" in page


def test_page_of_an_action(viewer: Client) -> None:
    """The page of an action has the whole reason and the acquisition."""
    action = add_action("a", reason="long " * 100, locked_by="web-1:7:a")
    page = viewer.get(reverse(ACTION, args=[action.pk])).content.decode()
    assert ("long " * 100).strip() in page
    assert "web-1:7:a" in page


def test_audit_log_cannot_be_rewritten() -> None:
    """Even a superuser can't add, change or delete an action."""
    client = superuser()
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
    """A lock's page has the last five actions on it, and a link to all of them."""
    take("a")
    for number in range(6):
        add_action("a", reason=f"reason {number}.")
    add_action("other", reason="of another lock")
    add_action("a", reason="of another store", provider="second")
    page = html_of(viewer.get(reverse(CHANGE, args=["a"])))
    assert audit_log(page) == [
        f"INSTANT done Release alice reason {number}." for number in range(5, 0, -1)
    ]
    assert "of another" not in page
    assert f"{reverse(ACTIONS)}?name__exact=a" in page


def test_lock_page_without_actions_has_no_audit_log(viewer: Client) -> None:
    """The page of a lock without actions has no audit log."""
    take("a")
    page = viewer.get(reverse(CHANGE, args=["a"])).content.decode()
    assert "What operators did" not in page


def test_list_has_as_many_queries_with_more_rows(viewer: Client) -> None:
    """The list sends as many statements with more rows."""
    counts = []
    viewer.get(reverse(ACTIONS))
    for _ in range(3):
        add_action("a")
        with CaptureQueriesContext(connection) as queries:
            viewer.get(reverse(ACTIONS))
        counts.append(len(statements(queries)))
    assert len(set(counts)) == 1
    assert counts[0] < 10
