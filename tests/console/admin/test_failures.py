"""The admin while the database of the locks fails."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from django.contrib.admin.models import LogEntry
from django.db import OperationalError, connections
from django.test import Client, override_settings
from django.urls import reverse

from django_shedlock.locks.states import LockState
from django_shedlock.models import ActionResult, LockAction, LockRecordQuerySet
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from tests.support.bridges import Bridge, bridge
from tests.support.locks import configure, take_from
from tests.support.operators import ACTIONS, CHANGE, LIST, RUN, RUNS, confirm, operator

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
def test_page_says_that_the_database_failed(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sentence with what to look at, and not as an error of the site."""

    def fail(self: LockRecordQuerySet) -> LockRecordQuerySet:
        raise OperationalError("no such table: <shedlock>")

    monkeypatch.setattr(LockRecordQuerySet, "with_status", fail)
    for address in (reverse(LIST), reverse(CHANGE, args=["job"])):
        answer = viewer.get(address)
        page = answer.content.decode()
        assert answer.status_code == 503
        assert "The database “default” of the locks failed" in page
        assert "no such table: &lt;shedlock&gt;" in page
        assert "did `manage.py migrate` run on it?" in page


@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
class TestStoreIsAway:
    """With real servers, and the users' database still there."""

    def test_pages_say_so(self, to_locks: Bridge) -> None:
        """All lists and pages."""
        client = operator("view_lockrecord", "view_lockrun", "view_lockaction")
        take_from(get_provider(), configure())
        to_locks.close()
        pages = [reverse(CHANGE, args=["job"]), reverse(RUN, args=[1])]
        for address in (*map(reverse, [LIST, RUNS, ACTIONS]), *pages):
            answer = client.get(address)
            assert answer.status_code == 503
            assert "The database “other” of the locks failed" in answer.content.decode()

    def test_confirmed_action_claims_nothing(self, to_locks: Bridge) -> None:
        """Operator, log and trail learn that nobody knows what came of it."""
        client = operator("view_lockrecord", "release_lockrecord")
        lock = take_from(get_provider(), configure())
        release = DatabaseLockProvider.force_release

        def break_first(self: DatabaseLockProvider, *args: str, **how: bool) -> bool:
            to_locks.close()
            return release(self, *args, **how)

        with patch.object(DatabaseLockProvider, "force_release", break_first):
            answer = confirm(client, "job", lock.locked_by)
        page = answer.content.decode()
        assert answer.status_code == 503
        assert "Nobody knows whether lock" in page
        assert "Nobody knows" in LogEntry.objects.get().change_message
        connections["other"].close()
        with patch.dict(connections["other"].settings_dict, to_locks.server_address):
            assert get_provider().statuses("job")[0].state is LockState.RUNNING
            row = LockAction.objects.using("other").get()
        assert row.result == ActionResult.STARTED
