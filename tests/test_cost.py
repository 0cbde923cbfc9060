"""What calls cost, counted and not timed."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

import django_shedlock
from django_shedlock import execute, scheduler_lock
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord
from django_shedlock.testing import held_elsewhere
from tests.support.clocks import daily_far_from_now
from tests.support.locks import MINUTE, add_run, expire, state, take
from tests.support.operators import confirm, statements
from tests.support.statements import says

OURS = str(Path(django_shedlock.__file__).parent)
DAILY = daily_far_from_now(settings.TIME_ZONE)
pytestmark = pytest.mark.django_db

ROOM = 1.1
"""A test fails if there are over 10 % more calls than its number."""

frames: list[list[str]] = []


def our_frames() -> list[str]:
    """Return the functions of the package that are being called, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(OURS):
            found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return found


def make_job(**options: Any) -> Callable[[], None]:
    """Return a job whose record is there, and whose statements are compiled."""

    @scheduler_lock("job", lock_at_most_for="1m", **options)
    def job() -> None:
        frames.append(our_frames())

    for _ in range(2):
        job()
        LockRecord.objects.update(tick=None)  # the next start is for its tick, too
    frames.clear()
    return job


@pytest.fixture
def job() -> Callable[[], None]:
    return make_job(history=False)


def test_body_is_two_frames_below_its_caller(job: Callable[[], None]) -> None:
    """A traceback of a job is not buried under the lock's own functions."""
    job()
    assert [len(found) for found in frames] == [2]


def test_update_is_nine_frames_below_the_call(job: Callable[[], None]) -> None:
    """The UPDATE of a free lock is at most nine frames below the decorator's call."""

    def look(execute: Any, sql: str, *arguments: Any) -> Any:
        if says(sql, "UPDATE"):
            frames.append(our_frames())
        return execute(sql, *arguments)

    with connection.execute_wrapper(look):
        job()
    acquisition, body, _release = frames
    assert len(acquisition) <= 9, acquisition
    assert len(body) == 2


def count_calls(call: Callable[[], None], through: str = "attempt") -> int:
    """Return how many named functions of ours a call runs, receivers included."""
    calls: list[str] = []

    def count(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        is_named = not code.co_name.startswith("<")  # some Pythons inline the others
        if event == "call" and is_named and code.co_filename.startswith(OURS):
            calls.append(code.co_qualname)

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    assert through in calls
    return len(calls)


def nothing() -> None:
    pass


def skip_by_decorator() -> None:
    scheduler_lock("job", lock_at_most_for="1m")(nothing)()


def skip_by_execute() -> None:
    execute(nothing, "job", lock_at_most_for="1m")


@pytest.mark.postgres_only
def test_skip_is_few_calls() -> None:
    """A skip of a held lock runs few functions of the package."""
    decorated = scheduler_lock("job", lock_at_most_for="1m")(nothing)
    with held_elsewhere("job"):
        for skip in (decorated, skip_by_execute):
            skip()
            assert count_calls(skip) <= ROOM * 40


@pytest.mark.parametrize("skip", [skip_by_decorator, skip_by_execute])
def test_skip_is_two_statements(skip: Callable[[], None]) -> None:
    """A skip of a lock that another worker holds is an UPDATE and a SELECT."""
    with held_elsewhere("job"):
        skip()
        with CaptureQueriesContext(connection) as queries:
            skip()
        verbs = [each["sql"].split()[0] for each in queries.captured_queries]
        # In a test, that is in a transaction, SQLite gets a savepoint for them.
        assert [verb for verb in verbs if len(verb) == 6] == ["UPDATE", "SELECT"]


@pytest.mark.postgres_only
def test_call_without_history_is_few_calls(job: Callable[[], None]) -> None:
    """A call without history runs few functions of the package."""
    assert count_calls(job) <= ROOM * 85


@pytest.mark.postgres_only
def test_call_with_history_is_few_calls() -> None:
    """The history writes a row, and finishes it."""
    assert count_calls(make_job(history=True)) <= ROOM * 108


@pytest.mark.postgres_only
def test_call_with_a_schedule_is_few_calls() -> None:
    """The decision for a tick costs a statement, and the search for some ticks."""
    job = make_job(history=True, schedule=DAILY)
    assert count_calls(job) <= ROOM * 159
    assert len(frames) == 1


@pytest.mark.postgres_only
def test_skipped_tick_is_few_calls() -> None:
    """A tick that was run is skipped without a write or a release."""
    job = make_job(history=True, schedule=DAILY)
    job()
    assert count_calls(job) <= ROOM * 82
    assert len(frames) == 1


@pytest.fixture
def root() -> Client:
    """A superuser in the admin, who has released a lock before."""
    User.objects.create_superuser("root", password="x")
    client = Client()
    client.login(username="root", password="x")
    confirm(client, "warm", take("warm").locked_by, follow=False)
    return client


def test_release_is_eleven_frames_below_its_request(root: Client) -> None:
    """The UPDATE of a release is at most eleven frames below the admin's request."""

    def look(execute: Any, sql: str, *arguments: Any) -> Any:
        if says(sql, "UPDATE", "shedlock"):
            frames.append(our_frames())
        return execute(sql, *arguments)

    lock = take("billing")
    frames.clear()
    with connection.execute_wrapper(look):
        confirm(root, "billing", lock.locked_by, follow=False)
    [update] = frames
    assert len(update) <= 11, update
    assert state("billing") is LockState.FREE


def test_release_is_seven_statements(root: Client) -> None:
    """With two of session and user, and none for a list that the redirect hides."""
    lock = take("billing")
    with CaptureQueriesContext(connection) as queries:
        confirm(root, "billing", lock.locked_by, follow=False)
    assert len(statements(queries)) == 7, statements(queries)
    assert state("billing") is LockState.FREE


@pytest.mark.postgres_only
def test_check_with_a_finding_is_few_calls() -> None:
    """Each monitor asks for a handful of locks, their last runs and one finding."""
    for number in range(5):
        execute(lambda: None, f"job-{number}", lock_at_most_for="1m")
    take("running")
    add_run("running")
    take("kept", lock_at_least_for=MINUTE).release()
    take("abandoned")
    expire("abandoned")

    def check() -> None:
        with pytest.raises(SystemExit):
            call_command("shedlock", "check", stdout=printed)

    printed = io.StringIO()
    check()
    assert count_calls(check, "Search.verdict") <= ROOM * 527
    assert "abandoned" in printed.getvalue()
