"""What is said when a finding is gone: what is true now, and no command."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import override_settings
from django.utils import translation

from django_shedlock import execute
from django_shedlock.clocks import local_text
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.notices import Change, News
from django_shedlock.console.monitoring.recovery import sentences_of_recovery
from django_shedlock.console.monitoring.search import UNREADABLE_HISTORY
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from tests.support.locks import end_run, expire, pause, take

pytestmark = pytest.mark.django_db


def said(kind: Kind, lock: str | None = "job", fact: str = "") -> str:
    """Return what is said now that a finding of this kind is gone."""
    news = News(Change.RECOVERED, "default", lock, kind, fact)
    [text] = sentences_of_recovery([news])
    assert "manage.py" not in text
    return text


def test_job_that_succeeded() -> None:
    """A recovery says when the job succeeded, and that nobody holds the lock."""
    execute(lambda: None, "job")
    ended_at = local_text(LockRecord.objects.get().ended_at)
    assert said(Kind.FAILED) == (
        "Lock 'job': the finding “failed” is over. Its last run succeeded at "
        f"{ended_at}. Now nobody holds it."
    )


def test_job_that_failed_again() -> None:
    """A recovery says how the last run ended, even if that run failed."""
    execute(lambda: None, "job")
    end_run("job", RunOutcome.FAILED)
    text = said(Kind.OVERDUE)
    begin = "Lock 'job': the finding “overdue” is over. Its last run failed at "
    assert text.startswith(begin)


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        ("timed out", "was ended, because its time limit was over, at "),
        ("lost", "ended at "),
        ("of a newer version", "ended at "),
    ],
)
def test_end_of_the_last_run_is_a_sentence(outcome: str, shown: str) -> None:
    """Whatever its outcome, also one that another version has written."""
    execute(lambda: None, "job")
    LockRecord.objects.update(outcome=outcome)
    assert f" Its last run {shown}" in said(Kind.OVERDUE)


def test_job_that_runs_again() -> None:
    """Who runs it stands there."""
    lock = take("job")
    assert f"Now its job is running as {lock.locked_by}." in said(Kind.OVERDUE)


def test_long_run_whose_lease_ended() -> None:
    """
    The end of a long run's lease does not say that the run has ended.

    The job may still be running.
    """
    take("job")
    expire("job")
    text = said(Kind.LONG)
    assert "Now its lease is over, but its job may still be running as " in text


def test_pause_that_replaced_another() -> None:
    """Who paused it now, and why."""
    pause("job")
    assert "Now alice paused it, because: the mail server moves" in said(Kind.PAUSED)


def test_record_that_is_gone() -> None:
    """Somebody has pruned it."""
    assert said(Kind.OVERDUE) == (
        "Lock 'job': the finding “overdue” is over. Now it has no record."
    )


def test_store_that_answers_again() -> None:
    """Each finding of a store has a sentence of its own."""
    assert (
        said(Kind.UNREACHABLE, None) == "Provider 'default': its store answers again."
    )
    assert "agree again" in said(Kind.CLOCK, None)
    assert "can be read again" in said(Kind.HISTORY, None, UNREADABLE_HISTORY)
    outgrown = said(Kind.HISTORY, None, "history outgrown")
    assert "has no run of more than a year ago" in outgrown
    assert "reported again" in said(Kind.MORE, None)


def test_scheduler_that_starts_jobs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that was started, when, and on which host."""
    assert "scheduled jobs are started again" in said(Kind.SILENT, None)
    execute(lambda: None, "job", schedule="every 1m")
    moved = F("locked_at") - timedelta(seconds=9)
    LockRecord.objects.update(locked_at=moved, locked_by="web-2:7:0123456789abcdef")
    at = local_text(LockRecord.objects.get().locked_at)
    assert said(Kind.SILENT, None) == (
        f"Provider 'default': host web-2 started the job of lock 'job' at {at}."
    )


def test_store_that_fails_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The news are told all the same, and in English."""

    def fail(*args: Any) -> Any:
        raise LockProviderError("gone")

    news = [
        News(Change.RECOVERED, "default", "job", Kind.FAILED, "failed 1"),
        News(Change.RECOVERED, "default", None, Kind.SILENT, "silent"),
    ]
    monkeypatch.setattr(get_provider(), "statuses", fail)
    with translation.override("de"):
        job, store = sentences_of_recovery(news)
    assert job == "Lock 'job': the finding “failed” is over."
    assert store.startswith("Provider 'default': scheduled jobs are started")


@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_has_a_sentence(kind: Kind) -> None:
    """Whatever was told can be told to be over, in whatever language."""
    with override_settings(LANGUAGE_CODE="de"):
        assert said(kind, "job" if kind.label != kind.value else None)
