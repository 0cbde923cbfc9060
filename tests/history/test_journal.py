"""The journal: rows that are written before something happens, and finished after."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from django.db import DatabaseError

from django_shedlock.history.journal import fitting
from django_shedlock.history.recording import RUNS, exception_columns
from django_shedlock.locks.configuration import ZERO
from django_shedlock.models import LockRun

pytestmark = pytest.mark.django_db

BEGUN: dict[str, Any] = {
    **dict.fromkeys(("name", "provider", "locked_by", "host"), "job"),
    **dict.fromkeys(("operator", "reason"), ""),
    "trigger": "scheduler",
    "pid": 1,
    "skips": 3,
    "ago": ZERO,
}
END: dict[str, Any] = {
    "outcome": "succeeded",
    "duration": timedelta(seconds=1),
    **exception_columns(None),
}


def test_row_is_begun_and_finished() -> None:
    """Its key leads from one to the other."""
    key = RUNS.begin("default", BEGUN)
    assert LockRun.objects.get(pk=key).outcome == "running"
    RUNS.finish("default", key, BEGUN, END)
    assert LockRun.objects.get(pk=key).outcome == "succeeded"


@pytest.mark.parametrize("is_there", [True, False])
def test_row_without_a_key_is_looked_for(*, is_there: bool) -> None:
    """If it was written all the same it is finished, and else made now."""
    if is_there:
        RUNS.begin("default", BEGUN)
    RUNS.finish("default", None, BEGUN, END)
    run = LockRun.objects.get()
    assert (run.outcome, run.skips) == ("succeeded", 3)


def test_what_cannot_be_written_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is raised, and the log names the lock and what is lacking."""

    def fail(*args: Any, **values: Any) -> NoReturn:
        raise DatabaseError("no room on the disk")

    assert replace(RUNS, inserted=fail).begin("default", BEGUN) is None
    assert "The history lacks a run of lock 'job': no room on the disk" in caplog.text


def test_without_a_database_nothing_is_written() -> None:
    """A provider may have no history."""
    assert RUNS.begin(None, BEGUN) is None
    RUNS.finish(None, None, BEGUN, END)
    assert not LockRun.objects.exists()


def test_texts_fit_in_their_columns() -> None:
    """In each database, with characters that it refuses written otherwise."""
    cut = fitting(operator="é" * 300, reason="a\0" + "b" * 3000)
    assert cut["operator"] == "é" * 255
    assert cut["reason"] == "a\\0" + "b" * 1997
