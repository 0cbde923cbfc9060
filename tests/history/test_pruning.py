"""Pruning: what is deleted, what never is, and how much at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.db.models.signals import pre_delete
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_shedlock import execute, scheduler_lock
from django_shedlock.history import pruning, retention
from django_shedlock.history.pruning import prune_locks, prune_runs
from django_shedlock.history.retention import PRUNING_BATCH_SIZE, delete_batch
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRecordQuerySet, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql.connections import delete_here
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import run
from tests.support.locks import add_run, configure, status_of, take

pytestmark = pytest.mark.django_db

committed = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


def add_old_run(
    name: str, outcome: RunOutcome = RunOutcome.SUCCEEDED, **more: Any
) -> LockRun:
    return add_run(name, outcome, ended=DatabaseNow() - 40 * DAY, **more)


def add_lock(name: str, *, ended: timedelta) -> None:
    take(name).release()
    then = DatabaseNow() - ended
    LockRecord.objects.filter(name=name).update(lock_until=then, released_at=then)


def names() -> list[str]:
    return sorted(LockRecord.objects.values_list("name", flat=True))


@pytest.mark.postgres_only
def test_batch_is_read_along_an_index() -> None:
    """However many runs there are: no sort, and no look at the young ones."""
    LockRun.objects.bulk_create(
        LockRun(
            name=f"job {number % 50}",
            provider="default",
            locked_by=f"web-1:7:{number}",
            host="web-1",
            outcome=RunOutcome.SUCCEEDED,
            ended=datetime.now(UTC) - number * timedelta(minutes=10),
        )
        for number in range(20_000)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE shedlock_run")
    with CaptureQueriesContext(connection) as captured:
        old = LockRun.objects.older_than(30 * DAY)
        assert delete_batch(old) == PRUNING_BATCH_SIZE
    [batch] = [each["sql"] for each in captured if "ORDER BY" in each["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {batch}")
        [[[plan]]] = cursor.fetchall()
    top = plan["Plan"]
    [scan] = top["Plans"]
    assert (top["Node Type"], scan["Node Type"]) == ("Limit", "Index Scan")
    assert scan["Index Name"] == "shedlock_run_ended"
    assert scan["Index Cond"].startswith("(ended < ")
    assert scan["Actual Rows"] == PRUNING_BATCH_SIZE
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 2 * PRUNING_BATCH_SIZE
    oldest = LockRun.objects.order_by("ended").first()
    assert LockRun.objects.count() == 20_000 - PRUNING_BATCH_SIZE
    assert oldest.locked_by == f"web-1:7:{20_000 - PRUNING_BATCH_SIZE - 1}"


def test_old_runs_are_deleted() -> None:
    """Runs within the retention are kept, older ones are not."""
    add_old_run("job")
    young = add_run("job")
    assert prune_runs("default", 30 * DAY) == 1
    assert LockRun.objects.get() == young


def test_what_is_known_of_a_job_outlives_its_runs() -> None:
    """The record has it, if the job runs seldom."""
    execute(lambda: None, "yearly")
    LockRun.objects.update(ended=DatabaseNow() - 40 * DAY)
    assert prune_runs("default", 30 * DAY) == 1
    job = status_of(get_provider(), "yearly").job
    assert job.outcome == RunOutcome.SUCCEEDED
    assert job.succeeded_at is not None


def test_long_run_is_as_old_as_its_end() -> None:
    """A run that began long ago and ended just now is kept."""
    add_run("job", started=DatabaseNow() - 40 * DAY)
    assert prune_runs("default", 30 * DAY) == 0


def test_record_with_an_open_run_is_kept() -> None:
    """
    The record of a lock with an open run is not pruned.

    Nobody has accounted for the dead worker's run yet.
    """
    add_lock("import:7", ended=100 * DAY)
    take("import:8")
    then = DatabaseNow() - 100 * DAY
    LockRecord.objects.filter(name="import:8").update(lock_until=then, locked_at=then)
    assert prune_locks("default", 90 * DAY) == 1
    assert names() == ["import:8"]


@committed
def test_runs_are_deleted_in_batches(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    """A statement deletes few rows, the oldest first."""
    monkeypatch.setattr(retention, "PRUNING_BATCH_SIZE", 3)
    for _ in range(7):
        add_old_run("import:7")
    looks, deletions = 4, 3
    with django_assert_num_queries(looks + deletions):
        assert prune_runs("default", 30 * DAY) == 7


def test_runs_of_one_instant_are_all_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a batch ends, the next one begins with the same instant."""
    monkeypatch.setattr(retention, "PRUNING_BATCH_SIZE", 2)
    for _ in range(5):
        add_old_run("import:7")
    LockRun.objects.update(ended=LockRun.objects.order_by("pk")[0].ended)
    assert prune_runs("default", 30 * DAY) == 5


