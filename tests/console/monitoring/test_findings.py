"""Which locks need somebody: found with bounded work, the most urgent first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.db.models import F
from django.test import override_settings
from django.utils.translation import override

from django_shedlock import execute
from django_shedlock.clocks import aware, local_text
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.own import BEAT_LOCK_PREFIX, CATCH_UP_LOCK
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockQuery
from django_shedlock.providers.database.reading import wanted
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import call
from tests.support.lateness import be_overdue
from tests.support.locks import (
    MINUTE,
    Broken,
    end_run,
    expire,
    force_release,
    let_its_clock_move,
    pause,
    status_of,
    take,
)
from tests.support.private_connections import counted_statements
from tests.support.records import counted_records, make_record_unreadable

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
SEARCH = Search(MINUTE)
BAD = [outcome for outcome in RunOutcome if outcome.is_bad]


def incident() -> None:
    """One lock with each finding, and some without."""
    for name in ("overdue", "failed", "timed out", "lost", "abandoned", "free"):
        take(name).release()
    be_overdue("overdue")
    for name in ("failed", "timed out", "lost", "abandoned"):
        end_run(name, RunOutcome(name), exception_type="ValueError")
    end_run("free")
    take("expired")
    expire("expired")
    take("long")
    end_run("long", duration=timedelta(seconds=1))
    ago = DatabaseNow() - 2 * MINUTE
    LockRecord.objects.filter(name="long").update(locked_at=ago)
    take("running")


def kinds(found: dict[str, list[Finding]]) -> dict[str, list[Kind]]:
    return {name: [each.kind for each in listed] for name, listed in found.items()}


def without_ages(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: params[key] for key in params if key not in {"late", "held_for"}}


def ageless(found: dict[str, list[Finding]]) -> dict[str, list[Finding]]:
    """Return them without how long something has lasted, which two looks may change."""
    return {
        name: [replace(each, params=without_ages(each.params)) for each in listed]
        for name, listed in found.items()
    }


INCIDENT = {
    name: [Kind(name)]
    for name in (
        *("overdue", "failed", "timed out", "expired"),
        *("long", "lost", "abandoned"),
    )
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
    pause_id = LockRecord.objects.get().locked_by
    command = f"python manage.py shedlock resume job --held-by '{pause_id}'"
    assert (found.kind, found.command) == (Kind.PAUSED, command)
    assert found.sentence == (
        "Paused for 2d, without an end, by alice, because: the mail server moves. Its "
        "job does not run until somebody resumes it."
    )


@pytest.mark.parametrize("outcome", BAD)
def test_no_finding_of_a_paused_job_says_trigger(outcome: RunOutcome) -> None:
    """
    No finding of a paused job advises a trigger.

    A trigger is refused during a pause: the operator resumes the job instead.
    """
    end_run("job", outcome, exception_type="ValueError")
    pause_for(2 * DAY)
    be_overdue("job")
    found = SEARCH.attention(get_provider()).findings["job"]
    assert {each.kind for each in found} == {Kind(outcome), Kind.PAUSED}
    assert not any("trigger" in str(each) for each in found)


def test_most_urgent_locks_come_first() -> None:
    """Overdue, failed, timed out, expired, long, lost, abandoned: no other lock."""
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
        assert "--force" not in finding.in_detail()
        after = finding.advice.command_after_look
        holds = finding.kind in {Kind.LONG, Kind.EXPIRED}
        assert (f"release {name} --held-by " in after) is holds
        # While its lease runs, the operator has to say why.
        asks = finding.kind in {Kind.LONG, Kind.ABANDONED}
        assert after.endswith(" --reason") is asks
        assert finding.command.startswith("python manage.py shedlock ")


def test_finding_is_told_in_the_readers_language() -> None:
    """Logs, JSON and the command line are in English all the same."""
    incident()
    end_run("failed", RunOutcome.FAILED, exception_type="ValueError")
    found = SEARCH.attention(get_provider()).findings
    for [finding] in found.values():
        english, shown = finding.sentence, str(finding)
        with override("de"):
            assert finding.sentence != english
            assert "%(" not in finding.sentence
            assert finding.as_dict()["sentence"] == english
            assert str(finding) == shown


def test_findings_of_a_lock_are_in_order() -> None:
    """The most urgent finding of a lock decides its place, and comes first."""
    take("job").release()
    end_run("job", RunOutcome.LOST)
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
    """A limited search keeps the most urgent locks, and says if there may be more."""
    incident()
    for limit in range(1, len(INCIDENT)):
        found = SEARCH.attention(get_provider(), limit)
        assert list(found.findings)[:2] == ["overdue", "failed"][:limit]
        assert (len(found.findings), found.is_complete) == (limit, False)
    more, *listed = SEARCH.findings(get_provider(), limit=2)
    assert [each.lock for each in listed] == ["overdue", "failed"]
    assert (more.kind, more.lock) == (Kind.MORE, None)
    assert "More than 2 locks" in more.sentence


def test_ignored_locks_do_not_fill_the_limit() -> None:
    """Whatever is ignored, the limit counts the others."""
    for number in range(3):
        name = f"import:{number}"
        take(name).release()
        be_overdue(name)
        end_run(name, RunOutcome.FAILED)
    take("dead")
    expire("dead")
    end_run("failed", RunOutcome.FAILED)
    found = Search(MINUTE, ignored=("import:*",)).attention(get_provider(), limit=2)
    assert list(found.findings) == ["failed", "dead"]
    assert found.is_complete


def fail() -> None:
    raise Broken


def let_minutes_pass(name: str) -> None:
    ago = DatabaseNow() - 2 * MINUTE
    columns = dict.fromkeys(("lock_until", "locked_at", "released_at"), ago)
    LockRecord.objects.filter(name=name).update(**columns)


def told_of(name: str = "job") -> list[tuple[str, str, str]]:
    """Return kind, command and fact of each finding in a lock."""
    found = SEARCH.of_locks(get_provider(), [name]).get(name, [])
    return [(each.kind, each.command, each.fact) for each in found]


@pytest.mark.each_store
@pytest.mark.parametrize("setting", [True, False])
@pytest.mark.parametrize("history", [None, False])
def test_findings_need_no_history(
    settings: Any, setting: bool, history: bool | None
) -> None:
    """Findings are the same with the history off, for all jobs or for one."""
    settings.SHEDLOCK_HISTORY = setting
    for _ in range(2):
        with pytest.raises(Broken):
            execute(fail, "job", history=history)
    [[finding]] = SEARCH.attention(get_provider()).findings.values()
    assert "and 2 runs in a row have not succeeded" in finding.sentence
    is_recorded = setting and history is None
    assert ("with tests.support.locks.Broken" in finding.sentence) is is_recorded
    locked_by = status_of(get_provider(), "job").job.last_run
    command = "python manage.py shedlock history job"
    assert told_of() == [(Kind.FAILED, command, f"failed {locked_by}")]
    execute(lambda: None, "job", history=history)
    assert told_of() == []
    take("job")
    expire("job")
    assert [kind for kind, *_ in told_of()] == [Kind.EXPIRED]
    take("job")
    assert [kind for kind, *_ in told_of()] == [Kind.ABANDONED]


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
        end_run(f"free-{number}", RunOutcome.FAILED)
        end_run(f"free-{number}")
    with counted_records(monkeypatch) as read:
        assert len(SEARCH.attention(get_provider()).findings) == len(INCIDENT)
    assert sorted(read) == sorted([*INCIDENT, "running"])


def test_old_losses_and_gaps_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is over is in the record for ever, and needs nobody any more."""
    end_run("lost", RunOutcome.LOST)
    end_run("lost")
    provider = get_provider()
    provider.note_unrecorded("lost")
    ago = DatabaseNow() - DAY - MINUTE
    LockRecord.objects.update(lost_at=ago, unrecorded_at=ago)
    LockRecord.objects.create(name="new", lock_until=ago, locked_at=ago, locked_by="")
    with counted_records(monkeypatch) as read:
        assert SEARCH.attention(provider).findings == {}
    assert read == []
    wanted = LockQuery(needs_look=True)
    assert wanted.select(provider.statuses()) == []
    recently = DatabaseNow() - DAY + MINUTE
    LockRecord.objects.filter(name="lost").update(lost_at=recently)
    assert [each.name for each in provider.statuses(wanted)] == ["lost"]
    assert [each.name for each in wanted.select(provider.statuses())] == ["lost"]


