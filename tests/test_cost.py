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
from tests.support.locks import MINUTE, add_run, state, take
from tests.support.operators import confirm, statements
from tests.support.statements import says

OURS = str(Path(django_shedlock.__file__).parent)
DAILY = daily_far_from_now(settings.TIME_ZONE)
pytestmark = pytest.mark.django_db

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
    """So short is the way of a free lock from the decorator to its UPDATE."""

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
    """Return how many functions of ours a call runs, receivers included."""
    calls: list[str] = []

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            calls.append(frame.f_code.co_qualname)

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    assert through in calls
    return len(calls)


def nothing() -> None:
    pass


@pytest.mark.parametrize("way", ["decorator", "execute()"])
def test_skip_is_45_calls_at_the_most(way: str) -> None:
    """For a lock that another worker holds."""
    decorated = scheduler_lock("job", lock_at_most_for="1m")(nothing)

    def skip() -> None:
        if way == "decorator":
            decorated()
        else:
            execute(nothing, "job", lock_at_most_for="1m")

    with held_elsewhere("job"):
        skip()
        assert count_calls(skip) <= 45
        with CaptureQueriesContext(connection) as queries:
            skip()
        verbs = [each["sql"].split()[0] for each in queries.captured_queries]
        # In a test, that is in a transaction, SQLite gets a savepoint for them.
        assert [verb for verb in verbs if len(verb) == 6] == ["UPDATE", "SELECT"]


def test_call_is_90_calls_at_the_most(job: Callable[[], None]) -> None:
    """That many functions run for an acquisition, a release, and all receivers."""
    assert count_calls(job) <= 90


def test_recorded_call_is_some_more() -> None:
    """The history writes a row, and finishes it."""
    assert count_calls(make_job(history=True)) <= 130


def test_call_with_a_schedule_is_some_more() -> None:
    """Its decision costs a statement, and the search for some ticks."""
    job = make_job(history=False, schedule=DAILY)
    assert count_calls(job) <= 180
    assert len(frames) == 1


def test_skipped_tick_is_cheap() -> None:
    """Nothing is written, and nothing released."""
    job = make_job(history=False, schedule=DAILY)
    job()
    assert count_calls(job) <= 120
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
    """From the admin's view to the UPDATE that releases the lock."""

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


def test_release_is_eight_statements(root: Client) -> None:
    """With two of session and user, and none for a list that the redirect hides."""
    lock = take("billing")
    with CaptureQueriesContext(connection) as queries:
        confirm(root, "billing", lock.locked_by, follow=False)
    assert len(statements(queries)) <= 8, statements(queries)
    assert state("billing") is LockState.FREE


def test_check_of_a_calm_project_is_390_calls_at_the_most() -> None:
    """With a handful of locks, of which some are held, and their last runs."""
    for number in range(5):
        execute(lambda: None, f"job-{number}", lock_at_most_for="1m")
    take("running")
    add_run("running")
    take("kept", lock_at_least_for=MINUTE).release()

    def check() -> None:
        call_command("shedlock", "check", stdout=printed)

    printed = io.StringIO()
    check()
    assert count_calls(check, "Search.verdict") <= 390
    assert printed.getvalue() == 2 * "No findings.\n"
