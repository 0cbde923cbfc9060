"""Findings that an operator acknowledges: silent, until something new happens."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_shedlock.console.models import LockAction
from django_shedlock.console.monitoring.findings import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import call
from tests.support.lateness import DAY, be_overdue
from tests.support.locks import end_run, expire, take
from tests.support.operators import ALL, CHANGE, LIST, confirm, operator
from tests.support.statements import says

pytestmark = pytest.mark.django_db

KNOWN = ("--reason", "the disk is full")


def kinds(name: str = "job") -> list[Kind]:
    """Return the kinds of the lock's findings."""
    provider, search = get_provider(), Search()
    of_lock = search.of_locks(provider, [name]).get(name, [])
    found = search.attention(provider).findings.get(name, [])
    assert [each.fact for each in found] == [each.fact for each in of_lock]
    return [each.kind for each in found]


def acknowledge(*options: str, name: str = "job") -> None:
    told = f"The findings of lock {name!r} are acknowledged."
    assert call("acknowledge", name, *KNOWN, *options)[1].startswith(told)


def fail(name: str = "job") -> None:
    end_run(name, RunOutcome.FAILED, exception_type="ValueError")


def test_acknowledged_failure_is_silent_until_the_next_one() -> None:
    """Check is green, and says what is silent; show and the page say by whom."""
    take("job").release()
    fail()
    assert kinds() == [Kind.FAILED]
    acknowledge()
    assert kinds() == []
    status, told, _ = call("check")
    known = "Acknowledged, see `python manage.py shedlock show NAME`: job.\n"
    assert (status, told) == (0, f"No findings.\n{known}")
    assert json.loads(call("check", "--json")[1]) == []
    shown = call("show", "job")[1]
    assert "Its last run failed with ValueError." in shown
    assert "Acknowledged by " in shown
    assert ": the disk is full" in shown
    assert call("list", "--attention")[1] == "There are no such locks.\n"
    fail()
    assert kinds() == [Kind.FAILED]


def test_acknowledgement_ends() -> None:
    """With --for it is for so long at the most."""
    take("job").release()
    fail()
    acknowledge("--for", "2h")
    assert kinds() == []
    LockAction.objects.update(until=F("until") - timedelta(hours=2))
    assert kinds() == [Kind.FAILED]


def test_other_finding_of_the_same_run_is_told() -> None:
    """Known is that it takes long, and not how it ends."""
    end_run("job", duration=timedelta(seconds=1))
    lock = take("job")
    LockRecord.objects.update(locked_at=DatabaseNow() - DAY)
    assert kinds() == [Kind.LONG]
    acknowledge()
    assert kinds() == []
    lock.release(ValueError())
    assert kinds() == [Kind.FAILED]


def test_next_overdue_tick_is_told() -> None:
    """That of today is known, that of tomorrow is not."""
    take("job").release()
    be_overdue("job")
    acknowledge()
    assert kinds() == []
    [row] = LockAction.objects.all()
    kind, tick = row.facts.split()
    row.facts = f"{kind} {tick.replace('20', '19', 1)}"
    row.save()
    assert kinds() == [Kind.OVERDUE]


def test_released_lock_that_had_expired_is_not_abandoned() -> None:
    """The operator who released it has looked: nothing is found until the next run."""
    take("job")
    expire("job")
    assert kinds() == [Kind.EXPIRED]
    assert call("release", "job", "--force", *KNOWN)[0] == 0
    assert kinds() == []
    take("job")
    assert kinds() == []
    assert call("release", "job", "--force", *KNOWN)[0] == 0
    assert kinds() == [Kind.ABANDONED]


def test_job_is_offered_again_once_its_process_is_known_to_be_gone() -> None:
    """But if the worker then tells of its loss it lives, and that is told."""
    lock = take("job")
    call("release", "job", "--force", *KNOWN)
    be_overdue("job")
    assert kinds() == [Kind.OVERDUE, Kind.ABANDONED]
    overdue, abandoned = Search().of_locks(get_provider(), ["job"])["job"]
    assert "show job" in overdue.command
    assert "acknowledge job --reason 'its process is gone'" in abandoned.command
    acknowledge()
    assert kinds() == []
    LockAction.objects.filter(kind="acknowledge").update(
        facts=f"abandoned {lock.locked_by}"
    )
    [overdue] = Search().of_locks(get_provider(), ["job"])["job"]
    assert overdue.command.endswith("catch-up")
    get_provider().account_for_loss(lock, has_ended=False)
    assert kinds() == [Kind.OVERDUE, Kind.LOST]


def test_known_expired_lock_can_be_caught_up() -> None:
    """Then its overdue tick names the command that includes it."""
    lock = take("job")
    expire("job")
    be_overdue("job")
    acknowledge()
    LockAction.objects.update(facts=f"abandoned {lock.locked_by}")
    [overdue] = Search().of_locks(get_provider(), ["job"])["job"]
    assert overdue.command.endswith("catch-up --include-expired job")


def test_nothing_to_acknowledge_is_refused() -> None:
    """What may come is no finding yet."""
    take("job").release()
    status, _, told = call("acknowledge", "job", *KNOWN)
    assert (status > 0, told) == (True, "Lock 'job' has no findings to acknowledge.")
    fail()
    assert kinds() == [Kind.FAILED]


def test_acknowledgement_needs_its_audit_row() -> None:
    """What can't be written silences nothing, and says so."""

    def refuse(execute: Any, sql: str, *arguments: Any) -> Any:
        if says(sql, "INSERT", "shedlock_action"):
            raise DatabaseError("the disk is full")
        return execute(sql, *arguments)

    take("job")
    expire("job")
    with connection.execute_wrapper(refuse):
        status, _, told = call("acknowledge", "job", *KNOWN)
    assert status > 0
    assert "nothing is acknowledged, since the audit log" in told
    assert kinds() == [Kind.EXPIRED]


def test_acknowledged_findings_cost_one_statement() -> None:
    """However many locks have findings, and actions."""
    counts = []
    for number in range(3):
        for lock in range(number * 5):
            fail(f"job-{number}-{lock}")
            acknowledge(name=f"job-{number}-{lock}")
        fail(f"open-{number}")
        with CaptureQueriesContext(connection) as queries:
            found = Search().attention(get_provider()).findings
        counts.append(len(queries))
        assert len(found) == number + 1
    assert len(set(counts)) == 1


def test_admin_acknowledges() -> None:
    """A button where there is a finding, a reason, and then it is shown as known."""
    client = operator(*ALL)
    take("job").release()
    fail()
    lock = LockRecord.objects.get()
    button = 'value="acknowledge_selected"'
    assert button in client.get(reverse(CHANGE, args=["job"])).content.decode()
    row = client.get(reverse(LIST)).context["shedlock_rows"][0]
    assert "acknowledge" in {str(cure.kind) for cure in row["cures"]}
    page = confirm(client, "job", lock.locked_by, action="acknowledge_selected")
    assert "are acknowledged" in page.content.decode()
    assert kinds() == []
    page = client.get(reverse(CHANGE, args=["job"])).content.decode()
    assert "Acknowledged by operator at" in page
    assert "the pod is gone" in page
    assert client.get(reverse(LIST)).context["shedlock_attention"] == []


def test_permission_is_its_own() -> None:
    """Who may release locks may not silence what is found."""
    client: Client = operator(*(set(ALL) - {"acknowledge_lockrecord"}))
    take("job").release()
    fail()
    lock = LockRecord.objects.get()
    confirm(client, "job", lock.locked_by, action="acknowledge_selected")
    assert kinds() == [Kind.FAILED]