@pytest.mark.each_store
def test_run_that_could_not_be_recorded_is_found() -> None:
    """A run that could not be recorded is a finding until a later run is over."""
    execute(lambda: None, "job")
    provider = get_provider()
    provider.note_unrecorded("job")
    wanted = LockQuery(needs_look=True)
    assert [each.name for each in provider.statuses(wanted)] == ["job"]
    assert [each.name for each in wanted.select(provider.statuses())] == ["job"]
    locked_by = status_of(provider, "job").job.last_run
    command = "python manage.py shedlock history job"
    assert told_of() == [(Kind.HISTORY, command, f"history {locked_by}")]
    let_its_clock_move(provider)
    execute(lambda: None, "job")
    assert told_of() == []


def test_failed_write_of_the_history_is_found(caplog: pytest.LogCaptureFixture) -> None:
    """The finding says when, and the log says why."""

    def refuse(execute: Any, sql: str, *arguments: Any) -> Any:
        if "INSERT" in sql and "shedlock_run" in sql:
            raise DatabaseError("no writing today")
        return execute(sql, *arguments)

    with connection.execute_wrapper(refuse):
        execute(lambda: None, "job")
    assert "no writing today" in caplog.text
    [found] = SEARCH.of_locks(get_provider(), ["job"])["job"]
    assert found.kind is Kind.HISTORY
    assert "The history lacks its last run" in found.sentence


