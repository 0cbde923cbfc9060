"""Runs that an operator asks for: who carries them out, once, and what came of it."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import django
import pytest
from django.core.management import CommandError
from django.db import DatabaseError, connection
from django.test import modify_settings, override_settings

from django_shedlock import scheduler_lock
from django_shedlock.console.operators import (
    RUN,
    WITHDRAW,
    Answer,
    OperatorAction,
    trail,
)
from django_shedlock.console.operators.requests import (
    carry_out_requests,
    run_now,
    worker_backend,
)
from django_shedlock.console.operators.trail import Trail
from django_shedlock.exceptions import LockProviderError
from django_shedlock.fields import DatabaseNow
from django_shedlock.models import (
    ActionKind,
    ActionResult,
    LockAction,
    LockRecord,
    LockRun,
)
from django_shedlock.providers import get_provider
from django_shedlock.test import held_elsewhere
from tests.models import Body
from tests.support.commands import run
from tests.support.jobs import DAILY, Jobs, only_jobs_of, ran, scheduled_jobs
from tests.support.locks import pause, status_of, take
from tests.support.processes import Parent, context, workers
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)
MEMORY = {
    "default": {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"},
}
PACKAGE = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
BaseTaskBackend: Any = importlib.import_module(
    f"{PACKAGE}.backends.base"
).BaseTaskBackend


@pytest.fixture(autouse=True)
def jobs() -> Iterator[Jobs]:
    with scheduled_jobs() as made:
        yield made


def ask(name: str = "report", **more: Any) -> Answer:
    by = {"operator": "ada", "reason": "the mail was lost"}
    provider = get_provider()
    return RUN.carry_out(OperatorAction(provider, name, **{**by, **more}))


def carry_out() -> list[tuple[LockAction, Answer]]:
    return list(carry_out_requests(get_provider()))


@contextmanager
def without_trail() -> Iterator[None]:
    """Take the trail's table away, as before the ``migrate`` that makes it."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE shedlock_action RENAME TO elsewhere")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO shedlock_action")


def only_row() -> LockAction:
    return LockAction.objects.exclude(kind=ActionKind.CATCH_UP).get()


def test_request_waits_for_a_catch_up() -> None:
    """Nothing runs where it is made."""
    answer = ask()
    assert answer.result is ActionResult.REQUESTED
    assert (
        "The next `python manage.py shedlock catch-up` will run the job"
        in answer.detail
    )
    row = only_row()
    assert (row.kind, row.result, row.ended) == (
        ActionKind.RUN,
        ActionResult.REQUESTED,
        None,
    )
    assert (row.operator, row.reason) == ("ada", "the mail was lost")
    assert ran == []


def test_catch_up_carries_it_out_once(jobs: Jobs) -> None:
    """Though its tick is done; the run and the trail tell who asked, and why."""
    jobs.report()
    ran.clear()
    ask()
    told = run("catch-up")
    assert "The job of lock 'report' has run, for " in told
    assert "ada asked for it: the mail was lost" in told
    assert run("catch-up") == ""
    assert ran == ["report"]
    assert only_row().result == ActionResult.DONE
    assert only_row().detail.startswith("The job of lock 'report' has run, for ")
    last = LockRun.objects.order_by("pk").last()
    assert last is not None
    assert (last.trigger, last.operator, last.reason) == (
        "operator",
        "ada",
        "the mail was lost",
    )


@pytest.mark.each_store
def test_failure_is_written() -> None:
    """The trail has the exception, and the catch-up fails as with an overdue job."""
    ask("failing")
    with pytest.raises(CommandError, match="Jobs that failed: "):
        run("catch-up")
    assert only_row().result == ActionResult.FAILED
    assert only_row().detail == (
        "The job of lock 'failing' failed with ZeroDivisionError: by nobody"
    )


def test_nothing_starts_after_a_signal() -> None:
    """Its handler raises SystemExit in the job that runs, and the process ends."""

    @scheduler_lock("ended")
    def end() -> None:
        sys.exit(128 + signal.SIGTERM)

    ask("ended")
    ask("report")
    with pytest.raises(SystemExit):
        carry_out()
    assert ran == []
    assert [request.name for request in Trail(get_provider()).requests()] == ["report"]


