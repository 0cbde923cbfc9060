"""Actions whose reply is lost, on real servers: what happened is told and written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError
from django.db import connections

from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.cli.base import ExitStatus
from django_shedlock.console.models import ActionResult, LockAction
from django_shedlock.console.operators import (
    AuditedAction,
    ExtendLease,
    PauseJob,
    ReleaseLock,
    RequestRun,
    ResumeJob,
    WithdrawRequest,
)
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockState
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from tests.support.bridges import Bridge, bridge
from tests.support.commands import run
from tests.support.durations import rounded_up
from tests.support.jobs import scheduled_jobs
from tests.support.locks import force_release, pause, state, status_of, take
from tests.support.operators import confirm, operator

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers_only]

HOUR = timedelta(hours=1)


@pytest.fixture
def to_server() -> Iterator[Bridge]:
    """Let the locks' connections go over a bridge."""
    with bridge() as built:
        default = connections["default"]
        default.close()
        with patch.dict(default.settings_dict, built.address):
            yield built
            default.close()


def action(locked_by: str | None = None) -> AuditedAction:
    return AuditedAction(get_provider(), "job", locked_by, "ada", "the pod is gone")


def updating(table: str = "shedlock") -> str:
    """Return how an UPDATE of this table begins."""
    return f"UPDATE {connections['default'].ops.quote_name(table)} SET"


def only_row() -> LockAction:
    return LockAction.objects.get()


@pytest.mark.parametrize("losses", [1, 2])
def test_release_is_recognised(to_server: Bridge, losses: int) -> None:
    """A release is recognised as done even if the reply to a second try is lost."""
    take("job")
    to_server.lose_replies_to(updating(), losses)
    assert ReleaseLock().carry_out(action())
    assert state("job") is LockState.FREE
    assert only_row().result == ActionResult.DONE


@pytest.mark.parametrize("losses", [1, 2])
def test_extension_is_recognised(to_server: Bridge, losses: int) -> None:
    """The lease is as long as it was asked for."""
    take("job")
    to_server.lose_replies_to(updating(), losses)
    answer = ExtendLease(lock_at_most_for=HOUR).carry_out(action())
    told = rounded_up(answer.detail)
    assert told == "Lock 'job' is held for 1h more at the most."
    assert only_row().detail == answer.detail


@pytest.mark.parametrize("losses", [1, 2])
def test_pause_is_recognised(to_server: Bridge, losses: int) -> None:
    """A pause is recognised by its own identity after lost replies."""
    take("job").release()
    to_server.lose_replies_to(updating(), losses)
    assert PauseJob().carry_out(action())
    status = status_of(get_provider(), "job")
    assert status.pause == Pause("ada", "the pod is gone")
    assert only_row().result == ActionResult.DONE


@pytest.mark.parametrize("losses", [1, 2])
def test_resume_is_recognised(to_server: Bridge, losses: int) -> None:
    """The job is not told to be paused, when it is not."""
    pause("job")
    to_server.lose_replies_to(updating(), losses)
    assert ResumeJob().carry_out(action())
    assert state("job") is LockState.FREE
    assert only_row().result == ActionResult.DONE


@pytest.mark.parametrize("losses", [1, 2])
def test_request_is_recognised(to_server: Bridge, losses: int) -> None:
    """
    A request is recognised on the record after lost replies.

    The operator need not ask again.
    """
    with scheduled_jobs() as kept:
        assert kept.report  # registered as long as somebody knows it
        take("report").release()
        note_catch_up(get_provider())
        to_server.lose_replies_to(updating(), losses)
        answer = RequestRun().carry_out(replace(action(), name="report"))
    assert answer.result is ActionResult.REQUESTED
    assert status_of(get_provider(), "report").job.asked_by == "ada"
    assert only_row().result == ActionResult.REQUESTED


@pytest.mark.parametrize("losses", [1, 2])
def test_withdrawal_is_recognised(to_server: Bridge, losses: int) -> None:
    """The request is gone, whatever became of the reply."""
    take("job").release()
    get_provider().request_run("job", "bob", "at once")
    to_server.lose_replies_to(updating(), losses)
    assert WithdrawRequest().carry_out(action()).result is ActionResult.DONE
    assert status_of(get_provider(), "job").job.asked_at is None