def test_long_run_is_also_compared_with_the_last_one() -> None:
    """A job whose runs are short and long by turns is not reported."""
    end_run("job", duration=MINUTE)
    take("job")
    LockRecord.objects.update(locked_at=DatabaseNow() - 4 * MINUTE)
    assert [kind for kind, *_ in told_of()] == [Kind.LONG]
    LockRecord.objects.update(
        started_at=DatabaseNow() - 2 * MINUTE, ended_at=DatabaseNow()
    )
    assert told_of() == []
    LockRecord.objects.update(locked_at=DatabaseNow() - 7 * MINUTE)
    assert [kind for kind, *_ in told_of()] == [Kind.LONG]


def test_expired_run_is_found_though_another_service_has_the_lock() -> None:
    """Java's ShedLock does not account for it; nobody should release its lock."""
    lock = take("job")
    LockRecord.objects.update(locked_by="java")
    [found] = SEARCH.of_locks(get_provider(), ["job"])["job"]
    assert (found.kind, found.fact) == (Kind.EXPIRED, f"abandoned {lock.locked_by}")
    assert "another service has acquired it since" in found.sentence
    assert found.command == "python manage.py shedlock show job"
    after = f"acknowledge job --fact '{found.fact}' --process-is-gone --reason"
    assert found.in_detail().endswith(
        f"If it is gone: python manage.py shedlock {after}"
    )
    assert [*SEARCH.attention(get_provider()).findings] == ["job"]


@override_settings(SHEDLOCK_GRACE="5m")
def test_catch_up_is_advised_when_it_would_run_the_job() -> None:
    """
    A finding advises a catch-up only if SHEDLOCK_GRACE lets it run the job.

    ``check --grace`` does not change that.
    """
    execute(lambda: None, "job", schedule="every 1m")
    for ago, command in (
        (3 * MINUTE, "show job --grace 1m"),
        (7 * MINUTE, "catch-up job"),
    ):
        moved = DatabaseNow() - ago
        LockRecord.objects.update(tick=moved - MINUTE, due_at=moved)
        [found] = SEARCH.of_locks(get_provider(), ["job"])["job"]
        assert found.kind is Kind.OVERDUE
        assert found.command == f"python manage.py shedlock {command}"


