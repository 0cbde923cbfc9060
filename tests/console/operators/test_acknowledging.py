"""Findings that an operator acknowledges: silent, until something new happens."""

from __future__ import annotations

import json
import re
import shlex
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_shedlock.console.models import LockAction
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import call
from tests.support.lateness import DAY, HOUR, be_overdue
from tests.support.locks import MINUTE, end_run, expire, take
from tests.support.operators import (
    ACTIONS,
    ALL,
    CHANGE,
    LIST,
    ask,
    confirm,
    operator,
)
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
    told = f"These findings of lock {name!r} are acknowledged: "
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
    assert " with ValueError. It last succeeded at " in shown
    assert "Acknowledged by " in shown
    assert ": the disk is full" in shown
    assert call("list", "--attention")[1] == "There are no such locks.\n"
    fail()
    assert kinds() == [Kind.FAILED]


def test_acknowledgement_ends() -> None:
    """An acknowledgement with ``--for`` lasts no longer than the given time."""
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


def test_job_is_offered_again_once_its_process_is_counts_as_gone() -> None:
    """If the worker then reports its loss it lives, and that is a finding."""
    lock = take("job")
    call("release", "job", "--force", *KNOWN)
    be_overdue("job")
    assert kinds() == [Kind.OVERDUE, Kind.ABANDONED]
    overdue, abandoned = Search().of_locks(get_provider(), ["job"])["job"]
    assert "show job" in overdue.command
    assert abandoned.command.endswith("show job")
    *words, _ = shlex.split(abandoned.advice.command_after_look)
    assert words[3:] == [
        *("acknowledge", "job", "--fact", f"abandoned {lock.locked_by}"),
        "--process-is-gone",
    ]
    told = call(*words[3:], *KNOWN)[1]
    assert "Their process is said to be gone." in told
    assert LockAction.objects.get(kind="acknowledge").process_is_gone
    [overdue] = Search().of_locks(get_provider(), ["job"])["job"]
    assert overdue.command.endswith("catch-up job")
    get_provider().account_for_loss(lock, has_ended=False)
    assert kinds() == [Kind.OVERDUE, Kind.LOST]


def test_tables_of_the_audit_log_show_that_the_process_is_gone() -> None:
    """By an acknowledgement that says so, or by the release of an expired lock."""
    for name in ("said", "silent"):
        take(name)
        expire(name)
        options = ["--process-is-gone"] if name == "said" else []
        acknowledge(*options, name=name)
        assert call("release", name, "--force", *KNOWN)[0] == 0
    assert "  acknowledge, process counts as gone  done " in call("show", "said")[1]
    shown = call("show", "silent")[1]
    assert "  release, process counts as gone  done " in shown
    assert "acknowledge, process" not in shown
    client = operator(*ALL)
    label = "Acknowledge, process counts as gone"
    assert label in client.get(reverse(CHANGE, args=["said"])).content.decode()
    assert label not in client.get(reverse(CHANGE, args=["silent"])).content.decode()
    assert client.get(reverse(ACTIONS)).content.decode().count(label) == 1


@pytest.mark.parametrize("is_expired", [True, False])
def test_acknowledged_run_may_still_go_on(*, is_expired: bool) -> None:
    """Silence says nothing about a process: no advice starts a second body."""
    lock = take("job")
    if is_expired:
        expire("job")
    else:
        call("release", "job", "--force", *KNOWN)
    be_overdue("job")
    acknowledge("--fact", f"abandoned {lock.locked_by}")
    assert kinds() == [Kind.OVERDUE]
    [overdue] = Search().of_locks(get_provider(), ["job"])["job"]
    assert "Its last run may still go on in process" in overdue.sentence
    assert overdue.command.endswith("show job")
    assert not LockAction.objects.get(kind="acknowledge").process_is_gone


def test_expired_lock_whose_process_is_gone_can_be_caught_up() -> None:
    """An overdue job whose process is gone advises a release, then a catch-up."""
    lock = take("job")
    expire("job")
    be_overdue("job")
    acknowledge("--fact", f"abandoned {lock.locked_by}", "--process-is-gone")
    [overdue] = Search().of_locks(get_provider(), ["job"])["job"]
    assert overdue.command.endswith(f"release job --held-by {lock.locked_by}")
    assert call(*shlex.split(overdue.command)[3:])[0] == 0
    [overdue] = Search().of_locks(get_provider(), ["job"])["job"]
    assert overdue.command.endswith("catch-up job")