@pytest.mark.each_store
def test_failure_that_tells_nothing_is_written() -> None:
    """An exception without a text does not stop the other requests."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    @scheduler_lock("mute")
    def mute() -> None:
        raise Mute

    ask("mute")
    ask("report")
    assert [answer.result for _, answer in carry_out()] == [
        ActionResult.FAILED,
        ActionResult.DONE,
    ]


def test_held_lock_refuses_the_run() -> None:
    """The trail tells who held the lock; the request is not tried again."""
    ask()
    lock = take("report")
    [(_, answer)] = carry_out()
    assert answer.result is ActionResult.REFUSED
    assert only_row().detail == (
        f"The job of lock 'report' was not started: its job is running as "
        f"{lock.locked_by}."
    )
    lock.release()
    assert (carry_out(), ran) == ([], [])


def test_paused_job_is_not_run() -> None:
    """The trail tells who paused it, and why."""
    ask()
    pause("report")
    carry_out()
    assert "alice paused it, because: the mail server moves" in only_row().detail
    assert ran == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("remind", "its job needs arguments"),
        ("typo", "no such job is known in this process"),
    ],
)
def test_what_cannot_be_started_is_refused(name: str, why: str) -> None:
    """No request waits for what will never be carried out."""
    assert why in ask(name).detail
    assert not LockAction.objects.exists()


def test_provider_without_a_database_refuses_each_request() -> None:
    """For every lock, with the reason: nothing could keep the request."""
    with override_settings(SHEDLOCK_PROVIDERS=MEMORY):
        memory = get_provider()
        names = ["report", "typo"]
        why = "its provider has no database for the request"
        assert RUN.obstacles(memory, names) == dict.fromkeys(names, why)
        assert WITHDRAW.obstacles(memory, names) == dict.fromkeys(
            names, "nobody asks for a run of its job"
        )
        answer = ask()
    assert answer.result is ActionResult.REFUSED
    assert answer.detail == f"The job of lock 'report' was not started: {why}."
    assert not LockAction.objects.exists()


def test_second_request_is_refused() -> None:
    """As long as the first one is open."""
    ask()
    LockAction.objects.update(began=DatabaseNow() - DAY / 48)
    answer = ask(operator="bob")
    assert answer.result is ActionResult.REFUSED
    assert "ada asked for a run 30m" in answer.detail
    assert only_row().operator == "ada"
    assert ask("fetch").result is ActionResult.REQUESTED


def test_expired_request_is_not_carried_out() -> None:
    """A catch-up that comes an hour later says so in the trail, and runs nothing."""
    ask()
    LockAction.objects.update(began=DatabaseNow() - DAY / 23.9)
    assert "asked for a run" not in run("catch-up", "--dry-run")
    assert carry_out() == []
    row = LockAction.objects.get(kind=ActionKind.RUN)
    assert (row.result, row.detail) == (
        ActionResult.REFUSED,
        "It expired: nobody carried it out within 1h.",
    )
    assert row.ended is not None
    assert ran == []


def test_request_expires_by_the_databases_clock() -> None:
    """The UPDATE that claims it decides, however long ago it was read."""
    ask()
    rows = Trail(get_provider())
    [read] = rows.requests()
    LockAction.objects.update(began=DatabaseNow() - DAY)
    assert not rows.claim(read.pk, read.name)
    with override_settings(SHEDLOCK_REQUEST_LIFETIME="2d"):
        assert rows.claim(read.pk, read.name)


def test_next_request_closes_an_expired_one() -> None:
    """It does not keep anybody from asking again."""
    ask()
    LockAction.objects.update(began=DatabaseNow() - DAY)
    assert ask(operator="bob").result is ActionResult.REQUESTED
    results = LockAction.objects.order_by("pk").values_list("result", flat=True)
    assert list(results) == [ActionResult.REFUSED, ActionResult.REQUESTED]


def test_request_is_withdrawn(jobs: Jobs) -> None:
    """At the command line, with a row of its own, and of the request."""
    jobs.report()
    ran.clear()
    ask()
    told = run("withdraw", "report", "--reason", "it ran")
    assert told.strip() == "The request to run the job of lock 'report' is withdrawn."
    assert carry_out() == []
    request, withdrawal = LockAction.objects.by_operators().order_by("pk")
    assert request.result == ActionResult.REFUSED
    assert "withdrew it, because: it ran." in request.detail
    assert (withdrawal.kind, withdrawal.result) == ("withdraw", ActionResult.DONE)
    with pytest.raises(CommandError, match="nobody asks for a run of its job"):
        run("withdraw", "report")
    assert ran == []


def test_claimed_request_is_not_withdrawn(jobs: Jobs) -> None:
    """A worker that was faster carries it out."""
    jobs.report()
    ask()
    claimed = OperatorAction(get_provider(), "report", operator="bob")
    too_late = replace(WITHDRAW, obstacles=lambda *arguments: {})
    rows = Trail(get_provider())
    assert rows.claim(only_row().pk, "report")
    answer = too_late.carry_out(claimed)
    assert answer.result is ActionResult.REFUSED
    assert "No request for lock 'report' is withdrawn" in answer.detail


@pytest.mark.each_store
def test_acquisition_since_is_told(jobs: Jobs) -> None:
    """If the job has run since the operator looked, nothing is requested."""
    jobs.report()
    seen = status_of(get_provider(), "report").locked_by
    run("trigger", "report")
    LockAction.objects.all().delete()
    answer = ask(locked_by=seen)
    assert "somebody has acquired it since you looked" in answer.detail
    assert not LockAction.objects.exists()


def test_unknown_job_is_left_to_other_hosts() -> None:
    """Its request stays open."""
    ask()
    with only_jobs_of():
        assert carry_out() == []
        assert "asked for a run" not in run("catch-up", "--dry-run")
    assert "Lock 'report': ada asked for a run" in run("catch-up", "--dry-run")
    assert only_row().result == ActionResult.REQUESTED
    assert len(carry_out()) == 1


def test_run_closes_other_requests() -> None:
    """Two requests at once, as by a double click, run the job once."""
    ask()
    first = only_row()
    LockAction.objects.create(
        name="report",
        provider="default",
        kind=ActionKind.RUN,
        result=ActionResult.REQUESTED,
        operator="bob",
        began=first.began,
    )
    assert len(carry_out()) == 1
    assert ran == ["report"]
    second = LockAction.objects.get(operator="bob")
    assert second.result == ActionResult.REFUSED
    assert second.detail == "Its job was run meanwhile, by ada."


def test_trigger_closes_the_request() -> None:
    """What somebody runs by hand need not be run again."""
    ask()
    run("trigger", "report")
    assert carry_out() == []
    assert ran == ["report"]


def test_unprintable_operator_closes_the_request() -> None:
    """What the store can't keep is replaced in the words of the other's request."""
    ask()
    action = OperatorAction(get_provider(), "report", operator="ada\0")
    assert run_now(action, lambda *args, **by: True)
    request = LockAction.objects.get(operator="ada")
    assert request.result == ActionResult.REFUSED


@pytest.mark.each_store
def test_nothing_is_carried_out_without_locks() -> None:
    """With the locks off a request waits."""
    ask()
    with override_settings(SHEDLOCK_ENABLED=False):
        assert carry_out() == []
    assert Trail(get_provider()).last_catch_up() is None
    assert only_row().result == ActionResult.REQUESTED


def test_catch_up_is_seen() -> None:
    """In one row of the provider, which is updated each time."""
    rows = Trail(get_provider())
    assert rows.last_catch_up() is None
    run("catch-up")
    LockAction.objects.update(began=DatabaseNow() - DAY)
    before = rows.last_catch_up()
    run("catch-up")
    after = rows.last_catch_up()
    assert before is not None
    assert after is not None
    assert before < after
    assert LockAction.objects.get().name == ""
    assert not LockAction.objects.by_operators().exists()


@pytest.mark.django_db(transaction=True)
def test_missing_trail_keeps_no_overdue_job(caplog: pytest.LogCaptureFixture) -> None:
    """A catch-up runs what is overdue though it can't read what operators asked for."""
    run("catch-up")
    LockRecord.objects.filter(name="report").update(due_at=DatabaseNow() - DAY)
    with without_trail():
        assert "Lock 'report', overdue since" in run("catch-up")
    assert ran == ["report"]
    assert "No request of an operator is carried out: " in caplog.text


