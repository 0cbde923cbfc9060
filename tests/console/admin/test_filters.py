"""Several database providers: which one a page shows, and how to get to others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import reverse

from django_shedlock import execute, hold
from django_shedlock.models import LockRun
from django_shedlock.providers import get_provider
from tests.support.locks import (
    Broken,
    add_run,
    status_of,
    take,
)
from tests.support.operators import CHANGE, LIST, RUNS, confirm, operator

pytestmark = pytest.mark.django_db(databases=["default", "other"], transaction=True)

DATABASE = "django_shedlock.providers.database.DatabaseLockProvider"
ACTIONS = "admin:shedlock_console_lockaction_changelist"
OTHER = "?provider=reports"


@pytest.fixture(autouse=True)
def _providers() -> Iterator[None]:
    with override_settings(
        SHEDLOCK_PROVIDERS={
            "memory": {
                "BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"
            },
            "default": {"BACKEND": DATABASE},
            "reports": {"BACKEND": DATABASE, "OPTIONS": {"using": "other"}},
            "twin": {"BACKEND": DATABASE},
        }
    ):
        yield


def ran() -> None:
    """Do nothing, as a job."""


def rows(page: Any) -> list[str]:
    return [str(row) for row in page.context["cl"].result_list]


REDIS = "django_shedlock.providers.redis.RedisLockProvider"


@pytest.mark.each_store
@override_settings(
    SHEDLOCK_PROVIDERS={
        "default": {"BACKEND": DATABASE},
        "fast": {
            "BACKEND": REDIS,
            "OPTIONS": {"url": "redis://127.0.0.1:1/0", "history_database": "default"},
        },
    }
)
def test_runs_of_a_lock_are_those_of_its_provider(chief: Client) -> None:
    """A lock's page leads to its own provider's runs, not to those of a namesake."""
    execute(ran, "billing")
    add_run("billing", provider="fast")
    page = chief.get(reverse(CHANGE, args=["billing"]))
    leads = set(re.findall(r'href="([^"]*name__exact=billing[^"]*)"', text(page)))
    assert len(leads) >= 2
    for address in leads:
        found: Any = chief.get(unescape(address))
        shown = {each.provider for each in found.context["cl"].result_list}
        assert shown == ({"default"} if "lockrun" in address else set())


@override_settings(
    SHEDLOCK_PROVIDERS={
        "default": {
            "BACKEND": REDIS,
            "OPTIONS": {"url": "redis://127.0.0.1:1/0", "history_database": "other"},
        }
    }
)
def test_runs_of_a_store_without_records(chief: Client) -> None:
    """The runs of a store without records are found in its history's database."""
    add_run("billing", using="other")
    assert rows(chief.get(reverse(RUNS))) != []


def test_list_says_which_provider_it_shows(chief: Client) -> None:
    """The list shows the first provider; a filter marks it and leads to the others."""
    take("billing")
    take("monthly", get_provider("reports"))
    page: Any = chief.get(reverse(LIST))
    assert rows(page) == ["billing"]
    choices = re.findall(r'<li class="selected">\s*<a[^>]*>([^<]*)', text(page))
    assert "default" in choices
    assert "provider=reports" in text(page)
    page = chief.get(reverse(LIST) + OTHER)
    assert rows(page) == ["monthly"]
    choices = re.findall(r'<li class="selected">\s*<a[^>]*>([^<]*)', text(page))
    assert "reports" in choices


def text(page: Any) -> str:
    return unescape(page.content.decode())


@pytest.mark.parametrize("alias", ["nobody", "memory", "", "default\0"])
def test_unknown_provider_is_the_first(chief: Client, alias: str) -> None:
    """An unknown provider, or one without a database, shows the first one."""
    take("billing")
    page = chief.get(reverse(LIST), {"provider": alias}, follow=True)
    assert rows(page) == ["billing"]


def test_one_provider_is_no_choice(chief: Client) -> None:
    """With one provider, no page offers a choice."""
    with override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": DATABASE}}):
        take("billing")
        for address in (reverse(LIST), reverse(CHANGE, args=["billing"])):
            assert "provider=" not in text(chief.get(address))


def test_links_keep_the_provider(chief: Client) -> None:
    """Each address of a list, a lock and its runs leads on in the same database."""
    with pytest.raises(Broken), hold("monthly", provider="reports"):
        raise Broken
    page: Any = chief.get(reverse(LIST) + OTHER)
    lock = reverse(CHANGE, args=["monthly"])
    run = LockRun.objects.using("other").get()
    run_page = reverse("admin:django_shedlock_lockrun_change", args=[run.pk])
    assert f"{run_page}{OTHER}" in text(page)
    [link] = re.findall(rf'href="({lock}[^"]*)"', text(page))
    page = chief.get(link)
    assert page.status_code == 200
    links = re.findall(r'(?:href|action)="(/admin/django_shedlock/[^"]+)"', text(page))
    inside = [each for each in links if re.search(r"/(lockrun|lockaction)/.", each)]
    assert any(each.startswith(run_page) for each in inside)
    assert all("provider=reports" in each for each in inside), inside
    assert f'action="{reverse(LIST)}{OTHER}"' in text(page)
    assert page.context["subtitle"] == "provider reports"
    assert "<h2>provider reports</h2>" in text(page)
    for address in (run_page + OTHER, reverse(RUNS) + OTHER):
        assert f"{lock}{OTHER}" in text(chief.get(address))


def test_action_is_for_the_chosen_provider(chief: Client) -> None:
    """An action leaves the lock of the same name in another provider alone."""
    first, other = take("job"), take("job", get_provider("reports"))
    chosen = {"action": "release_selected", "_selected_action": ["job"]}
    page: Any = chief.post(reverse(LIST) + OTHER, chosen)
    assert other.locked_by in text(page)
    assert first.locked_by not in text(page)
    assert "<h2>provider reports</h2>" in text(page)
    page = confirm(chief, "job", other.locked_by, query=OTHER)
    assert page.request["QUERY_STRING"] == "provider=reports"
    assert not status_of(get_provider("reports"), "job").state.is_held
    assert status_of(get_provider("default"), "job").state.is_held
    assert "job" in text(chief.get(reverse(ACTIONS) + OTHER))


def test_runs_of_providers_that_share_a_database(chief: Client) -> None:
    """Providers that share a database have the same locks, and runs of their own."""
    execute(lambda: None, "job", provider="default")
    execute(lambda: None, "job", provider="twin")
    for alias in ("default", "twin"):
        assert rows(chief.get(reverse(LIST), {"provider": alias})) == ["job"]
        runs: Any = chief.get(reverse(RUNS), {"provider": alias})
        assert [run.provider for run in runs.context["cl"].result_list] == [alias]


def test_choice_needs_the_same_permissions() -> None:
    """Another provider's locks are no way around a permission."""
    lock = take("job", get_provider("reports"))
    client = operator("view_lockrecord")
    confirm(client, "job", lock.locked_by, query=OTHER)
    assert status_of(get_provider("reports"), "job").state.is_held
    assert Client().get(reverse(LIST) + OTHER).status_code == 302
