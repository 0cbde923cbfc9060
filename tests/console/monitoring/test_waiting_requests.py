"""A request to run a job that nobody carries out is a finding."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from django.test import modify_settings

from django_shedlock.clocks import aware
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.lock import process_of
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockQuery
from django_shedlock.registry.requests import has_to_wait
from tests.support.commands import call
from tests.support.locks import MINUTE, expire, pause, take

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
SEARCH = Search(5 * MINUTE)


def ask(ago: timedelta, who: str = "ada", why: str = "a customer waits") -> None:
    """Let somebody have asked for a run so long ago; the job was last run before."""
    if not LockRecord.objects.filter(name="job").exists():
        take("job").release()
    get_provider().request_run("job", who, why)
    moved = {"asked_at": F("asked_at") - ago}
    if not LockRecord.objects.held().exists():
        moved |= {each: F(each) - 2 * HOUR for each in ("locked_at", "lock_until")}
        moved["released_at"] = F("released_at") - 2 * HOUR
    LockRecord.objects.update(**moved)


def found() -> list[Finding]:
    return SEARCH.attention(get_provider()).findings.get("job", [])


@pytest.mark.each_store
def test_request_that_waits_is_found_after_some_minutes() -> None:
    """A catch-up that is called every minute carries it out before."""
    ask(4 * MINUTE)
    assert found() == []
    LockRecord.objects.all().delete()
    ask(6 * MINUTE)
    [finding] = found()
    asked_at = LockRecord.objects.get().asked_at
    assert asked_at is not None
    assert finding.kind is Kind.REQUEST
    assert finding.fact == f"request {aware(asked_at).isoformat()}"
    assert finding.sentence.startswith("ada asked for a run at ")
    assert finding.sentence.endswith(
        "because: a customer waits. No host has started it. Check whether a beat runs, "
        "or a catch-up is called."
    )
    assert finding.command == "python manage.py shedlock catch-up job"
    with modify_settings(INSTALLED_APPS={"remove": "django_shedlock.beat"}):
        assert finding.command == "python manage.py shedlock show job"
        after = "python manage.py shedlock trigger job"
        assert finding.advice.command_after_look == after


@pytest.mark.parametrize("ago", [6 * MINUTE, 2 * HOUR])
def test_request_beside_a_run_that_may_go_on(ago: timedelta) -> None:
    """No command starts the job before somebody has looked at that process."""
    lock = take("job")
    ask(ago)
    expire("job")
    LockRecord.objects.update(locked_at=F("locked_at") - 3 * HOUR)
    finding = next(each for each in found() if each.kind is Kind.REQUEST)
    assert finding.sentence.endswith(
        f"Its last run may still go on in process {process_of(lock.locked_by)}."
    )
    assert finding.command == "python manage.py shedlock show job"
    assert "trigger" not in finding.in_detail()
    assert "catch-up" not in finding.in_detail()


def test_request_beside_another_services_lock_is_carried_out() -> None:
    """Nobody can release the run before that, so the request would wait for ever."""
    take("job")
    get_provider().request_run("job", "ada", "a customer waits")
    expire("job")
    [status] = get_provider().statuses(LockQuery(names=["job"]))
    assert has_to_wait(status)
    LockRecord.objects.update(locked_by="java")
    [status] = get_provider().statuses(LockQuery(names=["job"]))
    assert not has_to_wait(status)


def test_request_that_has_expired_is_not_forgotten() -> None:
    """Who asked for it learns that nobody ran the job."""
    ask(2 * HOUR, who="", why="")
    [finding] = found()
    assert finding.sentence.startswith("An unnamed operator asked for a run at ")
    assert finding.sentence.endswith(
        "and no host has started it. It was not carried out within an hour, so it has "
        "expired."
    )
    assert finding.command == "python manage.py shedlock show job"
    assert finding.in_detail().endswith(
        "Look whether its job has run meanwhile. If it has not: python manage.py "
        "shedlock trigger job"
    )


def test_expired_request_of_a_job_that_ran_since_is_over() -> None:
    """
    An expired request is over if the job ran since, whatever started the run.

    A pause is no run.
    """
    ask(2 * HOUR)
    pause("job")
    assert [each.kind for each in found()] == [Kind.REQUEST]
    LockRecord.objects.all().delete()
    ask(2 * HOUR)
    take("job").release()
    assert found() == []


def test_request_for_a_job_that_is_held_waits() -> None:
    """The job runs, or is paused: look at that first."""
    take("job")
    ask(10 * MINUTE)
    [finding] = found()
    assert finding.sentence.endswith("It waits until the lock is released.")
    assert finding.command == "python manage.py shedlock show job"


def test_request_can_be_acknowledged() -> None:
    """
    A request can be acknowledged like any finding of a lock.

    The next request is another fact.
    """
    ask(10 * MINUTE)
    assert call("acknowledge", "job", "--reason", "the host is being mended")[0] == 0
    assert found() == []
    LockRecord.objects.update(asked_at=None)
    get_provider().request_run("job", "bob", "again")
    LockRecord.objects.update(asked_at=F("asked_at") - 7 * MINUTE)
    [finding] = found()
    assert finding.params["who"] == "bob"