def test_acknowledged_overdue_job_stays_silent_at_its_next_tick() -> None:
    """
    An acknowledged overdue job stays silent at its next tick.

    Being late again after a success is news.
    """
    take("job").release()
    LockRecord.objects.update(schedule="every 1m UTC", due_at=DatabaseNow() - HOUR)
    assert kinds() == [Kind.OVERDUE]
    acknowledge()
    assert kinds() == []
    moved = {each: F(each) - HOUR for each in ("locked_at", "lock_until")}
    LockRecord.objects.update(**moved)
    assert kinds() == []
    LockRecord.objects.update(due_at=F("due_at") + timedelta(minutes=30))
    assert kinds() == [Kind.OVERDUE]


@pytest.mark.parametrize("usual", [None, 50.0])
def test_finding_of_shorter_limits_can_be_looked_at_and_acknowledged(
    usual: float | None,
) -> None:
    """
    A finding of ``check --held-for 1m`` can be shown and acknowledged.

    The default limits do not report that finding.
    """
    lock = take("job")
    moved = {"locked_at": DatabaseNow() - 2 * MINUTE, "usual": usual}
    LockRecord.objects.update(**moved)
    assert kinds() == []
    status, printed, _ = call("check", "--held-for", "1m")
    assert status == 1
    assert "Next: python manage.py shedlock show job --held-for 1m" in printed
    assert "(fact:" not in call("show", "job")[1]
    shown = call("show", "job", "--held-for", "1m")[1]
    assert f"(fact: long {lock.locked_by})" in shown
    acknowledge("--fact", f"long {lock.locked_by}")
    assert call("check", "--held-for", "1m")[0] == 0
    status, _, told = call("acknowledge", "job", "--fact", "long x:1:2", *KNOWN)
    assert (status, "“long x:1:2” is no finding of it now" in told) == (5, True)


def test_process_that_is_counts_as_gone_is_not_warned_of() -> None:
    """The finding says so instead, for whoever looks at it."""
    lock = take("job")
    release = ("release", "job", "--held-by", lock.locked_by, "--reason", "it hangs")
    assert call(*release)[0] == 0
    shown = call("show", "job")[1]
    assert "It may still run: make sure that its process" in shown
    fact = f"abandoned {lock.locked_by}"
    call("acknowledge", "job", "--fact", fact, "--process-is-gone", *KNOWN)
    shown = call("show", "job")[1]
    assert "make sure that its process" not in shown
    assert "Its process counts as gone." in shown


def test_release_of_an_expired_lock_says_that_its_process_is_gone() -> None:
    """
    The release of an expired lock notes that its process counts as gone.

    The release needs no reason, and none is invented.
    """
    lock = take("job")
    expire("job")
    assert call("release", "job", "--held-by", lock.locked_by)[0] == 0
    [said] = re.findall(r"Acknowledged by .*", call("show", "job")[1])
    assert re.fullmatch(
        r"Acknowledged by \S+ at [-\d: ]+\. Its process counts as gone\.", said
    )


def test_one_fact_is_silenced() -> None:
    """The other findings of the lock are still reported."""
    lock = take("job")
    expire("job")
    be_overdue("job")
    told = call("acknowledge", "job", "--fact", f"abandoned {lock.locked_by}", *KNOWN)
    acknowledged, printed = told[1].splitlines()
    assert "overdue" not in acknowledged
    assert printed.startswith(
        f"  abandoned {lock.locked_by}: Lock 'job': Its lease end"
    )
    assert kinds() == [Kind.OVERDUE]


def test_each_silenced_finding_is_printed() -> None:
    """Without --fact all findings of now are silenced, and a line says which."""
    take("job")
    expire("job")
    be_overdue("job")
    _, *printed = call("acknowledge", "job", *KNOWN)[1].splitlines()
    assert [line.split()[0] for line in printed] == ["overdue", "abandoned"]
    assert kinds() == []


