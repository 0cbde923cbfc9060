"""The system check of Celery's tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from celery import Celery, shared_task
from django.apps import apps
from django.core.checks import run_checks

from django_shedlock import scheduler_lock
from django_shedlock.checks import check_celery
from django_shedlock.contrib.celery.apps import CeleryConfig
from tests.support.jobs import only_jobs_of

# Django's own checks ask each MySQL or MariaDB for its version.
pytestmark = pytest.mark.django_db(databases=["default", "other"])

DAILY = "0 6 * * *"
app = Celery("tests", fixups=set(), set_as_current=False)
# Celery gives shared tasks to the apps of all other tests, so there is only this one.
task = app.task(shared=False)
shared = shared_task(name="shop_tasks.shared")


@pytest.fixture(autouse=True)
def no_other_jobs() -> Iterator[None]:
    """Forget the jobs of other tests."""
    with only_jobs_of():
        yield


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module of the project, for its tasks."""
    module = ModuleType("shop_tasks")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def put_task(module: ModuleType, register: Any, **options: Any) -> None:
    """Put a function ``digest`` into the module, decorated as its source would."""

    def digest() -> None: ...

    digest.__module__, digest.__qualname__ = module.__name__, "digest"
    vars(module)["digest"] = register(scheduler_lock("digest", **options)(digest))


@pytest.mark.parametrize("register", [shared, task], ids=["shared", "of app"])
def test_w015_task_with_a_schedule(module: ModuleType, register: Any) -> None:
    """W015 names the task whose retries are skipped, and finalizes no app for that."""
    put_task(module, register, schedule=DAILY)
    [message] = [found for found in run_checks() if found.id == "shedlock.W015"]
    assert "the task shop_tasks.digest is skipped" in message.msg
    assert message.hint == f"Put {CeleryConfig.name!r} into INSTALLED_APPS."
    assert not app.finalized


def test_w015_task_of_an_app_that_is_final(module: ModuleType) -> None:
    """Tasks are found too where Celery has made them already."""
    with Celery("final", fixups=set(), set_as_current=False) as final:
        final.finalize()
        put_task(module, final.task(shared=False), schedule=DAILY)
        assert len(check_celery()) == 1


def test_task_without_schedule_needs_no_app(module: ModuleType) -> None:
    """The Celery check reports nothing for a task whose lock has no schedule."""
    put_task(module, task)
    assert check_celery() == []


def test_job_that_is_no_task_needs_no_app(module: ModuleType) -> None:
    """What no queue runs has no retries."""
    put_task(module, lambda job: job, schedule=DAILY)
    assert check_celery() == []


def test_app_that_is_installed_is_enough(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Celery check reports nothing if the Celery app is installed."""
    put_task(module, task, schedule=DAILY)
    monkeypatch.setattr(apps, "is_installed", CeleryConfig.name.__eq__)
    assert check_celery() == []


def test_project_without_celery_has_nothing_to_say(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Celery is missing, or nobody imported it, there are no tasks."""
    put_task(module, task, schedule=DAILY)
    monkeypatch.delitem(sys.modules, "celery")
    assert check_celery() == []
    monkeypatch.setitem(sys.modules, "celery", None)
    assert check_celery() == []
