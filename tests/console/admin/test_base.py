"""All pages: when the database fails, when they refresh, and with odd requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.admin.models import LogEntry
from django.db import OperationalError, connection, connections
from django.test import Client, override_settings
from django.urls import reverse

from django_shedlock.console.models import LockAction
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.status import LockState
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from tests.support.bridges import Bridge, bridge
from tests.support.locks import add_run, configure, state, status_of, take
from tests.support.operators import (
    ACTIONS,
    CHANGE,
    DELETE,
    LIST,
    RUN,
    RUNS,
    ask,
    confirm,
    operator,
)
from tests.support.pages import add_action

HISTORY = "admin:django_shedlock_lockrecord_history"
NUL = "billing\0"
REFRESH: Any = {"headers": {"X-Shedlock-Refresh": "yes"}}
BACKENDS = (
    "cookie.CookieStorage",
    "session.SessionStorage",
    "fallback.FallbackStorage",
)
OTHER = {
    "default": {
        "BACKEND": "django_shedlock.providers.database.DatabaseLockProvider",
        "OPTIONS": {"using": "other"},
    }
}


@pytest.fixture
def to_locks() -> Iterator[Bridge]:
    """Keep the locks in another database than the users, behind a bridge."""
    with bridge() as built, override_settings(SHEDLOCK_PROVIDERS=OTHER):
        other = connections["other"]
        other.close()
        with patch.dict(other.settings_dict, built.address):
            yield built
            other.close()


@pytest.mark.django_db
def test_page_says_that_the_database_failed(viewer: Client) -> None:
    """The page says in a sentence what to look at, and is no error of the site."""

    def fail(execute: Any, sql: str, *arguments: Any) -> Any:
        if re.search(r"FROM .shedlock\b", sql):
            raise OperationalError("disk I/O error: <shedlock>")
        return execute(sql, *arguments)

    for address in (reverse(LIST), reverse(CHANGE, args=["job"])):
        with connection.execute_wrapper(fail):
            answer = viewer.get(address)
        page = answer.content.decode()
        assert answer.status_code == 503
        assert "The database “default” of the locks failed" in page
        assert "disk I/O error: &lt;shedlock&gt;" in page
        assert "did `python manage.py migrate` run on it?" in page


def text(answer: Any) -> str:
    page: str = answer.content.decode()
    return page


@pytest.mark.django_db
def test_page_says_what_the_store_said(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the provider has its sentence already: nothing is added to it."""

    def fail(self: Any, *arguments: Any) -> None:
        raise LockProviderError("Could not read <the locks> in database 'default'.")

    monkeypatch.setattr(DatabaseLockProvider, "statuses", fail)
    answer = viewer.get(reverse(LIST))
    page = answer.content.decode()
    assert answer.status_code == 503
    assert "The locks can&#x27;t be read" in page
    assert "The database “default” of the locks failed" in page
    said = "Could not read &lt;the locks&gt; in database &#x27;default&#x27;."
    assert re.search(rf">\s*{re.escape(said)}\s*<", page)


@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
class TestStoreIsAway:
    """With real servers, and the users' database still there."""

    def test_pages_say_so(self, to_locks: Bridge) -> None:
        """All lists and pages say that the store is away."""
        client = operator("view_lockrecord", "view_lockrun", "view_lockaction")
        take(configure())
        to_locks.close()
        pages = [reverse(CHANGE, args=["job"]), reverse(RUN, args=[1])]
        for address in (*map(reverse, [LIST, RUNS, ACTIONS]), *pages):
            answer = client.get(address)
            assert answer.status_code == 503
            told = re.search(
                r"The database “other”( of the locks)? failed", text(answer)
            )
            assert bool(told and told[1]) is ("lockrecord" in address)

    def test_confirmed_action_claims_nothing(
        self, to_locks: Bridge, caplog: pytest.LogCaptureFixture
    ) -> None:
        """If the store fails midway, operator and log learn that nobody knows."""
        client = operator("view_lockrecord", "release_lockrecord")
        lock = take(configure())
        release = DatabaseLockProvider.replace

        def break_first(self: DatabaseLockProvider, *args: Any, **how: Any) -> bool:
            to_locks.close()
            return release(self, *args, **how)

        with patch.object(DatabaseLockProvider, "replace", break_first):
            answer = confirm(client, "job", lock.locked_by)
        page = answer.content.decode()
        assert answer.status_code == 503
        assert "Nobody knows whether lock" in page
        assert "Nobody knows" in LogEntry.objects.get().change_message
        connections["other"].close()
        with patch.dict(connections["other"].settings_dict, to_locks.server_address):
            assert status_of(get_provider(), "job").state is LockState.RUNNING
            assert not LockAction.objects.using("other").exists()
        assert "The audit log lacks an action on lock 'job'" in caplog.text


@pytest.mark.django_db
def test_refresh_gets_the_parts_of_the_page_alone(viewer: Client) -> None:
    """A refresh gets the list with its headline, states and pages, and nothing else."""
    take("billing")
    page = viewer.get(reverse(LIST), **REFRESH).content.decode()
    for part in ("headline", "attention", "states", "locks", "pages"):
        assert page.count(f'id="shedlock-{part}"') == 1
    assert page.count("data-shedlock-refresh>") == 5
    assert "billing" in page
    assert "<html" not in page
    assert "<form" not in page


