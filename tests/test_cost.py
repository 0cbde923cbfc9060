"""What a call of a decorated job costs, counted and not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

import django_shedlock
from django_shedlock import scheduler_lock
from django_shedlock.locks.states import LockState
from tests.support.locks import state, take
from tests.support.operators import confirm, statements

OURS = str(Path(django_shedlock.__file__).parent)
RECEIVERS = str(Path(OURS, "contrib"))
"""Those of apps that a project may leave out."""

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


@pytest.fixture
def job() -> Callable[[], None]:
    """A job whose record is there, and whose statements are compiled."""
    frames.clear()

    @scheduler_lock("job", lock_at_most_for="1m", history=False)
    def job() -> None:
        frames.append(our_frames())

    job()
    job()
    frames.clear()
    return job


def test_body_is_two_frames_below_its_caller(job: Callable[[], None]) -> None:
    """A traceback of a job is not buried under the lock's own functions."""
    job()
    assert [len(found) for found in frames] == [2]


def test_update_is_seven_frames_below_the_call(job: Callable[[], None]) -> None:
    """So short is the way of a free lock from the decorator to its UPDATE."""

    def look(execute: Any, sql: str, *arguments: Any) -> Any:
        if sql.startswith("UPDATE"):
            frames.append(our_frames())
        return execute(sql, *arguments)

    with connection.execute_wrapper(look):
        job()
    acquisition, body, _release = frames
    assert len(acquisition) <= 7, acquisition
    assert len(body) == 2


def test_call_is_a_hundred_calls_at_the_most(job: Callable[[], None]) -> None:
    """That many functions of ours run for an acquisition and a release."""
    calls: list[str] = []

    def count(frame: FrameType, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(OURS) and not path.startswith(RECEIVERS):
            calls.append(frame.f_code.co_qualname)

    sys.setprofile(count)
    try:
        job()
    finally:
        sys.setprofile(None)
    assert "attempt" in calls
    assert len(calls) <= 100


@pytest.fixture
def root() -> Client:
    """A superuser in the admin, who has released a lock before."""
    User.objects.create_superuser("root", password="x")
    client = Client()
    client.login(username="root", password="x")
    confirm(client, "warm", take("warm").locked_by, follow=False)
    return client


def test_release_is_ten_frames_below_its_request(root: Client) -> None:
    """From the admin's view to the UPDATE that releases the lock."""

    def look(execute: Any, sql: str, *arguments: Any) -> Any:
        if sql.startswith(f"UPDATE {connection.ops.quote_name('shedlock')} "):
            frames.append(our_frames())
        return execute(sql, *arguments)

    lock = take("billing")
    frames.clear()
    with connection.execute_wrapper(look):
        confirm(root, "billing", lock.locked_by, follow=False)
    [update] = frames
    assert len(update) <= 10, update
    assert state("billing") is LockState.FREE


def test_release_is_eight_statements(root: Client) -> None:
    """With two of session and user, and none for a list that the redirect hides."""
    lock = take("billing")
    with CaptureQueriesContext(connection) as queries:
        confirm(root, "billing", lock.locked_by, follow=False)
    assert len(statements(queries)) <= 8, statements(queries)
    assert state("billing") is LockState.FREE
