"""What starts the jobs of Celery's tasks, attempt by attempt; no worker is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from celery import Celery
from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from celery.signals import before_task_publish, task_postrun, task_prerun
from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured

from django_shedlock import current_lock, scheduler_lock
from django_shedlock.contrib.celery import apps
from django_shedlock.contrib.celery.apps import CeleryConfig
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Trigger
from tests.support.clocks import daily_far_from_now

pytestmark = pytest.mark.django_db

YEARLY = "0 0 29 2 *"
"""No test sees two of its ticks."""


@pytest.fixture(autouse=True)
def ready() -> Iterator[None]:
    """Have the app installed, twice, which is as good as once."""
    for _ in range(2):
        AppConfig.create(CeleryConfig.name).ready()
    yield
    assert before_task_publish.disconnect(apps.stamp)
    assert task_prerun.disconnect(apps.begin)
    assert task_postrun.disconnect(apps.end)
    assert not apps._attempts


@pytest.fixture
def app() -> Iterator[Celery]:
    with Celery("tests", fixups=set(), set_as_current=False) as app:
        yield app


# No task is shared: Celery would give it to the apps of all other tests.


@scheduler_lock("job")
def job() -> Trigger:
    return current_lock().configuration.start.trigger


@scheduler_lock("ajob")
async def ajob() -> Trigger:
    return current_lock().configuration.start.trigger


@pytest.mark.parametrize(
    ("request_", "trigger"),
    [
        (Context(), Trigger.SCHEDULER),
        (Context(retries=0, delivery_info=None), Trigger.SCHEDULER),
        (Context(delivery_info={"redelivered": False}), Trigger.SCHEDULER),
        (Context(delivery_info={"redelivered": True}), Trigger.RETRY),
        (Context(retries=1, delivery_info={"redelivered": False}), Trigger.RETRY),
    ],
    ids=["bare", "first", "delivered", "redelivered", "retried"],
)
def test_what_comes_again_is_a_retry(request_: Context, trigger: Trigger) -> None:
    """A message that Celery or the broker sends again, and no other."""
    assert apps.start_of(request_).trigger is trigger


@pytest.mark.each_store
@pytest.mark.parametrize("options", [{}, {"autoretry_for": (ConnectionError,)}])
def test_tick_is_tried_until_it_succeeds(app: Celery, options: Any) -> None:
    """Each retry runs the tick again; once it has succeeded, none does."""
    attempts = []

    @app.task(bind=True, shared=False, **options)
    @scheduler_lock("tick", schedule=YEARLY)
    def task(self: Any) -> int:
        attempts.append(self.request.retries)
        if len(attempts) < 3:
            raise ConnectionError if options else self.retry(countdown=0)
        return len(attempts)

    assert task.apply().get() == 3
    assert task.apply(retries=1).get() is None
    assert task.apply().get() is None
    assert attempts == [0, 1, 2]


def test_all_jobs_of_an_attempt_are_told(app: Celery) -> None:
    """Every job that a task calls gets the attempt's trigger, in any thread or loop."""

    @app.task(shared=False)
    def task() -> list[Trigger | None]:
        return [job(), async_to_sync(ajob)()]

    assert task.apply().get() == [Trigger.SCHEDULER] * 2
    assert task.apply(retries=1).get() == [Trigger.RETRY] * 2


def test_direct_call_is_no_retry(app: Celery) -> None:
    """After an attempt, and without one, the scheduler starts the job."""
    task = app.task(job, shared=False)
    assert task.apply(retries=1).get() is Trigger.RETRY
    assert job() is Trigger.SCHEDULER
    assert task() is Trigger.SCHEDULER


@pytest.mark.parametrize(
    "error", [None, ValueError, Retry, Ignore, Reject, SystemExit, KeyboardInterrupt]
)
@pytest.mark.parametrize(("outer", "inner"), [(0, 1), (1, 0)])
def test_task_in_a_task_is_an_attempt_of_its_own(
    app: Celery, outer: int, inner: int, error: type[BaseException] | None
) -> None:
    """
    A task inside a task has its own trigger, and the outer task keeps its own.

    This holds even if the inner task fails.
    """
    triggers: list[Trigger | None] = []
    kept = []  # so that no attempt ends because its request is forgotten

    @app.task(bind=True, shared=False)
    def called(self: Any) -> None:
        kept.append(self.request)
        triggers.append(job())
        if error is not None:
            raise error

    @app.task(bind=True, shared=False)
    def calling(self: Any) -> None:
        kept.append(self.request)
        triggers.append(job())
        _apply_anyway(lambda: called.apply(retries=inner))
        triggers.append(job())

    calling.apply(retries=outer)
    expected = [Trigger.RETRY if n else Trigger.SCHEDULER for n in (outer, inner)]
    assert triggers == [*expected, expected[0]]
    assert job() is Trigger.SCHEDULER


def _apply_anyway(apply: Callable[[], Any]) -> None:
    try:
        apply()
    except (SystemExit, KeyboardInterrupt):
        return


def test_end_without_a_beginning_changes_nothing(app: Celery) -> None:
    """A task during which the app was set up ends as any other."""
    task_prerun.disconnect(apps.begin)
    assert app.task(job, shared=False).apply(retries=1).get() is Trigger.SCHEDULER
    AppConfig.create(CeleryConfig.name).ready()


def test_missing_celery_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who installs the app without Celery is told at once what to do."""
    monkeypatch.setitem(sys.modules, "celery", None)
    config = CeleryConfig("django_shedlock.contrib.celery", apps)
    with pytest.raises(ImproperlyConfigured, match="Celery is missing: install"):
        config.ready()


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"eta": "2026-06-01T12:00:00+00:00"}, "2026-06-01T12:00:00+00:00"),
        ({apps.ASKED_AT_HEADER: "of the first message"}, "of the first message"),
    ],
    ids=["now", "at its eta", "a retry"],
)
def test_message_says_when_it_was_asked_for(
    headers: dict[str, str], expected: str | None
) -> None:
    """The instant is written once, so a retry or a late delivery is for its tick."""
    before = datetime.now(UTC)
    before_task_publish.send("task", headers=headers)
    said = headers[apps.ASKED_AT_HEADER]
    if expected is None:
        assert before <= datetime.fromisoformat(said) <= datetime.now(UTC)
    else:
        assert said == expected


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {apps.ASKED_AT_HEADER: "soon"},
        {apps.ASKED_AT_HEADER: 7},
        {apps.ASKED_AT_HEADER: "2026-06-01T12:00:00"},
    ],
)
def test_message_that_does_not_say_it(headers: Any) -> None:
    """A message of another program, or one without a zone, is for the newest tick."""
    assert apps.start_of(Context(headers=headers)).asked_at is None


def test_late_message_runs_its_own_tick(app: Celery) -> None:
    """A message of yesterday leaves today's tick to its own message."""
    daily = Schedule(daily_far_from_now(), "UTC")
    ticks = []

    @app.task(shared=False)
    @scheduler_lock("tick", schedule=daily)
    def task() -> None:
        ticks.append(current_lock().tick)

    newest, yesterday = islice(daily.ticks_until(datetime.now(UTC)), 2)
    late = {apps.ASKED_AT_HEADER: (yesterday + timedelta(hours=1)).isoformat()}
    for headers in (late, late, {}):
        assert task.apply(headers=headers).successful()
    assert ticks == [yesterday, newest]
