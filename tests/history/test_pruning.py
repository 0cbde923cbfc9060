"""Pruning: what is deleted, what never is, and how much at a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.db.models.signals import pre_delete
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_shedlock import scheduler_lock
from django_shedlock.fields import DatabaseNow
from django_shedlock.history import pruning
from django_shedlock.history.pruning import prune_locks, prune_runs
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRecord, LockRun, LockRunQuerySet
from django_shedlock.providers.database import DatabaseLockProvider
from tests.support.commands import run
from tests.support.locks import add_run, configure, take, take_from

pytestmark = pytest.mark.django_db

committed = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


@pytest.mark.postgres_only
def test_old_and_young_runs_are_found_by_an_index() -> None:
    """PostgreSQL would compare each run with a clock that goes on."""
    runs = LockRun.objects.all()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    for found in (runs.since(DAY), runs.prunable(DAY)):
        assert "Index Cond: (started" in found.explain()
    with CaptureQueriesContext(connection) as captured:
        assert not runs.outgrown(DAY)
    assert "CLOCK_TIMESTAMP" not in captured[0]["sql"]


def add_old_run(
    name: str, outcome: RunOutcome = RunOutcome.SUCCEEDED, **more: Any
) -> LockRun:
    return add_run(name, outcome, started=DatabaseNow() - 40 * DAY, **more)


def add_lock(name: str, *, ended: timedelta) -> None:
    take(name).release()
    then = DatabaseNow() - ended
    LockRecord.objects.filter(name=name).update(lock_until=then, released_at=then)


def names() -> list[str]:
    return sorted(LockRecord.objects.values_list("name", flat=True))


def test_few_runs_are_looked_at_for_an_outgrown_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the newest of the old ones, of which any may be needed."""
    add_lock("job", ended=40 * DAY)
    superseded, _ = add_old_run("job"), add_old_run("job")
    assert list(LockRun.objects.outgrown(DAY)) == [superseded]
    monkeypatch.setattr("django_shedlock.models.runs.SAMPLE", 1)
    assert not LockRun.objects.outgrown(DAY)


def test_old_runs_are_deleted() -> None:
    """Runs within the retention are kept, older ones are not."""
    add_old_run("job")
    young = add_run("job")
    assert prune_runs("default", 30 * DAY) == 1
    assert LockRun.objects.get() == young


def test_last_run_and_last_success_of_a_lock_are_kept() -> None:
    """What tells how a job does outlives the retention, if the job runs seldom."""
    add_lock("yearly", ended=40 * DAY)
    add_old_run("yearly")
    success = add_old_run("yearly")
    add_old_run("yearly", RunOutcome.FAILED)
    failure = add_old_run("yearly", RunOutcome.FAILED)
    assert prune_runs("default", 30 * DAY) == 2
    assert list(LockRun.objects.order_by("pk")) == [success, failure]


def test_runs_of_locks_without_a_record_are_deleted() -> None:
    """A name that nobody uses any more leaves nothing behind."""
    add_old_run("import:7")
    assert prune_runs("default", 30 * DAY) == 1


def test_run_that_goes_on_is_kept() -> None:
    """However long ago it began, a run whose lock is still its own is no history."""
    lock = take("endless")
    add_old_run("endless", RunOutcome.RUNNING, locked_by=lock.locked_by)
    add_run("endless")
    assert prune_runs("default", 30 * DAY) == 0


def test_abandoned_run_is_deleted() -> None:
    """A run whose worker died is as old as any other."""
    take("job").release()
    add_old_run("job", RunOutcome.RUNNING)
    add_run("job")
    assert prune_runs("default", 30 * DAY) == 1


def test_abandoned_run_goes_with_the_record_of_its_lock() -> None:
    """Nobody would ever tell that it is over, so pruning does."""
    add_lock("import:7", ended=100 * DAY)
    add_old_run("import:7", RunOutcome.RUNNING)
    assert prune_locks("default", 90 * DAY) == 1
    assert LockRun.objects.get().outcome == RunOutcome.ABANDONED
    assert prune_runs("default", 30 * DAY) == 1


