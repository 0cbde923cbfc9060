"""The admin with records that people and other programs wrote by SQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.urls import reverse

from django_shedlock.models import LockRecord, LockRun
from tests.support.by_hand import ago, far, write
from tests.support.locks import add_run, take
from tests.support.operators import ALL, CHANGE, LIST, RUN, RUNS, ask, operator
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


NONSENSE = (
    ("schedule", "every full moon"),
    ("schedule", "0 0 30 2 * UTC"),
    ("locked_by", "\u202ea:b:c:"),
    ("locked_by", f"host:{'9' * 200}:x"),
    ("locked_by", ""),
)


def bad_records() -> Iterator[str]:
    """Write a record for each kind of nonsense, and return its name."""
    for number, text in enumerate([*far(), *ago()]):
        for column in ("lock_until", "locked_at", "tick", "due_at", "released_at"):
            name = f"{column}-{number}"
            take(name)
            write("shedlock", name, **{column: text, "schedule": "@hourly UTC"})
            yield name
    for number, (column, text) in enumerate(NONSENSE):
        name = f"{column}-nonsense-{number}"
        take(name)
        write("shedlock", name, **{column: text})
        yield name


def test_locks() -> None:
    """Each has its page, all are in the list, and none hides another."""
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


def test_runs() -> None:
    """A run of whatever year is shown, and so is the one after it."""
    add_run("good")
    for number, text in enumerate([*far(), *ago()]):
        add_run(f"run-{number}")
        write("shedlock_run", f"run-{number}", started=text, finished=text)
    client = operator(*ALL)
    page = client.get(reverse(RUNS))
    assert page.status_code == 200
    assert "good" in page.content.decode()
    for run in LockRun.objects.all():
        assert client.get(reverse(RUN, args=[run.pk])).status_code == 200
