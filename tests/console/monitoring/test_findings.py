"""Which locks need somebody: found with bounded work, the most urgent first."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.test import override_settings
from django.utils.translation import override

from django_shedlock import execute
from django_shedlock.console.monitoring.findings import Finding, Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.monitoring.summaries import badly_ended, summarize
from django_shedlock.fields import DatabaseNow
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockQuery
from tests.support.lateness import be_overdue
from tests.support.locks import MINUTE, Broken, add_run, expire, pause, take
from tests.support.records import counted_records, make_record_unreadable

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
SEARCH = Search(MINUTE)
AGE = re.compile(r"(Late by|has run for) \w+")
BAD = [RunOutcome.FAILED, RunOutcome.LOST, RunOutcome.ABANDONED]


def incident() -> None:
    """One lock with each finding, and some without."""
    for name in ("overdue", "failed", "lost", "abandoned", "free"):
        take(name).release()
    be_overdue("overdue")
    for name in ("failed", "lost", "abandoned"):
        add_run(name, RunOutcome(name), exception_type="ValueError")
    add_run("free")
    take("expired")
    expire("expired")
    take("long")
    add_run("long", duration=timedelta(seconds=1))
    ago = DatabaseNow() - 2 * MINUTE
    LockRecord.objects.filter(name="long").update(locked_at=ago)
    take("running")


def kinds(found: dict[str, list[Finding]]) -> dict[str, list[Kind]]:
    return {name: [each.kind for each in listed] for name, listed in found.items()}


def ageless(found: dict[str, list[Finding]]) -> dict[str, list[Finding]]:
    """Return them without how long something has lasted, which two looks may change."""
    return {
        name: [replace(each, sentence=AGE.sub("", each.sentence)) for each in listed]
        for name, listed in found.items()
    }


INCIDENT = {
    name: [Kind(name)]
    for name in ("overdue", "failed", "expired", "long", "lost", "abandoned")
}


def pause_for(age: timedelta, lasting: timedelta = FOREVER) -> None:
    pause("job", lasting=lasting)
    moved = {each: F(each) - age for each in ("locked_at", "lock_until")}
    LockRecord.objects.filter(name="job").update(**moved)


def test_pause_without_an_end_is_found_after_a_day() -> None:
    """Who paused the job may have forgotten it; a pause with an end ends by itself."""
    pause_for(DAY - MINUTE)
    assert SEARCH.attention(get_provider()).findings == {}
    LockRecord.objects.all().delete()
    pause_for(DAY + MINUTE, lasting=3 * DAY)
    assert SEARCH.attention(get_provider()).findings == {}
    LockRecord.objects.all().delete()
    pause_for(2 * DAY + 5 * MINUTE)
    [found] = SEARCH.attention(get_provider()).findings["job"]
    assert (found.kind, found.command) == (
        Kind.PAUSED,
        "python manage.py shedlock resume job",
    )
    assert found.sentence == (
        "Paused for 2d, without an end, by alice, because: the mail server moves. Its "
        "job does not run until somebody resumes it."
    )


@pytest.mark.parametrize("outcome", BAD)
def test_no_finding_of_a_paused_job_says_trigger(outcome: RunOutcome) -> None:
    """It would refuse to run it; what helps is to resume the job."""
    add_run("job", outcome, exception_type="ValueError")
    pause_for(2 * DAY)
    be_overdue("job")
    found = SEARCH.attention(get_provider()).findings["job"]
    assert {each.kind for each in found} == {Kind(outcome), Kind.PAUSED}
    assert not any("trigger" in str(each) for each in found)


def test_most_urgent_locks_come_first() -> None:
    """Overdue, failed, expired, for too long, lost, abandoned: and no other lock."""
    incident()
    found = SEARCH.attention(get_provider())
    assert list(kinds(found.findings).items()) == list(INCIDENT.items())
    assert found.is_complete
    assert [each.kind for each in SEARCH.findings(get_provider())] == [*INCIDENT]


def test_each_finding_says_what_to_do_next() -> None:
    """A command of ``shedlock`` with the lock's name stands in each text."""
    incident()
    for name, [finding] in SEARCH.attention(get_provider()).findings.items():
        assert str(finding).startswith(f"Lock {name!r}: {finding.sentence}")
        assert finding.command.startswith("python manage.py shedlock ")