@committed
def test_runs_are_deleted_in_batches(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    """A statement deletes few rows, and looks at none that an earlier one kept."""
    monkeypatch.setattr(pruning, "BATCH", 3)
    add_lock("yearly", ended=40 * DAY)
    for name in ["yearly", *["import:7"] * 7]:
        add_old_run(name)
    looks, deletions = 4, 3
    with django_assert_num_queries(looks + 3 * deletions):  # BEGIN, DELETE, COMMIT
        assert prune_runs("default", 30 * DAY) == 7
    assert LockRun.objects.get().name == "yearly"


def test_runs_of_one_instant_are_all_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a batch ends, the next one begins with the same instant."""
    monkeypatch.setattr(pruning, "BATCH", 2)
    for _ in range(5):
        add_old_run("import:7")
    LockRun.objects.update(started=LockRun.objects.order_by("pk")[0].started)
    assert prune_runs("default", 30 * DAY) == 5


def test_last_ended_run_is_kept_while_the_job_runs() -> None:
    """A run that goes on tells nothing yet of how the job does."""
    lock = take("job")
    failure = add_old_run("job", RunOutcome.FAILED)
    going_on = add_old_run("job", RunOutcome.RUNNING, locked_by=lock.locked_by)
    assert prune_runs("default", 30 * DAY) == 0
    assert list(LockRun.objects.order_by("pk")) == [failure, going_on]


def test_last_run_of_each_provider_is_kept() -> None:
    """Another provider's runs of the same name say nothing of ours."""
    add_lock("job", ended=40 * DAY)
    ours = add_old_run("job")
    theirs = add_old_run("job", provider="second")
    assert prune_runs("default", 30 * DAY) == 0
    assert list(LockRun.objects.order_by("pk")) == [ours, theirs]


@pytest.mark.django_db(databases=["default", "other"])
def test_only_the_named_database_is_pruned() -> None:
    """Each provider's runs and locks are where it keeps them."""
    provider = DatabaseLockProvider("second", using="other")
    take_from(provider, configure("import:7")).release()
    add_run("import:7", RunOutcome.RUNNING, provider="second", using="other")
    old = DatabaseNow() - 100 * DAY
    LockRecord.objects.using("other").update(lock_until=old, released_at=old)
    LockRun.objects.using("other").update(started=old)
    add_old_run("job")
    add_lock("import:8", ended=100 * DAY)
    assert prune_locks("other", 90 * DAY) == 1
    assert prune_runs("other", 30 * DAY) == 1
    assert (names(), LockRun.objects.get().name) == (["import:8"], "job")


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
    """Not even if every age will do."""
    take("job")
    take("kept", lock_at_least_for=timedelta(minutes=1)).release()
    assert prune_locks("default", timedelta(0)) == 0
    assert names() == ["job", "kept"]


def test_lock_that_is_taken_meanwhile_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement that deletes asks again."""
    add_lock("import:7", ended=100 * DAY)
    record_abandoned = LockRunQuerySet.record_abandoned

    def take_first(runs: LockRunQuerySet) -> int:
        take("import:7")
        return record_abandoned(runs)

    # Between the names that are read and the deletion.
    monkeypatch.setattr(LockRunQuerySet, "record_abandoned", take_first)
    assert prune_locks("default", 90 * DAY) == 0
    assert names() == ["import:7"]


def test_listeners_cannot_come_between() -> None:
    """One statement deletes, also if the project listens to all deletions."""
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
    monkeypatch.setattr(pruning, "BATCH", 2)

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
    add_old_run("import:7")
    add_lock("import:7", ended=100 * DAY)
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
    add_old_run("import:8", RunOutcome.RUNNING)
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
    """One call may prune each database, and says which; by default it prunes one."""
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
