"""The audit log: who did what, when and why, and what came of it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_shedlock import execute
from django_shedlock.console.cli.prune import prune_actions
from django_shedlock.console.models import ActionKind, ActionResult, LockAction
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.operators import (
    AcknowledgeFindings,
    AuditedAction,
    ExtendLease,
    PauseJob,
    ReleaseLock,
    ResumeJob,
    audit,
)
from django_shedlock.exceptions import LockProviderError
from django_shedlock.execution import operators
from django_shedlock.history import retention
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import locked_in_memory
from tests.support.commands import run
from tests.support.durations import rounded_up
from tests.support.locks import expire, force_release, pause, state, status_of, take
from tests.support.operators import statements

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def action(name: str = "job", **more: Any) -> AuditedAction:
    by = {"operator": "ada", "reason": "the pod is gone"}
    return AuditedAction(get_provider(), name, **{**by, **more})


def only_row() -> LockAction:
    return LockAction.objects.get()


def test_action_that_is_sent_again_is_written_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second action is another one if it has other facts, or says something else."""
    send = audit.run
    monkeypatch.setattr(
        audit, "run", lambda write, using: send(lambda c, _: write(c, True), using)
    )
    written = [("failed 1", "done"), ("failed 2", "done"), ("failed 2", "for 8h")]
    for fact, detail in (written[0], *written):
        asked = action(facts=[fact])
        audit.write_action(asked, ActionKind.ACKNOWLEDGE, ActionResult.DONE, detail)
    rows = LockAction.objects.order_by("pk").values_list("facts", "detail")
    assert list(rows) == written


def test_release_is_written_with_its_result() -> None:
    """The row has who, what, when, why, whose lock it was, and what is true now."""
    lock = take("job")
    assert ReleaseLock().carry_out(action())
    row = only_row()
    assert (row.kind, row.operator, row.reason) == (
        ActionKind.RELEASE,
        "ada",
        "the pod is gone",
    )
    assert (row.name, row.provider, row.locked_by) == ("job", "default", lock.locked_by)
    assert row.result == ActionResult.DONE
    assert row.ended is not None
    assert row.began <= row.ended
    assert row.detail == (
        f"Lock 'job' is released. {lock.locked_by} held it. Its job was not stopped. "
        "If it still runs, the next start, or a catch-up, runs the job beside it."
    )


def test_extension_tells_the_lease_that_there_is() -> None:
    """A lease that was longer already is not told as the shorter one."""
    take("job", lock_at_most_for=2 * HOUR)
    told = run("extend", "job", "1m")
    assert rounded_up(told) == (
        "Lock 'job' is held for 2h more at the most. Its lease was longer than that "
        "already.\n"
    )
    assert only_row().detail == told.strip()
    assert rounded_up(
        ExtendLease(lock_at_most_for=3 * HOUR).carry_out(action()).detail
    ) == ("Lock 'job' is held for 3h more at the most.")


def test_refusal_is_written_with_its_reason() -> None:
    """What was tried and did not happen is in the audit, too."""
    lock = take("job")
    answer = ReleaseLock(spare_running=True).carry_out(action())
    assert (bool(answer), answer.result) == (False, ActionResult.REFUSED)
    row = only_row()
    assert row.result == ActionResult.REFUSED
    assert row.detail == (
        f"Lock 'job' is not released: its job is running as {lock.locked_by}."
    )
    assert state("job") is LockState.RUNNING


def test_holder_that_came_in_between_is_named() -> None:
    """A refusal tells whose acquisition was meant, and who has the lock now."""
    seen = take("job")
    seen.release()
    now = take("job")
    ReleaseLock().carry_out(action(locked_by=seen.locked_by))
    assert only_row().detail == (
        f"Lock 'job' is not released: '{seen.locked_by}' does not hold it; its job is "
        f"running as {now.locked_by}."
    )


def test_interrupted_action_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """If something ends the process meanwhile, the audit log has what is true then."""
    take("job")

    def replace(*args: Any, **options: Any) -> bool:
        raise SystemExit

    monkeypatch.setattr(DatabaseLockProvider, "replace", replace)
    with pytest.raises(SystemExit):
        ReleaseLock().carry_out(action())
    assert only_row().result == ActionResult.FAILED
    assert "its job is running as" in only_row().detail


def test_store_that_failed_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit log has the store's error, and the caller gets it."""

    def fail(*args: Any, **options: Any) -> bool:
        raise LockProviderError("the store is away")

    take("job")
    monkeypatch.setattr(DatabaseLockProvider, "replace", fail)
    with pytest.raises(LockProviderError):
        ExtendLease(lock_at_most_for=HOUR).carry_out(action())
    assert only_row().result == ActionResult.FAILED
    assert only_row().detail == "LockProviderError: the store is away"