def test_overdue_job_of_an_expired_run_that_was_replaced() -> None:
    """Nobody can release that run any more, so the job is run after a look."""
    lock = take("job")
    expire("job")
    be_overdue("job")
    LockRecord.objects.update(locked_by="java")
    gone = ("--fact", f"abandoned {lock.locked_by}", "--process-is-gone")
    assert call("acknowledge", "job", *gone, "--reason", "it is")[0] == 0
    findings = SEARCH.of_locks(get_provider(), ["job"])["job"]
    overdue = next(each for each in findings if each.kind is Kind.OVERDUE)
    assert overdue.command == "python manage.py shedlock show job --grace 1m"
    after = "python manage.py shedlock trigger job"
    assert overdue.advice.command_after_look == after


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("failures", [1, 10])
def test_few_statements_find_everything(failures: int) -> None:
    """There are four however many jobs failed, and three if none did."""
    provider = get_provider()
    with counted_statements() as queries:
        SEARCH.attention(provider)
    assert len(queries) == 3
    for number in range(failures):
        end_run(f"job {number}", RunOutcome.FAILED, exception_message="full")
        end_run(f"well {number}")
    with counted_statements() as queries:
        found = SEARCH.attention(provider).findings
    told = [each.message for [each] in found.values()]
    assert told == ["full"] * failures
    clock, records, actions, runs = (each["sql"] for each in queries)
    assert clock.count("SELECT") == 1
    assert "shedlock_run" not in records + actions
    assert re.search(r"locked_by\W+ IN", runs)
    assert records.count("SELECT") == 1
    assert "JOIN" not in records + runs
    assert " OVER " not in records + runs


@pytest.mark.each_store
def test_paused_job_is_no_finding() -> None:
    """A paused job is found neither as overdue, nor as too long, nor as abandoned."""
    take("job").release()
    be_overdue("job")
    pause("job")
    LockRecord.objects.update(locked_at=DatabaseNow() - DAY)
    provider = get_provider()
    assert SEARCH.attention(provider).findings == {}
    assert [*provider.statuses(LockQuery(overdue_by=MINUTE))] == []
    expire("job")
    assert SEARCH.attention(provider).findings == {}


def test_job_that_was_paused_is_overdue_at_its_next_tick() -> None:
    """A pause owes no tick up to its end, however late the job was before."""
    take("job").release()
    be_overdue("job")
    pause("job")
    provider, overdue = get_provider(), LockQuery(overdue_by=MINUTE)
    ended = DatabaseNow() - timedelta(hours=1)
    LockRecord.objects.update(locked_at=DatabaseNow() - DAY, lock_until=ended)
    assert [*provider.statuses(overdue)] == []
    assert provider.count(overdue) == 0
    ended = DatabaseNow() - 2 * DAY
    LockRecord.objects.update(locked_at=DatabaseNow() - 3 * DAY, lock_until=ended)
    [status] = provider.statuses(overdue)
    assert provider.count(overdue) == 1
    schedule = status.schedule
    assert schedule is not None
    following = next(schedule.ticks_after(aware(status.lock_until)))
    assert status.overdue_since(MINUTE) == following
    assert kinds(SEARCH.attention(provider).findings) == {"job": [Kind.OVERDUE]}


def test_bad_record_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that can't be read is a finding of its own, and is logged once."""
    incident()
    take("broken")
    make_record_unreadable(monkeypatch)
    monkeypatch.setattr("django_shedlock.locks.status._logged", set())
    for _ in range(2):
        found = kinds(SEARCH.attention(get_provider()).findings)
        assert found["broken"] == [Kind.UNREADABLE]
        assert found["expired"] == [Kind.EXPIRED]
    logged = [each for each in caplog.messages if "'broken'" in each]
    assert len(logged) == 1
    assert "date value out of range" in logged[0]
    [broken] = SEARCH.of_locks(get_provider(), ["broken"])["broken"]
    assert "OverflowError: date value out of range" in broken.sentence


