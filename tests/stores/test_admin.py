"""What the admin shows of locks that are not in a database."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_shedlock import execute
from django_shedlock.console.operators import AuditedAction, ReleaseLock
from django_shedlock.providers import get_provider
from tests.stores.conftest import DATABASE, MEMORY, RECORDED
from tests.support.locks import configure, force_release, take
from tests.support.operators import ACTIONS, ALL, LIST, RUNS, operator

pytestmark = pytest.mark.django_db

ELSEWHERE = (
    "Only locks in databases are shown here, not those of {}. "
    "“python manage.py shedlock --provider {} list” shows them."
)


@pytest.fixture
def chief() -> Client:
    return operator(*ALL)


def text(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return unescape(response.content.decode())


def listed(client: Client, page: str, query: str = "") -> list[str]:
    """Return the locks of the rows that a list shows."""
    response: Any = client.get(reverse(page) + query)
    return [row.name for row in response.context["cl"].result_list]


def test_list_says_whose_locks_it_does_not_show(store: str, chief: Client) -> None:
    """An empty list is no claim about locks that are elsewhere."""
    take("job")
    page = text(chief, reverse(LIST))
    is_shown = store == "database"
    assert listed(chief, LIST) == ["job"] * is_shown
    assert (ELSEWHERE.format("default", "default") in page) != is_shown
    assert "There are no locks yet" not in page


def test_list_of_several_providers(settings: Any, chief: Client) -> None:
    """The list names all providers that it leaves out, even a broken one."""
    settings.SHEDLOCK_PROVIDERS = {
        "memory": {"BACKEND": MEMORY},
        "default": {"BACKEND": DATABASE},
        "broken": {"BACKEND": "no.such.Provider"},
        "reports": {"BACKEND": MEMORY},
    }
    take("job")
    page = text(chief, reverse(LIST))
    assert ELSEWHERE.format("memory, broken, reports", "memory") in page
    assert "There are no locks yet" not in page
    assert listed(chief, LIST) == ["job"]
    force_release(get_provider(), "job")
    settings.SHEDLOCK_PROVIDERS = {"default": {"BACKEND": DATABASE}}
    assert "Only locks in databases" not in text(chief, reverse(LIST))


@pytest.mark.parametrize("away", ["redis", "etcd", "zookeeper"], indirect=True)
@pytest.mark.parametrize("page", [LIST, RUNS, ACTIONS])
def test_store_that_is_down_hides_no_list(
    away: str, settings: Any, chief: Client, page: str
) -> None:
    """The lists show what is in databases, whatever other stores do."""
    settings.SHEDLOCK_PROVIDERS = {
        **settings.SHEDLOCK_PROVIDERS,
        "default": {"BACKEND": DATABASE},
    }
    execute(lambda: None, "job")
    ReleaseLock(spare_running=True).carry_out(AuditedAction(get_provider(), "job"))
    assert listed(chief, page) == ["job"]


@pytest.mark.each_store
@pytest.mark.parametrize("page", [RUNS, ACTIONS])
def test_history_has_all_stores(settings: Any, chief: Client, page: str) -> None:
    """Rows of each store are shown, and a filter offers each provider."""
    recorded = {"BACKEND": MEMORY, "OPTIONS": RECORDED}
    settings.SHEDLOCK_PROVIDERS = {
        "default": {"BACKEND": DATABASE},
        "memory": recorded,
        "reports": {"BACKEND": MEMORY},
    }
    for alias in ("default", "memory"):
        execute(lambda: None, f"of {alias}", provider=alias)
        provider = get_provider(alias)
        take(configure(f"of {alias}"), provider)
        assert ReleaseLock().carry_out(AuditedAction(provider, f"of {alias}"))
    # A release by force accounts for the run, which has a row, too.
    rows = 2 if page == RUNS else 1
    assert sorted(listed(chief, page)) == ["of default"] * rows + ["of memory"] * rows
    assert listed(chief, page, "?provider=memory") == ["of memory"] * rows
    assert listed(chief, page, "?provider=default") == ["of default"] * rows
    shown = text(chief, reverse(page))
    choices = re.findall(r'href="\?(?:provider=(\w+))?"[^>]*>(\w+)</a>', shown)
    assert choices[:3] == [("", "All"), ("default", "default"), ("memory", "memory")]
    links = re.findall(r'lockrecord/([^"]+)/change/', shown)
    assert links == ["of%20default"] * rows


@pytest.mark.django_db(databases=["default", "other"])
def test_history_in_another_database(settings: Any, chief: Client) -> None:
    """A provider's runs are read from the database that it writes them to."""
    options = {"history_database": "other"}
    settings.SHEDLOCK_PROVIDERS = {
        "default": {"BACKEND": DATABASE},
        "reports": {"BACKEND": DATABASE, "OPTIONS": {"using": "other"}},
        "memory": {"BACKEND": MEMORY, "OPTIONS": options},
    }
    execute(lambda: None, "job", provider="default")
    execute(lambda: None, "import", provider="memory")
    assert listed(chief, RUNS) == ["job"]
    assert listed(chief, RUNS, "?provider=reports") == []
    assert listed(chief, RUNS, "?provider=memory") == ["import"]