def test_row_is_written_once() -> None:
    """An action writes its audit log row with one INSERT, when the result is known."""
    take("job")
    with CaptureQueriesContext(connection) as sent:
        assert ReleaseLock().carry_out(action())
    of_audit_log = [sql for sql in statements(sent) if "shedlock_action" in sql]
    assert [sql.split()[0] for sql in of_audit_log] == ["INSERT"]


def test_audit_log_that_fails_breaks_no_action(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The lock is released all the same, and a warning says what is missing."""

    def fail(*args: Any, **values: Any) -> None:
        raise DatabaseError("no room on the disk")

    take("job")
    monkeypatch.setattr(audit, "insert_action", fail)
    assert ReleaseLock().carry_out(action())
    assert state("job") is LockState.FREE
    assert "The audit log lacks an action on lock 'job'" in caplog.text
    assert "no room on the disk" in caplog.text


def test_provider_without_a_database_has_no_audit_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The release of a lock in memory is only in the log, not in the audit log."""
    with locked_in_memory():
        take("job")
        assert ReleaseLock().carry_out(action())
    assert not LockAction.objects.exists()
    assert "'job' was released by ada" in caplog.text


def test_unusual_texts_are_written() -> None:
    """Bytes that are no text, from a shell, and endless reasons don't break the row."""
    take("job")
    ReleaseLock(spare_running=True).carry_out(
        action(operator="ada\0\udc80" + "x" * 300, reason="\0" + "y" * 3000)
    )
    row = only_row()
    assert row.operator.startswith("ada\\0\\udc80")
    assert (len(row.operator), len(row.reason)) == (255, 2000)


@pytest.mark.parametrize(
    ("args", "kind", "result"),
    [
        (("release", "job", "--force"), ActionKind.RELEASE, ActionResult.DONE),
        (("extend", "job", "2h"), ActionKind.EXTEND, ActionResult.DONE),
    ],
)
def test_command_writes_the_audit_log(
    args: tuple[str, ...], kind: ActionKind, result: ActionResult
) -> None:
    """What is done at a terminal is in the lock's audit log as well."""
    lock = take("job")
    told = run(*args, "--reason", "by hand")
    row = only_row()
    assert (row.kind, row.result, row.reason) == (kind, result, "by hand")
    assert row.locked_by == lock.locked_by
    assert row.detail == told.strip()


class TestPause:
    """A pause is an acquisition of the operator's own."""

    @pytest.mark.parametrize("before", ["nothing", "free", "kept", "expired"])
    def test_lock_that_no_job_holds_is_paused(self, before: str) -> None:
        """Whatever was before, unless its job runs."""
        if before == "kept":
            take("job", lock_at_least_for=MINUTE).release()
        elif before != "nothing":
            lock = take("job")
            expire("job") if before == "expired" else lock.release()
        answer = PauseJob().carry_out(action())
        assert answer
        assert answer.detail.startswith(
            "The job of lock 'job' is paused until it is resumed."
        )
        assert ("may still go on" in answer.detail) is (before == "expired")
        status = status_of(get_provider(), "job")
        assert status.pause == Pause("ada", "the pod is gone")
        assert (only_row().kind, only_row().locked_by) == (
            ActionKind.PAUSE,
            status.locked_by,
        )

    def test_running_job_is_not_paused(self) -> None:
        """A running job is neither paused nor stopped."""
        lock = take("job")
        answer = PauseJob().carry_out(action())
        assert answer.detail == (
            f"The job of lock 'job' is not paused: its job is running as "
            f"{lock.locked_by}."
        )
        assert only_row().result == ActionResult.REFUSED
        assert state("job") is LockState.RUNNING

    def test_pause_waits_for_the_end_of_a_run(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        A pause that waits begins as soon as the run has ended.

        The first sleep of the pause ends the run here.
        """
        lock = take("job")
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            assert not LockAction.objects.exists()
            lock.release()

        monkeypatch.setattr(time, "sleep", sleep)
        assert PauseJob(lasting=HOUR, wait=MINUTE).carry_out(action())
        assert len(slept) == 1
        told = rounded_up(only_row().detail)
        assert told == "The job of lock 'job' is paused for 1h more."
        assert only_row().began < only_row().ended

    def test_same_pause_is_told(self) -> None:
        """Who paused the job already, and why."""
        assert PauseJob().carry_out(action())
        assert PauseJob().carry_out(action(operator="bob")).detail == (
            "The job of lock 'job' is paused already: ada paused it, because: the pod "
            "is gone; until it is resumed."
        )
        status = status_of(get_provider(), "job")
        assert status.pause == Pause("ada", "the pod is gone")

    @pytest.mark.parametrize("is_endless", [True, False])
    def test_other_pause_replaces_it(self, *, is_endless: bool) -> None:
        """A pause with another reason or another end replaces the one before."""
        PauseJob().carry_out(action())
        if is_endless:
            answer = PauseJob().carry_out(
                action(operator="bob", reason="the disk is full")
            )
        else:
            answer = PauseJob(lasting=HOUR).carry_out(action(operator="bob"))
        assert answer
        assert answer.detail.endswith(
            "This replaces the pause by ada, because: the pod is gone."
        )
        status = status_of(get_provider(), "job")
        assert status.pause is not None
        assert status.pause.operator == "bob"
        assert status.is_endless is is_endless

    def test_store_that_fails_leaves_the_pause_before(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody takes a job for paused that is not: of two pauses one is there."""

        def fail(*args: Any, **options: Any) -> Any:
            raise LockProviderError("the store is away")

        before = pause("job")
        monkeypatch.setattr(DatabaseLockProvider, "replace", fail)
        monkeypatch.setattr(DatabaseLockProvider, "acquire", fail)
        with pytest.raises(LockProviderError):
            PauseJob().carry_out(action())
        status = status_of(get_provider(), "job")
        assert status.locked_by == before.locked_by
        assert status.pause is not None

    def test_job_that_begins_meanwhile_is_told(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If the pause has ended since, the job that runs is spared."""
        replace = DatabaseLockProvider.replace

        def let_a_job_in(
            self: DatabaseLockProvider, status: LockStatus, *args: Any, **how: Any
        ) -> bool:
            assert replace(self, status, ZERO)
            take("job")
            return replace(self, status, *args, **how)

        pause("job")
        monkeypatch.setattr(DatabaseLockProvider, "replace", let_a_job_in)
        answer = PauseJob().carry_out(action())
        assert "is not paused: its job is running as" in answer.detail
        assert state("job") is LockState.RUNNING

    def test_acquisition_that_was_seen_is_meant(self) -> None:
        """A lock that somebody has acquired since is not paused."""
        seen = take("job")
        seen.release()
        take("job").release()
        answer = PauseJob().carry_out(action(locked_by=seen.locked_by))
        assert "does not hold it; nobody holds it" in answer.detail
        assert state("job") is LockState.FREE

    def test_interrupted_wait_is_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A wait that Ctrl-C interrupts is in the audit log as failed.

        The row says that the job is still running.
        """

        def sleep(seconds: float) -> None:
            raise KeyboardInterrupt

        take("job")
        monkeypatch.setattr(time, "sleep", sleep)
        with pytest.raises(KeyboardInterrupt):
            PauseJob(wait=MINUTE).carry_out(action())
        assert only_row().result == ActionResult.FAILED
        assert "its job is running as" in only_row().detail


class TestResume:
    """A resume ends that very pause."""

    def test_pause_is_ended(self) -> None:
        """The lock is free, and the answer tells whose pause it was."""
        pause("job")
        answer = ResumeJob().carry_out(action())
        assert answer.detail == (
            "The job of lock 'job' is resumed. alice had paused it, because: the mail "
            "server moves."
        )
        assert state("job") is LockState.FREE
        assert only_row().kind == ActionKind.RESUME

    @pytest.mark.parametrize("before", ["running", "free"])
    def test_what_is_not_paused_is_not_resumed(self, before: str) -> None:
        """No job loses its lock that way."""
        lock = take("job")
        if before == "free":
            lock.release()
        answer = ResumeJob().carry_out(action())
        assert "Lock 'job' is not resumed: " in answer.detail
        assert state("job").value == before
        assert only_row().result == ActionResult.REFUSED

    def test_other_pause_is_spared(self) -> None:
        """The pause that was seen is meant, not one that came since."""
        seen = pause("job")
        force_release(get_provider(), "job")
        pause("job")
        assert not ResumeJob().carry_out(action(locked_by=seen.locked_by))
        assert state("job") is LockState.PAUSED


def add_action(name: str = "job", **columns: Any) -> LockAction:
    """Add a row that is older than the retention, unless the columns say otherwise."""
    then = DatabaseNow() - 40 * DAY
    values: dict[str, Any] = {
        "kind": ActionKind.RELEASE,
        "result": ActionResult.DONE,
        "began": then,
        "ended": then,
        **columns,
    }
    return LockAction.objects.create(name=name, provider="default", **values)


class TestPruning:
    """The audit log does not grow for ever."""

    @pytest.mark.parametrize("result", ActionResult)
    def test_old_actions_are_deleted(self, result: ActionResult) -> None:
        """An old action is deleted, whatever its result is, and a new one is kept."""
        add_action("old", result=result)
        ReleaseLock(spare_running=True).carry_out(action("new"))
        assert "Deleted actions of operators: 1." in run("prune")
        assert only_row().name == "new"

    def test_long_action_is_as_old_as_its_end(self) -> None:
        """An action that began before the retention and ended after it is kept."""
        add_action(ended=DatabaseNow() - 20 * DAY)
        assert prune_actions("default", 30 * DAY) == 0

    @pytest.mark.django_db(transaction=True)
    def test_in_batches(
        self, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
    ) -> None:
        """Each statement deletes few rows."""
        monkeypatch.setattr(retention, "PRUNING_BATCH_SIZE", 2)
        for _ in range(5):
            add_action()
        looks, deletions = 4, 3
        with django_assert_num_queries(looks + deletions):
            assert prune_actions("default", 30 * DAY) == 5

    def test_other_providers_actions_stay(self) -> None:
        """Only the actions on the locks of the named provider are deleted."""
        add_action()
        assert prune_actions("default", 30 * DAY, "second") == 0
        assert prune_actions("default", 30 * DAY, "default", dry_run=True) == 1
        assert prune_actions("default", 30 * DAY, "default") == 1

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize(
        ("setting", "drawn", "is_left"),
        [("30d", 0.019, False), ("30d", 0.021, True), (None, 0.0, True)],
    )
    def test_old_actions_are_deleted_after_some_of_the_writes(
        self,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        settings: Any,
        setting: str | None,
        drawn: float,
        is_left: bool,
    ) -> None:
        """One action in fifty prunes the audit log, unless rows are kept for ever."""
        settings.SHEDLOCK_HISTORY_RETENTION = setting
        monkeypatch.setattr(retention, "PRUNING_SHARE", 1 / 50)
        monkeypatch.setattr(retention._system_random, "random", lambda: drawn)
        add_action("old")
        ReleaseLock(spare_running=True).carry_out(action("new"))
        names = LockAction.objects.order_by("pk").values_list("name", flat=True)
        assert list(names) == ["old", "new"][0 if is_left else 1 :]
        assert not caplog.messages

    @pytest.mark.django_db(transaction=True)
    def test_receiver_of_a_forced_release_deletes_old_actions(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A row that the core's signal causes counts as a write as well."""
        monkeypatch.setattr(retention, "PRUNING_SHARE", 1)
        add_action("old")
        take("job")
        assert operators.force_release(action("job"))
        assert only_row().name == "job"

    @pytest.mark.django_db(transaction=True)
    def test_callers_transaction_deletes_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The deletion would become a part of the transaction, and hold its rows."""
        monkeypatch.setattr(retention, "PRUNING_SHARE", 1)
        old = add_action("old")
        with transaction.atomic():
            ReleaseLock(spare_running=True).carry_out(action("new"))
        assert LockAction.objects.filter(pk=old.pk).exists()
        ReleaseLock(spare_running=True).carry_out(action("newer"))
        assert not LockAction.objects.filter(pk=old.pk).exists()

    @pytest.mark.django_db(transaction=True)
    def test_deletion_that_fails_is_logged(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The action is done and in the audit log all the same."""

        def fail(rows: object) -> int:
            raise DatabaseError("the disk is full")

        monkeypatch.setattr(retention, "PRUNING_SHARE", 1)
        monkeypatch.setattr(retention, "delete_batch", fail)
        take("job")
        assert ReleaseLock().carry_out(action())
        assert LockAction.objects.get().result == ActionResult.DONE
        text = (
            "Old rows of the table 'shedlock_action' are not deleted: the disk is full"
        )
        assert text in caplog.messages

    @pytest.mark.parametrize("until", [None, DatabaseNow() + DAY])
    def test_acknowledgement_that_counts_is_kept(self, until: Any) -> None:
        """A finding stays silent for as long as somebody said, whatever its age."""
        kept = add_action(facts="failed web-1:7:1", until=until)
        assert prune_actions("default", 30 * DAY, dry_run=True) == 0
        assert prune_actions("default", 30 * DAY) == 0
        assert only_row() == kept

    @pytest.mark.parametrize(
        "columns",
        [{"until": DatabaseNow() - DAY}, {"result": ActionResult.FAILED}],
    )
    def test_acknowledgement_that_is_over_is_deleted(
        self, columns: dict[str, Any]
    ) -> None:
        """
        An acknowledgement that is over, or that failed, is deleted.

        Such an acknowledgement silences nothing.
        """
        add_action(facts="failed web-1:7:1", **columns)
        assert prune_actions("default", 30 * DAY) == 1

    def test_acknowledged_finding_stays_silent(self) -> None:
        """A run that failed long ago is no finding again after a prune."""
        with pytest.raises(ZeroDivisionError):
            execute(fail_a_run, "job")
        assert AcknowledgeFindings(lasting=FOREVER).carry_out(action())
        past = DatabaseNow() - 40 * DAY
        LockAction.objects.update(began=past, ended=past)
        run("prune")
        assert not list(Search().findings(get_provider()))


def fail_a_run() -> None:
    raise ZeroDivisionError
