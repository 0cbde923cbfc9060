"""Instants that people and other programs write into the table of locks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction

from django_shedlock import scheduler_lock
from django_shedlock.clocks import LATEST_INSTANT, aware
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord
from django_shedlock.models.records import INSTANT_COLUMNS
from django_shedlock.providers import get_provider
from tests.support.commands import run
from tests.support.locks import status_of, take
from tests.support.records import write_columns
from tests.support.zones import project

UNREADABLE = {
    "postgresql": ["infinity", "-infinity", "0044-03-15 BC", "20000-01-01"],
    "mysql": ["0000-00-00 00:00:00", "0000-01-01 00:00:00"],
    "sqlite": ["tomorrow", "-4713-11-24 12:00:00", "0000-01-01 00:00:00", ""],
}


@pytest.mark.django_db
@pytest.mark.parametrize("column", INSTANT_COLUMNS)
def test_instant_that_no_client_could_read_is_refused(column: str) -> None:
    """The program that writes it gets an error, and readers get what was there."""
    take("job")
    before = LockRecord.objects.values().get()
    for text in UNREADABLE[connection.vendor]:
        with pytest.raises(DatabaseError), transaction.atomic():
            write_columns("shedlock", "job", **{column: text})
        assert LockRecord.objects.values().get() == before, text


@pytest.mark.django_db(transaction=True)
class TestPauseByHand:
    """A lock that somebody holds for ever by SQL, in every time zone."""

    @pytest.fixture(params=["America/Chicago", "Asia/Tokyo", "UTC"])
    def zone(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture(
        autouse=True, params=[(True, None), (True, "Asia/Tokyo"), (False, None)]
    )
    def _project(self, request: pytest.FixtureRequest, zone: str) -> Iterator[None]:
        use_tz, database_zone = request.param
        with project(use_tz=use_tz, zone=zone, database_zone=database_zone):
            yield

    @pytest.mark.parametrize("fraction", ["", ".999999"])
    def test_job_is_skipped_until_somebody_releases_it(self, fraction: str) -> None:
        """
        A job whose lock ends in the year 9999 is skipped until a release.

        The lock can be listed, shown and released like any other.
        """
        ran = []
        job = scheduler_lock("job", lock_at_most_for="1m")(lambda: ran.append(1))
        job()
        ran.clear()
        offset = "+00" if connection.vendor == "postgresql" else ""
        write_columns(
            "shedlock",
            "job",
            lock_until=f"9999-12-31 23:59:59{fraction}{offset}",
            locked_at="2026-01-02 00:00:00",
            released_at="2026-01-01 00:00:00",
            locked_by="me",
        )
        job()
        assert not ran
        status = status_of(get_provider(), "job")
        assert status.state is LockState.RUNNING
        assert aware(status.lock_until) == LATEST_INSTANT
        assert status.remaining > timedelta(days=7000 * 365)
        assert "running" in run("list")
        assert "running" in run("show", "job")
        run("release", "job", "--force", "--reason", "test")
        job()
        assert ran
