"""One cause is one finding: no host has started any job, whatever is overdue then."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.urls import reverse

from django_shedlock import execute, scheduler_lock
from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.clocks import local_text
from django_shedlock.console.monitoring import starts
from django_shedlock.console.monitoring.evidence import Past
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.notices import Change, news_for
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.monitoring.starts import NEVER, LastStart, last_start
from django_shedlock.locks.own import BEAT_LOCK_PREFIX, CATCH_UP_LOCK
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockQuery
from django_shedlock.registry.jobs import starting
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.sql.fields import DatabaseNow
from tests.support.commands import call
from tests.support.locks import MINUTE, end_run, pause, take
from tests.support.notices import pass_time
from tests.support.operators import LIST, operator
from tests.support.private_connections import counted_statements

pytestmark = pytest.mark.django_db

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SEARCH = Search(5 * MINUTE)


def start(name: str, ago: timedelta, host: str = "web-1") -> None:
    """Let a host have started the job then, in time, and nobody since."""
    execute(lambda: None, name, schedule="every 1m")
    columns = ("locked_at", "lock_until", "released_at", "started_at", "ended_at")
    moved = {each: F(each) - ago for each in (*columns, "tick", "due_at")}
    ran = LockRun.objects.filter(locked_by=LockRecord.objects.get(name=name).locked_by)
    locked_by = f"{host}:7:{secrets.token_hex(8)}"
    mine = LockRecord.objects.filter(name=name)
    mine.update(locked_by=locked_by, last_run=locked_by, **moved)
    past = {each: F(each) - ago for each in ("started", "ended")}
    ran.update(locked_by=locked_by, **past)


def dead_cron(count: int = 13) -> None:
    """Let no job have been started for an hour; the last one was on host web-2."""
    for number in range(count - 1):
        start(f"job {number:02}", HOUR + timedelta(seconds=number + 1))
    start("last", HOUR, host="web-2")


def run_by_hand(name: str, trigger: Trigger = Trigger.OPERATOR) -> None:
    """Let the job run now, though no scheduler starts it."""

    @scheduler_lock(name, schedule="every 1m")
    def job() -> None:
        pass

    with starting(Start(trigger, operator="alice")):
        job()


def end(name: str, after: timedelta) -> None:
    """Let the job's last run have ended so much later."""
    run = LockRecord.objects.get(name=name).locked_by
    LockRun.objects.filter(locked_by=run).update(ended=F("ended") + after)


def newest_start() -> LastStart | None:
    """Return the last start that shows a scheduler at work."""
    return last_start(get_provider(), Past(get_provider()))


def found() -> list[Finding]:
    """Return the findings that are told, those of one cause once."""
    return [each for each in SEARCH.verdict(["default"]) if not each.is_folded]


@pytest.mark.each_store
def test_dead_cron_is_one_finding() -> None:
    """A dead cron is one finding with its start, its last host, and the due jobs."""
    dead_cron()
    [silence] = found()
    last = LockRecord.objects.get(name="last")
    since = last.locked_at
    assert (silence.kind, silence.lock) == (Kind.SILENT, None)
    assert silence.fact == f"silent {last.locked_by}"
    assert silence.sentence == (
        f"No host has started any scheduled job since {local_text(since)} (last: "
        "web-2), though 13 are due: job 00, job 01, job 02 and 10 more. Check whether "
        "the scheduler runs."
    )
    assert silence.command == "python manage.py shedlock catch-up"
    status, printed, _ = call("check")
    assert (status, printed.count("WARNING")) == (1, 1)


def test_full_stop_in_a_name_ends_no_headline() -> None:
    """A post has the whole first sentence."""
    dead_cron(2)
    LockRecord.objects.filter(name="last").update(name="a. last")
    [silence] = found()
    assert silence.headline.endswith("though 2 are due: a. last, job 00.")


def test_other_faults_stand_before_the_jobs_of_a_dead_cron() -> None:
    """The job that hangs is not pushed below them, in no list."""
    dead_cron()
    take("hangs")
    end_run("hangs", duration=MINUTE)
    LockRecord.objects.filter(name="hangs").update(
        locked_at=DatabaseNow() - 2 * HOUR, lock_until=DatabaseNow() + HOUR
    )
    assert [each.kind for each in found()] == [Kind.SILENT, Kind.LONG]
    attention = SEARCH.attention(get_provider())
    assert next(iter(attention.findings)) == "hangs"
    assert len(attention.findings) == 14
    page = operator("view_lockrecord").get(reverse(LIST)).content.decode()
    first = page.index("any scheduled job since")
    assert first < page.index("lock hangs") < page.index("lock job 00")
    assert page.count("No host starts scheduled jobs: see above.") == 13
    assert page.count("any scheduled job since") == 1


