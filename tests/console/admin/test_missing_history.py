"""The console where the history can't be read: it says so, and shows what it knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from tests.console.admin.reading import (
    answers,
    briefs,
    cells,
    html_of,
    open_page,
    text,
)
from tests.support.locks import end_run, take
from tests.support.operators import LIST, RUNS, operator

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def without(table: str) -> Iterator[None]:
    """Let this table be missing, as before a migration."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO elsewhere")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE elsewhere RENAME TO {table}")


@pytest.fixture
def reader() -> Client:
    return operator(
        "view_lockrecord", "view_lockrun", "view_lockaction", "release_lockrecord"
    )


@pytest.mark.parametrize("table", ["shedlock_run", "shedlock_action"])
def test_list_shows_findings_and_says_what_is_missing(
    reader: Client, table: str
) -> None:
    """A failed job is shown as failed, though the history can't be read."""
    end_run("billing", RunOutcome.FAILED)
    take("running")
    with without(table):
        page = reader.get(reverse(LIST))
        html = html_of(page)
    assert "a table is missing in database 'default'" in text(html)
    assert re.search("<code[^>]*>python manage.py migrate</code>", html)
    shown = briefs(html)
    assert list(shown) == ["billing"]
    assert [line.split()[0] for line in shown["billing"]] == ["Failed"]
    assert cells(page, "current_state") == ["free", "running"]
    assert cells(page, "shown_last_run") == ["failed 0ms", "-"]


@pytest.mark.parametrize("table", ["shedlock_run", "shedlock_action"])
def test_page_of_a_lock_shows_what_its_record_says(reader: Client, table: str) -> None:
    """A lock's page shows its record's state, and says why the runs are missing."""
    lock = take("billing")
    with without(table):
        html = html_of(open_page(reader))
    assert "a table is missing in database 'default'" in text(html)
    assert lock.locked_by in html
    assert "No job runs under this lock." not in html


def test_list_of_runs_says_that_they_cannot_be_read(reader: Client) -> None:
    """The list of runs says that the database failed."""
    with without("shedlock_run"):
        page = reader.get(reverse(RUNS))
    assert page.status_code == 503


def test_job_whose_end_nobody_knows_is_not_said_to_be_over(reader: Client) -> None:
    """A job whose last run has not reported its end is not said to be over."""
    end_run("billing", RunOutcome.ABANDONED)
    alive = answers(html_of(open_page(reader)))[2]
    assert alive == "Not known: its last run has not reported its end."
    assert LockRecord.objects.get().outcome == Kind.ABANDONED