class TestTrigger:
    """``shedlock trigger`` runs here and now, with the trail."""

    def test_run_is_written(self) -> None:
        """With its reason and its result."""
        run("trigger", "report", "--reason", "the mail was lost")
        row = only_row()
        assert (row.kind, row.result) == (ActionKind.RUN, ActionResult.DONE)
        assert row.reason == "the mail was lost"

    def test_refusal_is_written(self) -> None:
        """Not as a run: the trail says who held the lock."""
        with held_elsewhere("report"), pytest.raises(CommandError):
            run("trigger", "report")
        row = only_row()
        assert row.result == ActionResult.REFUSED
        assert "was not started: its job is running as" in row.detail

    def test_paused_job_is_refused(self) -> None:
        """Nothing runs that somebody has paused: exit status 7."""
        pause("report")
        with pytest.raises(CommandError, match="alice paused it") as refusal:
            run("trigger", "report")
        assert refusal.value.returncode == 7
        assert ran == []

    @pytest.mark.parametrize("name", ["report", "failing"])
    def test_database_that_fails_meanwhile_changes_no_result(
        self,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        name: str,
    ) -> None:
        """The job has run, or raised its own exception, whatever the trail lacks."""

        def fail(*args: Any, **values: Any) -> Any:
            raise DatabaseError("the database is away")

        broken = replace(trail.JOURNAL, finished=fail)
        monkeypatch.setattr(trail, "JOURNAL", broken)
        for statement in ("CLOSE", "run_here"):
            monkeypatch.setattr(trail, statement, fail)
        failure = pytest.raises(ZeroDivisionError)
        with nullcontext() if name == "report" else failure:
            assert "has run, for" in run("trigger", name)
        assert ran == [name]
        assert "The trail of operators' actions lacks one" in caplog.text

    def test_failure_is_written_and_raised(self) -> None:
        """The operator sees the exception, and the trail has it."""
        with pytest.raises(ZeroDivisionError):
            run("trigger", "failing")
        assert only_row().result == ActionResult.FAILED
        assert "ZeroDivisionError: by nobody" in only_row().detail

    @pytest.mark.each_store
    @pytest.mark.django_db(transaction=True)
    def test_run_without_a_trail_is_told_as_it_was(self) -> None:
        """What can't be written neither fails a run nor hides what its job raised."""
        with without_trail():
            assert "The job of lock 'report' has run" in run("trigger", "report")
            with pytest.raises(ZeroDivisionError):
                run("trigger", "failing")
        assert ran == ["report", "failing"]

    def test_store_that_failed_closes_no_request(self) -> None:
        """The job has not run, so what somebody else asked for stays open."""
        ask()

        def start(*args: Any, **by: Any) -> bool:
            raise LockProviderError("the store is away")

        action = OperatorAction(get_provider(), "report", operator="bob")
        with pytest.raises(LockProviderError):
            run_now(action, start)
        assert LockAction.objects.get(operator="bob").result == ActionResult.FAILED
        assert len(carry_out()) == 1
        assert ran == ["report"]

    def test_exit_with_0_is_no_failure(self) -> None:
        """As commands end that call sys.exit()."""

        def start(*args: Any, **by: Any) -> bool:
            raise SystemExit(0)

        action = OperatorAction(get_provider(), "report")
        with pytest.raises(SystemExit):
            run_now(action, start)
        assert only_row().result == ActionResult.DONE