def end_at(run: LockRun, age: timedelta) -> None:
    LockRun.objects.filter(pk=run.pk).update(ended=DatabaseNow() - age)


@override_settings(SHEDLOCK_HISTORY_RETENTION=None)
def test_history_that_is_never_pruned() -> None:
    """Runs from more than a year ago are a finding with the remedy."""
    end_at(end_run("job"), 364 * DAY)
    assert list(SEARCH.findings(get_provider())) == []
    end_at(end_run("job"), 366 * DAY)
    [found] = SEARCH.findings(get_provider())
    assert (found.kind, found.lock) == (Kind.HISTORY, None)
    assert "With SHEDLOCK_HISTORY_RETENTION = None" in found.sentence
    command = "python manage.py shedlock prune --older-than 365d --all-providers"
    assert found.command == command
    assert call("prune", "--older-than", "365d", "--all-providers")[0] == 0
    assert list(SEARCH.findings(get_provider())) == []


def test_old_run_is_no_finding_if_the_history_has_a_retention() -> None:
    """
    An old run is no finding if the history has a retention.

    Some of the writes prune such a history.
    """
    end_at(end_run("job"), 999 * DAY)
    assert list(SEARCH.findings(get_provider())) == []


@override_settings(SHEDLOCK_HISTORY_RETENTION="nonsense")
def test_wrong_retention_hides_no_finding() -> None:
    """A system check reports it; jobs run, so no finding says that none can."""
    end_run("job", RunOutcome.FAILED)
    assert [each.kind for each in SEARCH.verdict(["default"])] == [Kind.FAILED]


TICK = timedelta(minutes=5)
"""The interval of the schedule below."""
EVERY = Schedule("every 5m", "UTC")


def run_by_operator() -> None:
    """Run the job for its newest tick, whether it ran or not."""
    start = Start(Trigger.OPERATOR)
    wanted = LockConfiguration("job", MINUTE, schedule=EVERY, start=start)
    assert take(wanted).release()


def begin(before: int, *, schedule: Schedule = EVERY, name: str = "job") -> datetime:
    """Let the last run be for the newest tick, the run before for an earlier one."""
    take(name).release()
    newest = next(schedule.ticks_until(datetime.now(UTC)))
    LockRecord.objects.filter(name=name).update(
        schedule=str(schedule),
        tick=newest,
        former_tick=list(islice(schedule.ticks_until(newest), before + 1))[-1],
        due_at=next(schedule.ticks_after(newest)),
    )
    return newest


@pytest.mark.parametrize(("before", "count"), [(2, "1"), (4, "3"), (200, "100+")])
def test_ticks_that_were_passed_over_are_found(before: int, count: str) -> None:
    """Ticks that never began are found, even though a later tick ran."""
    newest = begin(before)
    [found] = SEARCH.attention(get_provider()).findings["job"]
    assert (found.kind, found.command) == (
        Kind.PASSED_OVER,
        "python manage.py shedlock history job",
    )
    first = local_text(newest - (before - 1) * TICK)
    assert found.sentence.startswith(
        f"Passed over {count} of its ticks, the first at {first} (every 5m UTC): they "
        f"never began, and its last run was for the tick of {local_text(newest)}."
    )
    assert found.fact == f"passed-over {newest.isoformat()}"
    assert found.help.endswith("#passed-over")


@pytest.mark.parametrize("before", [0, 1])
def test_tick_after_the_former_one_passes_over_nothing(before: int) -> None:
    """Neither a run for the next tick nor a second run for a tick is a finding."""
    begin(before)
    assert SEARCH.attention(get_provider()).findings == {}


def test_next_acquisition_ends_the_finding_of_what_was_passed_over() -> None:
    """The finding is about the newest acquisition alone."""
    begin(3)
    assert SEARCH.attention(get_provider()).findings
    run_by_operator()
    assert SEARCH.attention(get_provider()).findings == {}


