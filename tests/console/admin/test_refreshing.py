"""What the server answers to a page that refreshes itself."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import reverse

from tests.support.locks import take
from tests.support.operators import LIST, ask, operator

pytestmark = pytest.mark.django_db

REFRESH: Any = {"headers": {"X-Shedlock-Refresh": "yes"}}
BACKENDS = (
    "cookie.CookieStorage",
    "session.SessionStorage",
    "fallback.FallbackStorage",
)


def test_refresh_gets_the_parts_of_the_page_alone(viewer: Client) -> None:
    """There is the list with its counters and pages, but nothing around it."""
    take("billing")
    page = viewer.get(reverse(LIST), **REFRESH).content.decode()
    for part in ("shedlock-counts", "shedlock-locks", "shedlock-pages"):
        assert page.count(f'id="{part}"') == 1
    assert "billing" in page
    assert "<html" not in page
    assert "<form" not in page


@pytest.mark.parametrize("backend", BACKENDS)
def test_refresh_leaves_the_messages(chief: Client, backend: str) -> None:
    """The refresh of another tab takes nothing that an operator has to read."""
    storage = f"django.contrib.messages.storage.{backend}"
    with override_settings(MESSAGE_STORAGE=storage):
        take("billing").release()
        ask(chief, "billing")
        chief.get(reverse(LIST), **REFRESH)
        told = "is not released: nobody holds it."
        assert told in chief.get(reverse(LIST)).content.decode()
        assert told not in chief.get(reverse(LIST)).content.decode()


def test_refresh_keeps_the_filter_and_the_page(viewer: Client) -> None:
    """It is the same list."""
    take("billing")
    take("cleanup").release()
    page = viewer.get(reverse(LIST), {"state": "free"}, **REFRESH).content.decode()
    assert "cleanup" in page
    assert "billing" not in page


def test_refresh_needs_the_permission() -> None:
    """Who may not see the list gets no part of it."""
    take("billing")
    assert operator().get(reverse(LIST), **REFRESH).status_code == 403
    stranger = Client().get(reverse(LIST), **REFRESH)
    assert (stranger.status_code, stranger.content) == (302, b"")