def test_next_acquisition_is_not_released(
    to_server: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that is sent again spares whoever acquired the lock in between."""
    take("job")
    to_server.lose_replies_to(updating())
    take_back = DatabaseLockProvider.replace
    others: list[Any] = []

    def release(self: DatabaseLockProvider, *args: Any, **options: Any) -> bool:
        # The first UPDATE, whose reply is lost; then a worker, then the second one.
        assert take_back(self, *args, **options)
        others.append(take("job"))
        return take_back(self, *args, **options)

    monkeypatch.setattr(DatabaseLockProvider, "replace", release)
    assert not ReleaseLock().carry_out(action())
    assert state("job") is LockState.RUNNING
    assert f"its job is running as {others[0].locked_by}" in only_row().detail


def test_reply_of_the_row_is_lost(to_server: Bridge) -> None:
    """The action has one row all the same, with its result."""
    take("job")
    table = connections["default"].ops.quote_name("shedlock_action")
    to_server.lose_replies_to(f"INSERT INTO {table}")
    assert ReleaseLock().carry_out(action())
    assert only_row().result == ActionResult.DONE


def test_what_nobody_can_know_is_told(
    to_server: Bridge, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the record does not show it either, the answer says that nobody knows."""
    take("job")
    to_server.lose_replies_to(updating(), 2)
    monkeypatch.setattr(AuditedAction, "look", lambda *of: None)
    answer = ReleaseLock().carry_out(action())
    assert not answer
    told = (
        "Nobody knows whether lock 'job' is released: the store did not answer, and "
        "can't be read."
    )
    assert answer.detail == told
    assert told in caplog.text
    assert (only_row().result, only_row().detail) == (ActionResult.STARTED, told)


@pytest.mark.parametrize(
    "call",
    [
        ("release", "--force", "--reason", "x"),
        ("extend", "1h"),
        ("pause", "--reason", "x"),
        ("resume",),
    ],
    ids=lambda call: call[0],
)
def test_command_ends_with_1_if_nobody_knows(
    to_server: Bridge, monkeypatch: pytest.MonkeyPatch, call: tuple[str, ...]
) -> None:
    """No status of a refusal: a script must not take the job for running, or free."""
    name, *rest = call
    if name == "resume":
        pause("job")
    else:
        take("job")
    if name == "pause":
        assert force_release(get_provider(), "job")
    to_server.lose_replies_to(updating(), 2)
    monkeypatch.setattr(AuditedAction, "look", lambda *of: None)
    with pytest.raises(CommandError, match="Nobody knows") as caught:
        run(name, "job", *rest)
    assert caught.value.returncode == ExitStatus.FAILED


def test_admin_tells_what_happened(to_server: Bridge) -> None:
    """The admin's page and log have the true result of a release after lost replies."""
    client = operator("view_lockrecord", "release_lockrecord")
    lock = take("job")
    to_server.lose_replies_to(updating(), 2)
    page = confirm(client, "job", lock.locked_by).content.decode()
    assert "is released." in page
    assert "is released." in LogEntry.objects.get().change_message
    assert only_row().result == ActionResult.DONE


def test_admin_tells_that_nobody_knows(
    to_server: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outcome that is unknown is in the admin's log as such."""
    client = operator("view_lockrecord", "release_lockrecord")
    lock = take("job")
    to_server.lose_replies_to(updating(), 2)
    monkeypatch.setattr(AuditedAction, "look", lambda *of: None)
    page = confirm(client, "job", lock.locked_by).content.decode()
    assert "Nobody knows whether lock" in page
    assert "Nobody knows" in LogEntry.objects.get().change_message


def test_lock_that_was_free_is_not_told_as_released(to_server: Bridge) -> None:
    """Nothing was done then, though the record looks as after a release."""
    take("job").release()
    to_server.lose_replies_to(updating(), 2)
    answer = ReleaseLock().carry_out(action())
    assert answer.result is ActionResult.STARTED
    assert "A moment later: nobody holds it." in answer.detail