def test_acquisition_after_a_while_has_passed_over_ticks() -> None:
    """The record says so by itself, also while the job runs."""
    execute(lambda: None, "job", schedule="every 1s")
    LockRecord.objects.update(tick=F("tick") - timedelta(seconds=10))
    execute(lambda: None, "job", schedule="every 1s")
    [found] = SEARCH.attention(get_provider()).findings["job"]
    assert found.kind is Kind.PASSED_OVER


def test_ticks_in_a_pause_are_not_passed_over() -> None:
    """Neither a pause nor the first run after it passes over any ticks."""
    newest = begin(3)
    provider = get_provider()
    pause("job")
    assert SEARCH.attention(provider).findings == {}
    earlier = {"tick": newest - 4 * TICK, "former_tick": newest - 5 * TICK}
    LockRecord.objects.update(**earlier)
    assert force_release(provider)
    run_by_operator()
    assert SEARCH.attention(provider).findings == {}


def test_registration_passes_over_nothing() -> None:
    """A new job has no former tick."""
    begin(3)
    LockRecord.objects.update(former_tick=None)
    assert SEARCH.attention(get_provider()).findings == {}


def test_ticks_passed_over_before_an_old_tick_are_forgotten() -> None:
    """A job without a run for a day has other findings, if any."""
    newest = begin(3)
    moved = {"tick": newest - DAY - TICK, "former_tick": newest - DAY - 5 * TICK}
    LockRecord.objects.update(**moved, due_at=newest + TICK)
    assert SEARCH.attention(get_provider()).findings == {}
    assert SEARCH.of_locks(get_provider(), ["job"]) == {}
    assert not wanted("default", LockQuery(passed_over=True))


@pytest.mark.parametrize("outcome", BAD)
def test_failed_run_may_have_passed_over_ticks_too(outcome: RunOutcome) -> None:
    """Then its tick is still due, and the more urgent finding comes first."""
    newest = begin(3)
    end_run("job", outcome)
    LockRecord.objects.update(due_at=newest)
    found = Search(DAY).attention(get_provider()).findings["job"]
    assert [each.kind for each in found] == [Kind(outcome), Kind.PASSED_OVER]


def test_database_leaves_out_records_that_passed_over_nothing() -> None:
    """The database compares ticks, and reads only records that passed one over."""
    for number in range(5):
        begin(1, name=f"job {number}")
    begin(2, name="late")
    query = LockQuery(passed_over=True)
    assert [each.name for each in wanted("default", query)] == ["late"]
    assert [each.name for each in get_provider().statuses(query)] == ["late"]


def test_owed_tick_that_waits_for_room_becomes_overdue() -> None:
    """After the grace it is a finding, whatever the beat does meanwhile."""
    newest = begin(1)
    former = {"tick": newest - TICK, "former_tick": newest - 2 * TICK}
    LockRecord.objects.update(**former, due_at=newest)
    age = datetime.now(UTC) - newest
    assert Search(age + MINUTE).attention(get_provider()).findings == {}
    [found] = Search(age).attention(get_provider()).findings["job"]
    assert found.kind is Kind.OVERDUE


@pytest.mark.parametrize(
    "name", [CATCH_UP_LOCK, f"{BEAT_LOCK_PREFIX}web-1", f"shop.{BEAT_LOCK_PREFIX}web-1"]
)
def test_own_locks_have_no_findings(name: str) -> None:
    """A beat that was killed, or stopped days ago, is no job of the project."""
    begin(3, name=name)
    end_run(name, RunOutcome.FAILED)
    assert SEARCH.attention(get_provider()).findings == {}
    be_overdue(name)
    assert SEARCH.attention(get_provider()).findings == {}
    take(name)
    expire(name)
    assert SEARCH.attention(get_provider()).findings == {}
    assert SEARCH.of_locks(get_provider(), [name]) == {}
    assert call("check")[0] == 0
