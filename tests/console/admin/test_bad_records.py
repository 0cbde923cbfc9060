"""The admin with records that people and other programs wrote by SQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.urls import reverse

from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.models.records import INSTANT_COLUMNS
from django_shedlock.providers import get_provider
from tests.support.last_runs import end_run
from tests.support.locks import take
from tests.support.operators import ALL, CHANGE, HOSTILE, LIST, ask, operator
from tests.support.records import write_columns
from tests.support.zones import project

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(
    autouse=True,
    params=[
        (True, "America/Chicago"),
        (False, "America/Chicago"),
        (False, "Asia/Tokyo"),
    ],
)
def _project(request: pytest.FixtureRequest) -> Iterator[None]:
    use_tz, zone = request.param
    with project(use_tz=use_tz, zone=zone, database_zone=None):
        yield


LONGEST_PAUSES = ("9999-12-31", "9999-12-31 23:59:59", "9999-12-31 23:59:59.999999")
"""What people write who pause a job by hand."""
INFINITY = {"postgresql": ("infinity",)}
EXTREMES = ("0001-01-03 00:00:00", "9999-12-29 00:00:00")
"""What is readable in each zone."""
NONSENSE = (
    ("schedule", "every full moon"),
    ("schedule", "0 0 30 2 * UTC"),
    ("locked_by", "\u202ea:b:c:"),
    ("locked_by", f"host:{'9' * 200}:x"),
    ("locked_by", ""),
    ("outcome", "asleep"),
    ("open_run", "\u202ea:b:c:"),
    ("last_run", ""),
    ("asked_by", HOSTILE),
)


def bad_records() -> Iterator[str]:
    """Write a record for each kind of nonsense, and return its name."""
    instants = [(column, text) for column in INSTANT_COLUMNS for text in EXTREMES]
    longest = (*LONGEST_PAUSES, *INFINITY.get(connection.vendor, ()), *EXTREMES)
    pauses = [("lock_until", text) for text in longest]
    for number, (column, text) in enumerate([*instants, *pauses, *NONSENSE]):
        name = f"{column}-{number}"
        take(name)
        end_run(name, RunOutcome.LOST)
        get_provider().request_run(name, "alice", "a customer waits")
        columns = {"schedule": "@hourly UTC", "open_run": "", column: text}
        write_columns("shedlock", name, **columns)
        yield name


def test_locks() -> None:
    """Each bad record has its page, all are listed, and none hides another."""
    take("good")
    names = list(bad_records())
    client = operator(*ALL)
    page = client.get(reverse(LIST) + "?all=")
    assert page.status_code == 200
    shown = page.content.decode()
    assert all(name in shown for name in ["good", *names])
    assert ask(client, "good", *names).status_code == 200
    for name in names:
        page = client.get(reverse(CHANGE, args=[LockRecord(name=name).pk]))
        assert page.status_code == 200
        assert name in page.content.decode()
