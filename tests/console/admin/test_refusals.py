"""What the admin does not do, and how it says so."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client, override_settings
from django.urls import path, reverse

from django_shedlock.console.admin import LockRecordAdmin, actions
from django_shedlock.locks.states import LockState
from django_shedlock.models import LockRecord, LockRecordQuerySet
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
    assert (running["choice"], running["locks"]) == ("running", 2)


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


def test_nul_in_a_posted_name(chief: Client) -> None:
    """Nothing happens to any lock."""
    lock = take("billing")
    assert ask(chief, NUL).status_code == 302
    assert confirm(chief, NUL, lock.locked_by).status_code == 200
    assert confirm(chief, "billing", NUL).status_code == 200
    assert state("billing") is LockState.RUNNING


def test_selection_of_all_locks_is_not_loaded(
    chief: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of "select all" the database sends as many locks as are refused, and no more."""
    monkeypatch.setattr(actions, "MOST_LOCKS", 2)
    LockRecord.objects.bulk_create(
        LockRecord(name=f"job-{n}", locked_by="", lock_until=NEVER, locked_at=NEVER)
        for n in range(9)
    )
    everything = {
        "action": "release_selected",
        "_selected_action": ["job-1"],
        "select_across": "1",
    }
    with counted_records(monkeypatch) as loaded:
        answer = chief.post(reverse(LIST), everything)
    assert answer.status_code == 302
    assert len(loaded) <= 3
    assert LockRecord.objects.count() == 9
    page = chief.get(reverse(LIST)).content.decode()
    assert "Select fewer locks at a time." in page