def test_failure_of_a_job_that_waits_is_told_as_well() -> None:
    """A job's failure is reported beside a silence, since it has another cause."""
    dead_cron(3)
    LockRecord.objects.filter(name="last").update(outcome=RunOutcome.FAILED.value)
    assert [each.kind for each in found()] == [Kind.SILENT, Kind.FAILED]


def test_job_that_was_overdue_before_has_its_own_cause() -> None:
    """
    A job that was overdue before a silence is reported as well.

    Other jobs were started after that job's tick.
    """
    dead_cron(3)
    start("own", 3 * DAY)
    assert [(each.kind, each.lock) for each in found()] == [
        (Kind.SILENT, None),
        (Kind.OVERDUE, "own"),
    ]


def test_scheduler_that_died_while_it_started_jobs() -> None:
    """Jobs of the same tick were not overdue yet when the last one was started."""
    dead_cron(3)
    earlier = F("due_at") - 4 * MINUTE
    LockRecord.objects.exclude(name="last").update(due_at=earlier, tick=earlier)
    assert [each.kind for each in found()] == [Kind.SILENT]


def test_one_job_alone_is_overdue() -> None:
    """Nobody knows then whether its scheduler starts any other."""
    dead_cron(1)
    assert [each.kind for each in found()] == [Kind.OVERDUE]


def test_start_of_a_job_ends_the_silence() -> None:
    """What is still overdue is told by itself."""
    dead_cron(3)
    start("job 00", timedelta(0))
    assert [(each.kind, each.lock) for each in found()] == [
        (Kind.OVERDUE, "job 01"),
        (Kind.OVERDUE, "last"),
        (Kind.PASSED_OVER, "job 00"),
    ]


@pytest.mark.parametrize("why", ["off", "unwritten"])
def test_start_ends_a_silence_without_a_history(settings: Any, why: str) -> None:
    """
    A start ends a silence even if no history records the start.

    Then only the records say that a scheduler works again.
    """
    settings.SHEDLOCK_HISTORY = why != "off"
    dead_cron(3)
    with news_for("mail", SEARCH, ["default"], SEARCH.verdict(["default"])) as news:
        assert [each.kind for each in news] == [Kind.SILENT]
    pass_time(HOUR)
    for name in ("job 00", "job 01", "last"):
        execute(lambda: None, name, schedule="every 1m")
    if why == "unwritten":
        LockRun.objects.all().delete()
        LockRecord.objects.update(unrecorded_at=DatabaseNow())
    now = [each for each in SEARCH.verdict(["default"]) if each.kind is Kind.SILENT]
    for _ in range(2):
        with news_for("mail", SEARCH, ["default"], now) as news:
            pass
        pass_time(HOUR)
    assert [(each.change, each.kind) for each in news] == [
        (Change.RECOVERED, Kind.SILENT)
    ]


@pytest.mark.each_store
@pytest.mark.parametrize("trigger", [Trigger.OPERATOR, Trigger.CATCH_UP])
def test_run_by_hand_ends_no_silence(trigger: Trigger) -> None:
    """What people and catch-ups start shows no scheduler at work."""
    dead_cron(4)
    [before] = found()
    started = newest_start()
    assert started is not None
    for name in ("last", "job 01"):
        run_by_hand(name, trigger)
    now = newest_start()
    assert now is not None
    assert (now.run, now.lock) == (started.run, "last")
    silence = next(each for each in found() if each.kind is Kind.SILENT)
    assert silence.fact == before.fact
    assert silence.params["locks"] == ["job 00", "job 02"]


@pytest.mark.django_db(transaction=True)
def test_list_of_a_silent_incident_is_fifteen_statements_at_most() -> None:
    """With a loss, a job that hangs, and a run by hand."""
    dead_cron(5)
    take("hangs", lock_at_most_for=2 * HOUR)
    end_run("lost", RunOutcome.LOST, duration=MINUTE)
    run_by_hand("job 01")
    viewer = operator("view_lockrecord")
    viewer.get(reverse(LIST))
    with counted_statements() as captured:
        page = viewer.get(reverse(LIST)).content.decode()
    assert "any scheduled job since" in page
    assert len(captured) <= 15