class Queue(BaseTaskBackend):  # type: ignore[misc]
    """A backend whose tasks wait until the test runs them."""

    waiting: list[Any] = []
    is_broken = False

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        if self.is_broken:
            raise ConnectionError("the broker is away")
        self.waiting.append(lambda: task.func(*args, **kwargs))
        return None


QUEUE = f"{__name__}.Queue"


class TestTasks:
    """Where the project has workers of django.tasks."""

    @pytest.fixture(autouse=True)
    def backend(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Let the project have the backend of the test's parameter, or the queue."""
        backend = getattr(request, "param", QUEUE)
        Queue.waiting.clear()
        with ExitStack() as stack:
            if django.VERSION < (6,):
                apps = modify_settings(INSTALLED_APPS={"append": PACKAGE})
                stack.enter_context(apps)
            tasks = {}
            if isinstance(backend, dict):
                tasks = {"default": {"BACKEND": QUEUE, **backend}}
            elif backend:
                tasks = {"default": {"BACKEND": backend}}
            stack.enter_context(override_settings(TASKS=tasks))
            yield

    def test_worker_carries_it_out(self) -> None:
        """The request is enqueued, and its task runs the job once."""
        answer = ask()
        assert "A worker of django.tasks will run the job" in answer.detail
        assert ran == []
        [task] = Queue.waiting
        assert "has run, for" in task()
        assert "Not carried out here" in task()
        assert ran == ["report"]
        assert only_row().result == ActionResult.DONE

    def test_worker_without_locks_leaves_it(self) -> None:
        """With the locks off it would run next to a job that holds its lock."""
        ask()
        with override_settings(SHEDLOCK_ENABLED=False):
            assert "Not carried out here" in Queue.waiting[0]()
        assert ran == []
        assert only_row().result == ActionResult.REQUESTED

    def test_catch_up_may_come_first(self) -> None:
        """Then the task finds nothing to do."""
        ask()
        assert len(carry_out()) == 1
        Queue.waiting[0]()
        assert ran == ["report"]

    @pytest.mark.each_store
    def test_task_fails_with_its_job(self) -> None:
        """So the queue's own tools show the failure."""
        ask("failing")
        with pytest.raises(ZeroDivisionError):
            Queue.waiting[0]()
        assert only_row().result == ActionResult.FAILED

    def test_queue_that_is_away_leaves_it_to_catch_up(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The request is written before, so it is not lost."""
        monkeypatch.setattr(Queue, "is_broken", True)
        assert "The next `python manage.py shedlock catch-up`" in ask().detail
        assert "the broker is away" in caplog.text
        assert len(carry_out()) == 1

    @pytest.mark.parametrize(
        "backend",
        [
            f"{PACKAGE}.backends.immediate.ImmediateBackend",
            f"{PACKAGE}.backends.dummy.DummyBackend",
            "tests.no_such.Backend",
            {"QUEUES": ["mail"]},
            None,
        ],
        indirect=True,
    )
    def test_backend_that_would_not_run_it_does_not_count(self) -> None:
        """It runs tasks in the web process, or never, or lacks the default queue."""
        assert worker_backend() is None
        assert "The next `python manage.py shedlock catch-up`" in ask().detail
        assert ran == []


RACERS = 4
REQUESTS = 15


def race(parent: Parent, barrier: Any) -> int:
    """Carry out what this host can get; return the number of requests."""
    with only_jobs_of():
        made = [note_body(f"job {number}") for number in range(REQUESTS)]
        barrier.wait(PATIENCE)
        assert len(made) == REQUESTS
        return len(carry_out())


def note_body(name: str) -> Any:
    @scheduler_lock(name, **DAILY)
    def job() -> None:
        Body.objects.create(name=name, token=0, worker="", begun_at=DatabaseNow())

    return job


def test_each_request_is_carried_out_once() -> None:
    """Of several hosts that catch up at once, one carries out each request."""
    with only_jobs_of():
        made = [note_body(f"job {number}") for number in range(REQUESTS)]
        for number in range(len(made)):
            assert ask(f"job {number}").result is ActionResult.REQUESTED
    barrier = context.Barrier(RACERS)
    with workers(RACERS, race, barrier) as racers:
        carried_out = [racer.result() for racer in racers]
    assert sum(carried_out) == REQUESTS
    assert Body.objects.count() == REQUESTS
    assert set(LockAction.objects.by_operators().values_list("result", flat=True)) == {
        ActionResult.DONE
    }
