"""The table, its migration, and its columns on each database."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import Value

from django_shedlock import models
from django_shedlock.fields import DatabaseNow, UTCDateTimeField
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRecord, LockRun, with_last_run
from tests.support.locks import MINUTE, add_run

pytestmark = pytest.mark.django_db


def test_migration_is_complete() -> None:
    """The models have no change that the migration does not have."""
    out = io.StringIO()
    call_command(
        "makemigrations", "django_shedlock", "--check", "--dry-run", stdout=out
    )
    assert "No changes" in out.getvalue()


@pytest.mark.django_db(transaction=True)
def test_migrate_to_zero_and_back() -> None:
    """The table can be removed and made again."""
    call_command("migrate", "django_shedlock", "zero", verbosity=0)
    assert "shedlock" not in connection.introspection.table_names()
    call_command("migrate", "django_shedlock", verbosity=0)
    assert LockRecord.objects.count() == 0


def test_only_the_name_has_an_index() -> None:
    """Updates touch no index: neither on lock_until, nor a second one for LIKE."""
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "shedlock")
    keys = [c["columns"] for c in constraints.values() if c["primary_key"]]
    others = [c for c in constraints.values() if c["index"] and not c["primary_key"]]
    assert (keys, others) == ([["name"]], [])


def test_record_is_shown_by_its_name() -> None:
    """The admin and the shell show a record's name."""
    assert str(LockRecord(name="billing")) == "billing"


@pytest.mark.parametrize(
    ("by", "acquirable"),
    [(timedelta(microseconds=-1), 0), (timedelta(0), 1), (timedelta(seconds=1), 1)],
)
def test_lock_is_free_from_the_instant_its_lease_ends(
    monkeypatch: pytest.MonkeyPatch, by: timedelta, acquirable: int
) -> None:
    """At lock_until itself the lock can be taken, and it is not held any more."""
    end = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
    LockRecord.objects.create(
        name="job", lock_until=end, locked_at=end - MINUTE, locked_by="somebody"
    )
    now = Value(end + by, output_field=UTCDateTimeField())
    monkeypatch.setattr(models.records.fields, "DatabaseNow", lambda: now)
    records = LockRecord.objects
    assert (records.acquirable().count(), records.held().count()) == (
        acquirable,
        1 - acquirable,
    )


@pytest.mark.parametrize("name", ["name", "locked_by"])
def test_columns_are_as_long_as_shedlocks(name: str) -> None:
    """A name and a holder of 255 characters fit, and are not cut."""
    now = DatabaseNow()
    columns = {"name": "job", "locked_by": "host", name: "ö" * 255}
    LockRecord.objects.create(**columns, lock_until=now, locked_at=now)
    assert getattr(LockRecord.objects.get(), name) == "ö" * 255


class TestRuns:
    """What the database says of runs."""

    @pytest.fixture
    def runs(self) -> dict[str, LockRun]:
        """One run of each outcome; two are abandoned, one of them not yet recorded."""
        return {name: self.run(name) for name in [*RunOutcome, "deserted"]}

    def run(self, name: str) -> LockRun:
        now = DatabaseNow()
        later = now + timedelta(minutes=1)
        is_running = name == RunOutcome.RUNNING
        LockRecord.objects.create(
            name=name,
            lock_until=later if is_running else now,
            locked_at=now,
            locked_by="web-1:7:a",
            fencing_token=5,
        )
        run = add_run(name, RunOutcome.RUNNING)
        if name in set(RunOutcome):
            LockRun.objects.filter(pk=run.pk).update(outcome=name)
        return run

    @pytest.mark.parametrize("outcome", list(RunOutcome))
    def test_runs_of_an_outcome(
        self, runs: dict[str, LockRun], outcome: RunOutcome
    ) -> None:
        """A run whose lease is over without an end counts as abandoned."""
        expected = {outcome.value}
        if outcome is RunOutcome.ABANDONED:
            expected.add("deserted")
        found = LockRun.objects.of_outcome(outcome)
        assert {run.name for run in found} == expected
        computed = LockRun.objects.with_outcome().filter(current_outcome=outcome)
        assert {run.name for run in computed} == expected

    def test_ended_runs(self, runs: dict[str, LockRun]) -> None:
        """Every run but the running one has ended."""
        assert {run.name for run in LockRun.objects.ended()} == {*runs} - {"running"}

    def test_locks_with_their_last_ended_run(self, runs: dict[str, LockRun]) -> None:
        """A lock has the outcome of the last run that ended, of its own provider."""
        LockRun.objects.filter(name="failed").update(provider="other")
        add_run("succeeded", RunOutcome.RUNNING)
        LockRecord.objects.filter(name="succeeded").update(
            lock_until=DatabaseNow() + timedelta(minutes=1)
        )
        records = with_last_run(LockRecord.objects.all(), "default")
        assert dict(records.values_list("name", "last_outcome")) == {
            "abandoned": "abandoned",
            "deserted": "abandoned",
            "failed": None,
            "lost": "lost",
            "running": None,
            "succeeded": "succeeded",
        }

    @pytest.mark.parametrize(
        "columns", [{"locked_by": "web-2:8:b"}, {"released_at": DatabaseNow()}]
    )
    def test_run_whose_lock_is_not_its_own_is_abandoned(
        self, columns: dict[str, Any]
    ) -> None:
        """Also while somebody else, or lock_at_least_for, holds the lock."""
        run = self.run("running")
        LockRecord.objects.update(**columns)
        [found] = LockRun.objects.with_outcome()
        assert (found.pk, found.current_outcome) == (run.pk, "abandoned")

    def test_run_without_a_record_may_still_run(self) -> None:
        """Where the lock's record is gone nobody can say that its run is dead."""
        run = self.run("job")
        LockRecord.objects.all().delete()
        [found] = LockRun.objects.with_outcome()
        assert (found.pk, found.current_outcome) == (run.pk, "running")

    def test_run_is_shown_by_name_and_outcome(self) -> None:
        """The admin and the shell show which lock's run it is."""
        assert str(LockRun(name="billing", outcome="lost")) == "billing (lost)"