def test_fact_that_is_no_finding_now_is_refused() -> None:
    """Nothing is silenced then, and nothing is said to be acknowledged."""
    take("job").release()
    fail()
    [found] = Search().of_locks(get_provider(), ["job"])["job"]
    facts = ("--fact", found.fact, "--fact", "failed web-1:7:gone")
    status, printed, told = call("acknowledge", "job", *facts, *KNOWN)
    assert (status, printed) == (5, "")
    assert told == (
        "Nothing to acknowledge in lock 'job': “failed web-1:7:gone” is no finding of "
        "it now."
    )
    assert kinds() == [Kind.FAILED]
    assert not LockAction.objects.exists()


def test_nothing_to_acknowledge_is_refused() -> None:
    """What may come is no finding yet."""
    take("job").release()
    status, _, told = call("acknowledge", "job", *KNOWN)
    assert (status, told) == (
        5,
        "Nothing to acknowledge in lock 'job': it has no findings.",
    )
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
    assert "acknowledge_selected" in {cure.name for cure in row["cures"]}
    page = confirm(client, "job", lock.locked_by, action="acknowledge_selected")
    assert "are acknowledged" in page.content.decode()
    assert kinds() == []
    page = client.get(reverse(CHANGE, args=["job"])).content.decode()
    assert "Acknowledged by operator at" in page
    assert "the pod is gone" in page
    headline = client.get(reverse(LIST)).context["shedlock_headline"]
    assert (list(headline.parts), headline.rest) == ([], "1 acknowledged")


def test_permission_is_its_own() -> None:
    """Who may release locks may not silence what is found."""
    client: Client = operator(*(set(ALL) - {"acknowledge_lockrecord"}))
    take("job").release()
    fail()
    lock = LockRecord.objects.get()
    confirm(client, "job", lock.locked_by, action="acknowledge_selected")
    assert kinds() == [Kind.FAILED]


def test_page_acknowledges_what_it_shows() -> None:
    """A finding that came since is still reported."""
    client = operator(*ALL)
    lock = take("job")
    lock.release()
    fail()
    [found] = Search().of_locks(get_provider(), ["job"])["job"]
    page = ask(client, "job", action="acknowledge_selected").content.decode()
    assert re.search(rf'name="fact-0"\s+value="{re.escape(found.fact)}"', page)
    assert "process_is_gone" not in page
    be_overdue("job")
    chosen = {"action": "acknowledge_selected", "fact-0": found.fact}
    confirm(client, "job", lock.locked_by, **chosen)
    assert kinds() == [Kind.OVERDUE]
    fail()
    page = confirm(client, "job", lock.locked_by, **chosen).content.decode()
    assert "is no finding of it now" in page
    assert kinds() == [Kind.OVERDUE, Kind.FAILED]


def test_page_has_one_field_for_all_facts_of_a_lock() -> None:
    """Django refuses a form of a thousand fields, and many locks have several facts."""
    client = operator(*ALL)
    lock = take("job")
    lock.release()
    fail()
    be_overdue("job")
    assert kinds() == [Kind.OVERDUE, Kind.FAILED]
    page = ask(client, "job", action="acknowledge_selected").content.decode()
    [facts] = re.findall(r'name="fact-0" value="([^"]*)"', page)
    chosen = {"action": "acknowledge_selected", "fact-0": unescape(facts)}
    confirm(client, "job", lock.locked_by, **chosen)
    assert kinds() == []
    [action] = LockAction.objects.all()
    assert len(action.facts.splitlines()) == 2


def test_page_asks_whether_the_process_is_gone() -> None:
    """
    The page asks whether the process is gone if the run may still go on.

    Only a ticked box counts.
    """
    client = operator(*ALL)
    lock = take("job")
    expire("job")
    page = ask(client, "job", action="acknowledge_selected").content.decode()
    assert 'type="checkbox" name="process_is_gone"' in page
    chosen = {"action": "acknowledge_selected"}
    confirm(client, "job", lock.locked_by, **chosen)
    assert not LockAction.objects.get().process_is_gone
    confirm(client, "job", lock.locked_by, **chosen, process_is_gone="on")
    assert LockAction.objects.filter(process_is_gone=True).count() == 1