@pytest.mark.django_db(databases=["default", "other"])
def test_only_the_named_database_is_pruned() -> None:
    """Each provider's runs and locks are where it keeps them."""
    provider = DatabaseLockProvider("second", using="other")
    take(configure("import:7"), provider).release()
    old = DatabaseNow() - 100 * DAY
    LockRecord.objects.using("other").update(lock_until=old, released_at=old)
    LockRun.objects.using("other").update(ended=old)
    add_old_run("job")
    add_lock("import:8", ended=100 * DAY)
    assert prune_locks("other", 90 * DAY) == 1
    assert prune_runs("other", 30 * DAY) == 1
    assert not LockRun.objects.using("other").exists()
    assert names() == ["import:8"]
    assert set(LockRun.objects.values_list("name", flat=True)) == {"import:8", "job"}


def test_test_of_a_project_prunes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TestCase may count its statements, which chance must not change."""
    monkeypatch.setattr(retention, "PRUNING_SHARE", 1)
    old = add_old_run("import:7")
    execute(lambda: None, "job")
    assert LockRun.objects.filter(pk=old.pk).exists()


@pytest.mark.parametrize("setting", [-1, "-30d", True, ["30d"], "a month"])
def test_wrong_retention_deletes_nothing(
    settings: Any, caplog: pytest.LogCaptureFixture, setting: object
) -> None:
    """A retention that is no duration, or negative, is logged and breaks no write."""
    settings.SHEDLOCK_HISTORY_RETENTION = setting
    young = add_run("import:7")
    retention.prune_some(LockRun.objects.using("default"))
    assert LockRun.objects.filter(pk=young.pk).exists()
    assert "SHEDLOCK_HISTORY_RETENTION" in caplog.text


@committed
@pytest.mark.parametrize(
    ("setting", "drawn", "is_left"),
    [("30d", 0.019, False), ("30d", 0.021, True), (None, 0.0, True)],
)
def test_old_runs_are_deleted_after_some_of_the_writes(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    settings: Any,
    setting: str | None,
    drawn: float,
    is_left: bool,
) -> None:
    """One write in fifty deletes old runs, unless the history is kept for ever."""
    settings.SHEDLOCK_HISTORY_RETENTION = setting
    monkeypatch.setattr(retention, "PRUNING_SHARE", 1 / 50)
    monkeypatch.setattr(retention._system_random, "random", lambda: drawn)
    old, young = add_old_run("import:7"), add_run("import:7")
    execute(lambda: None, "job")
    assert LockRun.objects.filter(pk=old.pk).exists() is is_left
    assert LockRun.objects.filter(pk=young.pk).exists()
    assert not caplog.messages


def test_all_unused_locks_may_be_those_of_jobs() -> None:
    """With nothing to delete, nothing is deleted, in words and without a traceback."""

    @scheduler_lock("yearly")
    def job() -> None: ...

    add_lock("yearly", ended=400 * DAY)
    shown = run("prune", "--unused-for", "90d")
    assert shown.startswith("Deleted records of unused locks: 0.\n")


def test_jobs_that_nobody_imported_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command's process need not have imported the jobs of the project."""
    jobs = []
    add_lock("yearly", ended=400 * DAY)

    def find() -> None:
        jobs.append(scheduler_lock("yearly")(lambda: None))

    monkeypatch.setattr(pruning, "import_jobs", find)
    assert prune_locks("default", 90 * DAY) == 0