def test_last_start_need_not_end_last() -> None:
    """Whoever runs all jobs by hand moves the silence to no other start."""
    dead_cron(2)
    end("job 00", 10 * MINUTE)
    before = newest_start()
    assert before is not None
    assert before.lock == "last"
    for name in ("job 00", "last"):
        run_by_hand(name)
    after = newest_start()
    assert after is not None
    assert (after.lock, after.run) == (before.lock, before.run)


def test_starts_that_nobody_knows_are_no_silence() -> None:
    """The history is too short for the last start by a scheduler."""
    dead_cron(2)
    for name in ("job 00", "last"):
        run_by_hand(name)
    LockRun.objects.exclude(trigger="operator").delete()
    assert newest_start() is None


def test_scheduler_in_the_process_of_a_catch_up() -> None:
    """The history decides; a process may catch up first, and then start jobs."""
    dead_cron(3)
    note_catch_up(get_provider())
    execute(lambda: None, "job 00", schedule="every 1m")
    last = newest_start()
    assert last is not None
    assert last.lock == "job 00"


def test_run_by_hand_is_taken_for_a_start_without_a_history() -> None:
    """Only the history knows what started a run."""
    dead_cron(3)
    run_by_hand("job 00")
    LockRun.objects.all().delete()
    last = newest_start()
    assert last is not None
    assert last.lock == "job 00"


def test_pauses_and_locks_without_a_schedule_are_no_starts() -> None:
    """
    Pauses, locks without a schedule, and a beat's own lock are no starts.

    None of these shows that a scheduler works.
    """
    dead_cron(3)
    pause("job 01")
    for name in ("click", CATCH_UP_LOCK, f"{BEAT_LOCK_PREFIX}web-1"):
        take(name).release()
    LockRecord.objects.filter(name=CATCH_UP_LOCK).update(schedule="every 1m UTC")
    assert [each.kind for each in found()] == [Kind.SILENT]
    start_of = newest_start()
    assert start_of is not None
    assert start_of.lock == "last"


def test_jobs_that_no_host_ever_started() -> None:
    """Registered jobs that no host has ever started are a silence."""
    dead_cron(3)
    LockRecord.objects.update(locked_by="", last_run=None, outcome=None)
    [silence] = found()
    assert silence.sentence.startswith(
        "No host has ever started a scheduled job, though 3 are due"
    )
    assert newest_start() is NEVER


def test_acknowledged_job_is_counted_as_well() -> None:
    """An acknowledged job that is due counts in a silence like the others."""
    dead_cron(3)
    reason = ("--reason", "it moves")
    assert call("acknowledge", "last", *reason)[0] == 0
    [silence] = found()
    assert silence.params["locks"] == ["job 00", "job 01", "last"]
    assert not silence.acknowledged


def test_silence_is_acknowledged_with_its_last_job() -> None:
    """The cron is still dead, and whoever reads of it learns who knows."""
    dead_cron(2)
    verdict = Search(5 * MINUTE, acknowledged=True).verdict
    with news_for("mail", SEARCH, ["default"], verdict(["default"])) as news:
        assert [each.change for each in news] == [Change.NEW]
    for number, name in enumerate(("job 00", "last")):
        assert call("acknowledge", name, "--reason", f"reason {number}")[0] == 0
    assert found() == []
    silence = next(each for each in verdict(["default"]) if each.kind is Kind.SILENT)
    assert silence.acknowledged is not None
    assert silence.acknowledged.reason == "reason 1"
    with news_for("mail", SEARCH, ["default"], verdict(["default"])) as news:
        assert [each.change for each in news] == [Change.ACKNOWLEDGED]


def test_start_before_a_pause_counts() -> None:
    """Who pauses a job hides no start of it."""
    dead_cron(3)
    start("web", timedelta(minutes=6), host="web-3")
    pause("web")
    last = newest_start()
    assert last is not None
    assert (last.lock, last.run) == ("web", LockRecord.objects.get(name="web").last_run)
    assert Kind.SILENT not in [each.kind for each in found()]