@pytest.mark.parametrize("language", ["de", "ar"])
def test_finding_is_told_in_the_readers_language(language: str) -> None:
    """Logs, JSON and the command line are in English all the same."""
    incident()
    add_run("failed", RunOutcome.FAILED, exception_type="ValueError")
    found = SEARCH.attention(get_provider()).findings
    with override(language):
        again = SEARCH.attention(get_provider()).findings
        for [finding] in again.values():
            assert finding.told != finding.sentence
            assert "%(" not in finding.told
            assert finding.as_dict()["sentence"] == str(finding.sentence)
    assert ageless(again) == ageless(found)
    assert all(each.told == each.sentence for [each] in found.values())


def test_findings_of_a_lock_are_in_order() -> None:
    """The most urgent finding of a lock decides its place, and comes first."""
    take("job").release()
    add_run("job", RunOutcome.LOST)
    be_overdue("job")
    [found] = SEARCH.attention(get_provider()).findings.values()
    assert [each.kind for each in found] == [Kind.OVERDUE, Kind.LOST]


def test_findings_of_some_locks() -> None:
    """A page of the list asks for its own locks only; those without are left out."""
    incident()
    provider = get_provider()
    names = ["lost", "free", "expired", "no such lock"]
    found = SEARCH.of_locks(provider, names)
    assert kinds(found) == {"lost": [Kind.LOST], "expired": [Kind.EXPIRED]}
    assert SEARCH.of_locks(provider, []) == {}
    every = SEARCH.of_locks(provider, [s.name for s in provider.statuses()])
    assert ageless(every) == ageless(SEARCH.attention(provider).findings)


def test_attention_has_a_limit() -> None:
    """It keeps the most urgent locks, and tells that there may be more."""
    incident()
    for limit in range(1, len(INCIDENT)):
        found = SEARCH.attention(get_provider(), limit)
        assert list(found.findings)[:2] == ["overdue", "failed"][:limit]
        assert (len(found.findings), found.is_complete) == (limit, False)
    *listed, more = SEARCH.findings(get_provider(), limit=2)
    assert [each.lock for each in listed] == ["overdue", "failed"]
    assert (more.kind, more.lock) == (Kind.MORE, None)
    assert "More than 2 locks" in more.sentence


def test_ignored_locks_do_not_fill_the_limit() -> None:
    """Whatever is ignored, the limit counts the others."""
    for number in range(3):
        name = f"import:{number}"
        take(name).release()
        be_overdue(name)
        add_run(name, RunOutcome.FAILED)
    take("dead")
    expire("dead")
    add_run("failed", RunOutcome.FAILED)
    found = Search(MINUTE, ignored=("import:*",)).attention(get_provider(), limit=2)
    assert list(found.findings) == ["failed", "dead"]
    assert found.is_complete


def fail() -> None:
    raise Broken


def let_minutes_pass(name: str) -> None:
    ago = DatabaseNow() - 2 * MINUTE
    columns = dict.fromkeys(("lock_until", "locked_at", "released_at"), ago)
    LockRecord.objects.filter(name=name).update(**columns)


@pytest.mark.parametrize("history", [True, False])
def test_history_that_was_switched_off(history: bool) -> None:
    """Nobody knows how the runs ended since then: an old failure is not the last."""
    with pytest.raises(Broken):
        execute(fail, "job")
    let_minutes_pass("job")
    assert kinds(SEARCH.attention(get_provider()).findings) == {"job": [Kind.FAILED]}
    with override_settings(SHEDLOCK_HISTORY=history), pytest.raises(Broken):
        execute(fail, "job")
    let_minutes_pass("job")
    found = SEARCH.attention(get_provider()).findings
    assert kinds(found) == ({"job": [Kind.FAILED]} if history else {})
    [summary] = summarize(get_provider(), ["job"])
    assert summary.failures == (2 if history else 0)


def test_pause_hides_no_failure() -> None:
    """Whoever resumes the job has to know that its last run failed."""
    with pytest.raises(Broken):
        execute(fail, "job")
    get_provider().release(pause("job"))
    let_minutes_pass("job")
    assert kinds(SEARCH.attention(get_provider()).findings) == {"job": [Kind.FAILED]}