def test_unused_locks_are_deleted() -> None:
    """Records whose last lease ended long ago go, others stay."""
    add_lock("import:7", ended=100 * DAY)
    add_lock("import:8", ended=80 * DAY)
    assert prune_locks("default", 90 * DAY) == 1
    assert names() == ["import:8"]


def test_lock_of_a_job_with_a_fixed_name_is_kept() -> None:
    """A decorated job will use its lock again, however seldom it runs."""

    @scheduler_lock("yearly")
    def job() -> None: ...

    @scheduler_lock("{{braces}}")
    def other_job() -> None: ...

    @scheduler_lock("import:{tenant}")
    def import_tenant(tenant: str) -> None: ...

    for name in ("yearly", "{braces}", "{{braces}}", "import:{tenant}"):
        add_lock(name, ended=400 * DAY)
    assert prune_locks("default", 90 * DAY) == 2
    assert names() == ["yearly", "{braces}"]
    with override_settings(SHEDLOCK_NAMESPACE="other"):
        assert prune_locks("default", 90 * DAY) == 2


def test_held_lock_is_never_deleted() -> None:
    """A held lock is never pruned, even if the required age is zero."""
    take("job")
    take("kept", lock_at_least_for=timedelta(minutes=1)).release()
    assert prune_locks("default", timedelta(0)) == 0
    assert names() == ["job", "kept"]


def test_lock_that_is_taken_meanwhile_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement that deletes asks again."""
    add_lock("import:7", ended=100 * DAY)

    def take_first(records: LockRecordQuerySet, using: str) -> int:
        take("import:7")
        return delete_here(records, using)

    # Between the names that are read and the deletion.
    monkeypatch.setattr(pruning, "delete_here", take_first)
    assert prune_locks("default", 90 * DAY) == 0
    assert names() == ["import:7"]


def test_listeners_cannot_come_between() -> None:
    """One statement prunes the locks, and no pre_delete signal is sent."""
    heard = []

    def listen(**kwargs: Any) -> None:
        heard.append(kwargs)

    add_lock("import:7", ended=100 * DAY)
    pre_delete.connect(listen)
    try:
        assert prune_locks("default", 90 * DAY) == 1
    finally:
        pre_delete.disconnect(listen)
    assert not heard


def test_locks_are_deleted_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches go on after names that are kept."""
    monkeypatch.setattr(pruning, "PRUNING_BATCH_SIZE", 2)

    @scheduler_lock("a")
    def job() -> None: ...

    for name in "abcde":
        add_lock(name, ended=100 * DAY)
    assert prune_locks("default", 90 * DAY) == 4
    assert names() == ["a"]


def test_command_prunes_what_the_settings_say() -> None:
    """Without arguments only runs go, after SHEDLOCK_HISTORY_RETENTION."""
    add_old_run("job")
    add_lock("import:7", ended=100 * DAY)
    with override_settings(SHEDLOCK_HISTORY_RETENTION="50d"):
        assert run("prune") == "Deleted runs: 0.\n"
    assert run("prune") == "Deleted runs: 1.\n"
    assert names() == ["import:7"]


def test_command_prunes_what_it_is_told() -> None:
    """The age of runs and of unused locks can be given."""
    add_lock("import:7", ended=100 * DAY)
    LockRun.objects.all().delete()
    add_old_run("import:7")
    shown = run("prune", "--older-than", "50d", "--unused-for", "90d")
    assert shown == "Deleted records of unused locks: 1.\nDeleted runs: 0.\n"
    assert run("prune", "--older-than", "1d") == "Deleted runs: 1.\n"