def test_too_many_pauses_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is said of starts, and each job is overdue by itself."""
    dead_cron(3)
    monkeypatch.setattr(starts, "NEWEST_START_LIMIT", 2)
    for name in ("paused-1", "paused-2"):
        get_provider().register(name, Schedule("every 1m", "UTC"))
        pause(name)
    assert newest_start() is None
    assert [each.kind for each in found()] == [Kind.OVERDUE] * 3


def test_check_folds_acknowledged_jobs_as_well() -> None:
    """``check`` folds acknowledged overdue jobs into the line of the silence."""
    dead_cron(3)
    for name in ("job 00", "job 01"):
        assert call("acknowledge", name, "--reason", "it moves")[0] == 0
    verdict = Search(5 * MINUTE, acknowledged=True).verdict(["default"])
    told = [(each.kind, each.is_folded, bool(each.acknowledged)) for each in verdict]
    assert told == [
        (Kind.SILENT, False, False),
        (Kind.OVERDUE, True, True),
        (Kind.OVERDUE, True, True),
        (Kind.OVERDUE, True, False),
    ]


@pytest.mark.parametrize(
    "way", ["pause", "catch up", "one left", "trigger that was killed"]
)
def test_silence_has_not_recovered_before_a_scheduler_starts_a_job(way: str) -> None:
    """
    Only a start by a scheduler ends a silence.

    A pause, a catch-up or a trigger makes jobs no longer overdue, but is no recovery.
    """
    dead_cron(2)

    def tell() -> list[Change]:
        findings = Search(5 * MINUTE, acknowledged=True).verdict(["default"])
        with news_for("mail", SEARCH, ["default"], findings) as news:
            return [each.change for each in news if each.kind is Kind.SILENT]

    assert tell() == [Change.NEW]
    for name in ("job 00", "last")[: 1 if way == "one left" else 2]:
        if way == "pause":
            pause(name)
        else:
            run_by_hand(name)
    if way == "trigger that was killed":
        LockRun.objects.filter(trigger="operator").update(trigger="")
    assert Kind.SILENT not in [each.kind for each in found()]
    # Neither a click nor the end of an earlier run shows a scheduler at work.
    execute(lambda: None, "click")
    end("last", 2 * DAY)
    for _ in range(2):
        assert tell() == []
        pass_time(HOUR)
    start("other", timedelta(0))
    assert tell() == []
    pass_time(HOUR)
    assert tell() == [Change.RECOVERED]


def test_catch_up_that_still_runs_or_was_killed_ends_no_silence() -> None:
    """
    A catch-up that still runs, or was killed, ends no silence.

    The process notes that it catches up before its jobs are in a history.
    """
    dead_cron(3)
    [before] = found()
    note_catch_up(get_provider())
    run_by_hand("job 00")
    LockRun.objects.filter(name="job 00", trigger="operator").update(trigger="")
    silence = next(each for each in found() if each.kind is Kind.SILENT)
    assert silence.fact == before.fact
    own = LockRecord.objects.filter(name=CATCH_UP_LOCK)
    # A later process may have the number of one that caught up before.
    for other in (
        {"locked_by": "web-9:7:abc"},
        {"locked_at": DatabaseNow() + MINUTE},
        {"locked_at": DatabaseNow() - 61 * MINUTE},
    ):
        before_that = own.values(*other)[0]
        own.update(**other)
        assert Kind.SILENT not in [each.kind for each in found()]
        own.update(**before_that)


def test_advice_names_the_provider() -> None:
    """Without it the command would be about other locks, and say that all is well."""
    advice = Finding(Kind.SILENT, "shop", None, "silent").command
    assert advice == "python manage.py shedlock --provider shop catch-up"


@pytest.mark.django_db(transaction=True)
def test_silence_costs_one_statement_more() -> None:
    """
    The search for a silence sends one more statement if several jobs are due.

    The statement reads the last starts.
    """
    dead_cron(1)
    with counted_statements() as one:
        SEARCH.attention(get_provider())
    start("other", HOUR)
    with counted_statements() as several:
        SEARCH.attention(get_provider())
    # What started these runs also tells that the history can be read.
    assert len(several) == len(one) + 1


@pytest.mark.each_store
def test_newest_starts_come_first() -> None:
    """A query for them leaves out locks without a schedule."""
    dead_cron(3)
    take("click")
    newest = LockQuery(by_newest_start=True, limit=2)
    names = [each.name for each in get_provider().statuses(newest)]
    assert names == ["last", "job 00"]