@pytest.mark.django_db
def test_refresh_of_a_deleted_lock_leaves_no_message(viewer: Client) -> None:
    """An open tab asks every ten seconds; a person who asks is told once."""
    address = reverse(CHANGE, args=["job"])
    for _ in range(3):
        assert viewer.get(address, **REFRESH).status_code == 302
    page = viewer.get(address, follow=True).content.decode()
    assert page.count("Perhaps it was deleted?") == 1


@pytest.mark.django_db
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


@pytest.mark.each_store
@pytest.mark.django_db
def test_refresh_keeps_the_filter_and_the_page(viewer: Client) -> None:
    """A refresh has the filter and the page of its list."""
    take("billing")
    take("cleanup").release()
    page = viewer.get(reverse(LIST), {"state": "free"}, **REFRESH).content.decode()
    assert "cleanup" in page
    assert "billing" not in page


@pytest.mark.django_db
def test_refresh_needs_the_permission() -> None:
    """Who may not see the list gets no part of it."""
    take("billing")
    assert operator().get(reverse(LIST), **REFRESH).status_code == 403
    stranger = Client().get(reverse(LIST), **REFRESH)
    assert (stranger.status_code, stranger.content) == (302, b"")


@pytest.mark.django_db
def test_nul_in_an_address(chief: Client) -> None:
    """No lock and no run has such a name: the reader is led back, as by any other."""
    take("billing")
    for page in (CHANGE, DELETE, HISTORY, RUN):
        address = reverse(page, args=[NUL])
        for answer in (chief.get(address), chief.post(address, {"post": "yes"})):
            assert answer.status_code in {302, 403}
    assert chief.get(reverse(CHANGE, args=["billing"])).status_code == 200


@pytest.mark.parametrize("page", [LIST, RUNS])
@pytest.mark.django_db
def test_nul_in_a_filter(chief: Client, page: str) -> None:
    """A filter that no database understands shows the list without it."""
    take("billing")
    add_run("billing")
    for parameter in ("name", "name__exact", "locked_by", "q", "state", "host", "o"):
        answer = chief.get(reverse(page), {parameter: NUL})
        assert (answer.status_code, answer["Location"]) == (302, f"{reverse(page)}?e=1")
    answer = chief.get(answer["Location"])
    assert answer.status_code == 200
    assert "billing" in answer.content.decode()


@pytest.mark.django_db
def test_nul_in_a_posted_name(chief: Client) -> None:
    """A NUL in a posted text changes no lock, and the operator learns why."""
    lock = take("billing")
    cure = {"shedlock_cure": f"release_selected {NUL}"}
    for answer in (
        ask(chief, NUL, follow=True),
        confirm(chief, NUL, lock.locked_by),
        confirm(chief, "billing", NUL),
        confirm(chief, "billing", lock.locked_by, reason=NUL),
        chief.post(reverse(LIST), cure, follow=True),
    ):
        assert answer.status_code == 200
        [told] = map(str, answer.context["messages"])
        assert told == "Nothing was done: a posted text has a NUL character."
    assert state("billing") is LockState.RUNNING


@pytest.mark.django_db
@pytest.mark.parametrize("is_confirmed", [False, True])
def test_missing_permission_is_named(is_confirmed: bool) -> None:
    """The message names the permission that the operator lacks."""
    lock, client = take("billing"), operator("view_lockrecord", "extend_lockrecord")
    if is_confirmed:
        answer = confirm(client, "billing", lock.locked_by)
    else:
        answer = ask(client, "billing", follow=True)
    [told] = map(str, answer.context["messages"])
    assert told == (
        "Nothing was done: “Release” needs the permission "
        "django_shedlock.release_lockrecord, which you don't have."
    )
    assert state("billing") is LockState.RUNNING


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("app", "page"),
    [
        ("django_shedlock", "lockrecord"),
        ("django_shedlock", "lockrun"),
        ("shedlock_console", "lockaction"),
    ],
)
def test_history_is_that_of_the_lock(chief: Client, app: str, page: str) -> None:
    """The history of a row leads to the runs and actions of its lock."""
    take("billing")
    run, action = add_run("billing"), add_action("billing")
    add_action("cleanup")
    [key] = {"lockrun": [run.pk], "lockaction": [action.pk]}.get(page, ["billing"])
    shown = chief.get(reverse(f"admin:{app}_{page}_change", args=[key]))
    query = "?name__exact=billing"
    links = [reverse(RUNS) + query, reverse(ACTIONS) + query]
    html = shown.content.decode()
    assert re.findall(r'<a href="(.+?)" class="historylink">', html) == links
    history = reverse(f"admin:{app}_{page}_history", args=[key])
    assert history not in html
    assert chief.get(history).headers["Location"] == links[1]
    actions = chief.get(links[1]).context["cl"].result_list
    assert [row.name for row in actions] == ["billing"]


@pytest.mark.django_db
def test_history_without_permission_is_django_s() -> None:
    """Without the permission for runs and actions, the history is Django's."""
    take("billing")
    client = operator("view_lockrecord")
    page = client.get(reverse(CHANGE, args=["billing"])).content.decode()
    assert "historylink" not in page
    assert client.get(reverse(HISTORY, args=["billing"])).status_code == 200