@pytest.mark.parametrize("option", ["--older-than", "--unused-for"])
@pytest.mark.parametrize("age", ["soon", "-P1D", ""])
def test_command_refuses_what_is_no_age(option: str, age: str) -> None:
    """An age that is none is a wrong call, and deletes nothing."""
    add_old_run("job")
    with pytest.raises(CommandError, match=option):
        run("prune", f"{option}={age}")
    assert LockRun.objects.exists()


@override_settings(SHEDLOCK_HISTORY_RETENTION=None)
def test_history_that_is_kept_for_ever_needs_an_age() -> None:
    """Nothing is deleted by itself, and the command says what to give."""
    add_old_run("job")
    with pytest.raises(CommandError, match="is None: give --older-than") as caught:
        run("prune")
    assert caught.value.returncode == 2
    assert run("prune", "--older-than", "30d") == "Deleted runs: 1.\n"


@override_settings(SHEDLOCK_HISTORY_RETENTION=-5)
def test_negative_retention_deletes_nothing() -> None:
    """A setting that would delete everything is refused, by its name."""
    add_run("job")
    add_run("job")
    with pytest.raises(CommandError, match="SHEDLOCK_HISTORY_RETENTION"):
        run("prune")
    assert LockRun.objects.count() == 2


def test_dry_run_tells_what_would_be_deleted() -> None:
    """Nothing is deleted, and the numbers are those of the real call after it."""

    @scheduler_lock("yearly")
    def job() -> None: ...

    for name in ("import:7", "import:8", "yearly"):
        add_lock(name, ended=100 * DAY)
        for _ in range(3):
            add_old_run(name)
    args = ("prune", "--older-than", "30d", "--unused-for", "90d")
    told = run(*args, "--dry-run")
    assert run(*args, "--dry-run") == told
    assert told == "Would delete records of unused locks: 2.\nWould delete runs: 9.\n"
    assert run(*args) == told.replace("Would delete", "Deleted")
    assert run("prune", "--dry-run") == "Would delete runs: 0.\n"


def test_other_providers_runs_stay() -> None:
    """Only the runs of the provider that was asked for are deleted, unless all are."""
    add_old_run("job")
    add_old_run("job", provider="retired")
    assert run("prune", "--dry-run") == "Would delete runs: 1.\n"
    assert run("prune") == "Deleted runs: 1.\n"
    assert LockRun.objects.get().provider == "retired"
    assert run("prune", "--all-providers", "--dry-run") == "Would delete runs: 1.\n"
    assert run("prune", "--all-providers") == "Deleted runs: 1.\n"


DATABASE = "django_shedlock.providers.database.DatabaseLockProvider"
MEMORY = "django_shedlock.providers.memory.MemoryLockProvider"


@pytest.mark.django_db(databases=["default", "other"])
@override_settings(
    SHEDLOCK_PROVIDERS={
        "default": {"BACKEND": DATABASE},
        "memory": {"BACKEND": MEMORY},
        "second": {"BACKEND": DATABASE, "OPTIONS": {"using": "other"}},
    }
)
def test_databases_of_all_providers() -> None:
    """
    ``prune`` handles one database, or with ``--all-providers`` each database.

    The output names each of several databases.
    """
    add_old_run("job")
    add_old_run("job", provider="second", using="other")
    args = ("prune", "--all-providers", "--unused-for", "90d")
    told = run(*args, "--dry-run").splitlines()
    assert told[1] == "Database 'default': Would delete runs: 1."
    assert told[3] == "Database 'other': Would delete runs: 1."
    assert run("prune", "--provider", "second") == "Deleted runs: 1.\n"
    assert LockRun.objects.count() == 1
    assert "Database 'default': Deleted runs: 1." in run(*args)
    assert not LockRun.objects.exists()