def test_free_locks_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: a record is read if it may need somebody."""
    incident()
    for number in range(50):
        take(f"free-{number}").release()
        add_run(f"free-{number}", RunOutcome.FAILED)
        add_run(f"free-{number}")
    with counted_records(monkeypatch) as read:
        assert len(SEARCH.attention(get_provider()).findings) == len(INCIDENT)
    assert sorted(read) == sorted([*INCIDENT, "running"])


@pytest.mark.each_store
def test_paused_job_is_no_finding() -> None:
    """It is held by an operator: neither overdue, nor running, nor a dead worker's."""
    take("job")
    be_overdue("job")
    paused_by = Pause("alice", "the disk is full").identity()
    ago = DatabaseNow() - DAY
    LockRecord.objects.update(locked_by=paused_by, locked_at=ago)
    provider = get_provider()
    assert SEARCH.attention(provider).findings == {}
    assert [*provider.statuses(LockQuery(overdue_by=MINUTE, running_for=MINUTE))] == []
    expire("job")
    assert kinds(SEARCH.attention(provider).findings) == {"job": [Kind.OVERDUE]}


@pytest.mark.parametrize("outcome", BAD)
def test_bad_end_without_a_record(outcome: RunOutcome) -> None:
    """The last run of a lock whose record was deleted still counts."""
    add_run("gone", outcome)
    add_run("other", outcome, provider="second")
    assert kinds(SEARCH.attention(get_provider()).findings) == {
        "gone": [Kind(outcome.value)]
    }


def test_last_bad_runs() -> None:
    """A later success ends it, an older one does not; dead holders count, too."""
    for outcome in BAD:
        add_run("again well", outcome)
        add_run("bad again")
        add_run("bad again", outcome)
    add_run("again well")
    add_run("dead", RunOutcome.RUNNING)
    take("dead").release()
    running = take("running")
    add_run("running", RunOutcome.RUNNING, locked_by=running.locked_by)
    add_run("failed then runs", RunOutcome.FAILED)
    running = take("failed then runs")
    add_run("failed then runs", RunOutcome.RUNNING, locked_by=running.locked_by)
    found = ["failed then runs", "dead", "bad again"]
    assert badly_ended(get_provider()) == found
    assert badly_ended(get_provider(), limit=1) == found[:1]


def test_bad_record_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that can't be read is a finding of its own, and is logged once."""
    incident()
    take("broken")
    make_record_unreadable(monkeypatch)
    monkeypatch.setattr("django_shedlock.locks.states._logged", set())
    for _ in range(2):
        found = kinds(SEARCH.attention(get_provider()).findings)
        assert found["broken"] == [Kind.UNREADABLE]
        assert found["expired"] == [Kind.EXPIRED]
    logged = [each for each in caplog.messages if "'broken'" in each]
    assert len(logged) == 1
    assert "date value out of range" in logged[0]
    [broken] = SEARCH.of_locks(get_provider(), ["broken"])["broken"]
    assert "OverflowError: date value out of range" in broken.sentence


def test_instant_that_is_out_of_range_is_a_finding() -> None:
    """Nor does one whose ticks can't be compared."""
    incident()
    LockRecord.objects.filter(name="overdue").update(schedule="0 0 * * * UTC")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE shedlock SET due_at = '0001-01-01 00:00:00' WHERE name = 'overdue'"
        )
    found = kinds(SEARCH.attention(get_provider()).findings)
    assert set(found) == set(INCIDENT)
    assert found["overdue"][0] in {Kind.OVERDUE, Kind.UNREADABLE}


def begin_at(run: LockRun, age: timedelta) -> None:
    LockRun.objects.filter(pk=run.pk).update(started=DatabaseNow() - age)


@override_settings(SHEDLOCK_HISTORY_RETENTION="10d")
def test_history_that_outgrows_its_retention() -> None:
    """Runs that a weekly ``prune`` would have deleted are a finding with the remedy."""
    take("yearly").release()
    begin_at(add_run("yearly"), 300 * DAY)  # its last run, which prune keeps
    begin_at(add_run("job"), 16 * DAY)
    assert list(SEARCH.findings(get_provider())) == []
    begin_at(add_run("other", provider="second"), 20 * DAY)
    assert list(SEARCH.findings(get_provider())) == []
    begin_at(add_run("job"), 18 * DAY)
    [found] = SEARCH.findings(get_provider())
    assert (found.kind, found.lock) == (Kind.HISTORY, None)
    assert "SHEDLOCK_HISTORY_RETENTION = 10d" in found.sentence
    assert found.command == "python manage.py shedlock prune"
