"""``manage.py shedlock pause``, ``resume`` and ``trigger``."""

from __future__ import annotations

import json
import logging
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import CommandError
from django.test import override_settings

from django_shedlock import execute, hold, scheduler_lock, signals
from django_shedlock.cli.base import operator
from django_shedlock.console.models import LockAction
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.operators import AuditedAction, PauseJob, actions
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.models.runs import LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import held_elsewhere
from tests.support.commands import call, run
from tests.support.durations import rounded_up
from tests.support.jobs import DAILY, Jobs, make_late, ran, scheduled_jobs
from tests.support.locks import (
    end_run,
    expire,
    force_release,
    pause,
    state,
    status_of,
    take,
)
from tests.support.processes import Parent, context, worker, workers

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)
REASON = ("--reason", "the mail server moves")
LISTS_ALL = "`python manage.py shedlock list` shows all of them."


@pytest.fixture(autouse=True)
def jobs() -> Iterator[Jobs]:
    with scheduled_jobs() as made:
        yield made


def test_paused_job_is_skipped(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    """Each skip tells who paused it, and why; nothing is recorded as a run."""
    jobs.report()
    ran.clear()
    told = run("pause", "report", *REASON)
    assert told == "The job of lock 'report' is paused until it is resumed.\n"
    with caplog.at_level(logging.INFO, "django_shedlock"):
        jobs.report()
        execute(lambda: ran.append("execute"), "report")
    assert ran == []
    skips = [r.getMessage() for r in caplog.records if "not acquired" in r.getMessage()]
    assert len(skips) == 2
    said = f"Lock 'report' not acquired: paused by {operator()}: the mail server moves "
    assert all(skip.startswith(said) for skip in skips)
    assert LockRun.objects.count() == 1


def test_tick_is_not_consumed(jobs: Jobs) -> None:
    """A pause is no run: no signal of one is sent, and the ticks stay as they were."""
    jobs.report()
    heard = []

    def hear(**kwargs: object) -> None:
        heard.append(kwargs)

    ticks = LockRecord.objects.values_list("tick", "due_at", "former_tick")
    before = ticks.get()
    signals.lock_acquired.connect(hear)
    try:
        run("pause", "report", *REASON)
        run("resume", "report")
    finally:
        signals.lock_acquired.disconnect(hear)
    assert (ticks.get(), heard) == (before, [])


def test_paused_job_is_no_finding(jobs: Jobs) -> None:
    """A paused job is not overdue, and its ticks are not run after the resume."""
    jobs.report()
    ran.clear()
    run("pause", "report", *REASON)
    make_late("report")
    assert list(Search(MINUTE).findings(get_provider())) == []
    run("catch-up")
    assert "report" not in ran
    told = run("resume", "report")
    assert "pause are not run; the next one is at " in told
    assert "had paused it, because: the mail server moves." in told
    assert list(Search(MINUTE).findings(get_provider())) == []
    run("catch-up")
    assert "report" not in ran


def test_pause_with_an_end() -> None:
    """A pause with an end ends by itself."""
    take("job").release()
    told = run("pause", "job", *REASON, "--for", "2h")
    assert rounded_up(told) == "The job of lock 'job' is paused for 2h more.\n"
    status = status_of(get_provider(), "job")
    assert timedelta(minutes=119) < status.remaining <= timedelta(hours=2)
    LockRecord.objects.update(lock_until=status.locked_at)
    assert state("job") is LockState.FREE


@pytest.mark.parametrize("lasting", ["0s", "-1h", "soon", "200000d"])
def test_end_must_make_sense(lasting: str) -> None:
    """What is no duration pauses nothing, and is refused by the name that is meant."""
    take("job").release()
    for which in ("job", "--all"):
        with pytest.raises(CommandError) as refused:
            run("pause", which, *REASON, f"--for={lasting}")
        assert "None" not in str(refused.value)
    assert state("job") is LockState.FREE


def test_reason_is_required() -> None:
    """Whoever is woken by it needs to know why."""
    take("job").release()
    with pytest.raises(CommandError, match="--reason"):
        run("pause", "job")


def test_running_job_is_refused() -> None:
    """Exit status 3, and what to do."""
    lock = take("job")
    with pytest.raises(CommandError, match="With --wait 10m") as refusal:
        run("pause", "job", *REASON)
    assert refusal.value.returncode == 3
    assert f"its job is running as {lock.locked_by}" in str(refusal.value)


def pause_after(parent: Parent) -> str:
    def say_once_and_sleep(seconds: float) -> None:
        if not said:
            parent.say("waiting")
            said.append(True)
        sleep(seconds)

    sleep, said = time.sleep, list[bool]()
    with patch.object(actions.time, "sleep", say_once_and_sleep):
        return run("pause", "job", *REASON, "--wait", "1h")


def test_pause_waits_for_a_run() -> None:
    """A pause with ``--wait`` begins when the job has ended."""
    lock = take("job")
    with worker(pause_after) as waiting:
        assert waiting.heard() == "waiting"
        assert state("job") is LockState.RUNNING
        lock.release()
        assert "is paused until it is resumed" in waiting.result()
    assert state("job") is LockState.PAUSED


def test_wait_ends() -> None:
    """A job that outlasts it is not paused: exit status 3."""
    take("job")
    with pytest.raises(CommandError, match="its job is running") as refusal:
        run("pause", "job", *REASON, "--wait", "10ms")
    assert refusal.value.returncode == 3


def test_typo_makes_no_record() -> None:
    """Only records and known jobs are names: exit status 4."""
    with pytest.raises(CommandError, match="There is no lock 'reprot'") as refusal:
        run("pause", "reprot", *REASON)
    assert refusal.value.returncode == 4
    assert not LockRecord.objects.exists()
    assert not LockAction.objects.exists()


@override_settings(SHEDLOCK_NAMESPACE="shop")
def test_known_job_without_a_record_is_paused() -> None:
    """By the name in its code, before it ever ran."""
    run("pause", "tidy", *REASON)
    assert state("shop.tidy") is LockState.PAUSED
    run("resume", "tidy", *REASON)
    assert state("shop.tidy") is LockState.FREE


def test_same_pause_is_told() -> None:
    """Who paused the job already, and why: exit status 7."""
    pause("job", lasting=timedelta(days=36525))
    with pytest.raises(CommandError, match="alice paused it, because") as refusal:
        run("pause", "job", *REASON)
    assert refusal.value.returncode == 7


def test_other_reason_replaces_the_pause() -> None:
    """The new pause takes over that very one."""
    pause("job")
    told = run("pause", "job", "--reason", "the disk is full")
    assert "This replaces the pause by alice" in told
    status = status_of(get_provider(), "job")
    assert status.pause == Pause(operator(), "the disk is full")


HOSTS = 3


def try_until(parent: Parent, is_over: Any) -> int:
    """Start the job again and again; return how often it was run."""
    runs = int(execute(lambda: None, "job").was_executed)
    parent.say("tried")
    while not is_over.is_set():
        runs += execute(lambda: None, "job").was_executed
    return runs


def test_nothing_runs_between_two_pauses() -> None:
    """No host that tries all the time gets in where one replaces the other."""
    pause("job")
    is_over = context.Event()
    with workers(HOSTS, try_until, is_over) as hosts:
        assert [host.heard() for host in hosts] == ["tried"] * HOSTS
        for number in range(20):
            run("pause", "job", "--reason", f"reason {number}")
        is_over.set()
        assert [host.result() for host in hosts] == [0] * HOSTS
    assert state("job") is LockState.PAUSED


def test_release_points_to_resume() -> None:
    """A pause is nothing that is released by mistake: exit status 7."""
    pause("job")
    held_by = status_of(get_provider(), "job").locked_by
    with pytest.raises(CommandError, match="shedlock resume job --held-by") as refusal:
        run("release", "job")
    assert refusal.value.returncode == 7
    assert f"{shlex.quote(held_by)}` ends the pause." in str(refusal.value)
    assert "alice paused it, because: the mail server moves" in str(refusal.value)
    assert state("job") is LockState.PAUSED
    with pytest.raises(CommandError, match="also needs --reason"):
        run("release", "job", "--held-by", held_by)
    run("release", "job", "--held-by", held_by, "--reason", "it has moved")
    assert state("job") is LockState.FREE


@pytest.mark.parametrize(
    "words",
    [
        *(("release", "job"), ("extend", "job", "1m"), ("trigger", "report")),
        ("withdraw", "report"),
    ],
)
def test_blank_reason_that_is_optional_is_none(words: tuple[str, ...]) -> None:
    """A blank optional reason is recorded as if it was not given."""
    take("job", lock_at_least_for=MINUTE).release()
    get_provider().request_run("report", "ada", "at once")
    assert call(*words, "--reason", "  ")[0] == 0
    assert LockAction.objects.get().reason == ""


def test_blank_reason_releases_no_running_job() -> None:
    """Where the release of a running job needs a reason, blanks are none."""
    lock = take("job")
    words = ("--held-by", lock.locked_by, "--reason", " ")
    status, _, told = call("release", "job", *words)
    assert (status, "also needs --reason" in told) == (3, True)
    assert state("job") is LockState.RUNNING


def test_resume_of_what_is_not_paused() -> None:
    """Nothing is released: exit status 5, or 3 if the job runs."""
    lock = take("job")
    with pytest.raises(CommandError, match="'job' is not resumed") as refusal:
        run("resume", "job")
    assert refusal.value.returncode == 3
    assert state("job") is LockState.RUNNING
    lock.release()
    with pytest.raises(CommandError, match="nobody holds it") as refusal:
        run("resume", "job")
    assert refusal.value.returncode == 5
    with pytest.raises(CommandError, match="There is no lock 'jbo'"):
        run("resume", "jbo")


def test_receivers_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Signals and the log report each pause and each resume."""
    heard: list[tuple[str, AuditedAction]] = []

    def hear(*, signal: object, action: AuditedAction, **kwargs: object) -> None:
        name = "paused" if signal is signals.lock_paused else "resumed"
        heard.append((name, action))

    take("job").release()
    signals.lock_paused.connect(hear)
    signals.lock_resumed.connect(hear)
    try:
        run("pause", "job", *REASON)
        run("resume", "job", "--reason", "it has moved")
    finally:
        signals.lock_paused.disconnect(hear)
        signals.lock_resumed.disconnect(hear)
    assert [(name, action.reason) for name, action in heard] == [
        ("paused", "the mail server moves"),
        ("resumed", "it has moved"),
    ]
    assert f"Lock 'job': its job is paused by {operator()}" in caplog.text
    ended = f"Lock 'job': {operator()}'s pause has ended, by {operator()}, because: "
    assert f"{ended}'it has moved'." in caplog.text


def test_pause_of_a_name_takes_that_lock_only() -> None:
    """The locks of the other tenants are free."""
    made = scheduler_lock("import:{tenant}")(lambda tenant: ran.append(tenant))
    made(tenant="gold")
    run("pause", "import:gold", *REASON)
    made(tenant="gold")
    made(tenant="silver")
    assert ran == ["gold", "silver"]


def states() -> dict[str, str]:
    return {each.name: each.state.value for each in get_provider().statuses()}


FOR_2H = ("--for", "2h")


def test_pause_by_pattern(caplog: pytest.LogCaptureFixture) -> None:
    """All locks that match, and a known job that never ran; each has its row."""
    for name in ("rates.fetch", "rates.check", "other"):
        take(name).release()
    made = scheduler_lock("rates.never")(lambda: None)
    told = run("pause", "rates.*", *REASON, *FOR_2H)
    names = ["rates.check", "rates.fetch", "rates.never"]
    *lines, last = rounded_up(told).splitlines()
    assert lines == [
        f"The job of lock {name!r} is paused for 2h more." for name in names
    ]
    assert last == "Paused: 3 of 3 jobs."
    assert states() == {**dict.fromkeys(names, "paused"), "other": "free"}
    rows = LockAction.objects.order_by("pk").values_list("name", "kind", "result")
    assert list(rows) == [(name, "pause", "done") for name in names]
    assert [f"Lock {name!r}: its job is paused" in caplog.text for name in names]
    told = run("resume", "rates.*")
    assert told.splitlines()[-1] == "Resumed: 3 of 3 paused jobs."
    assert set(states().values()) == {"free"}
    assert made is not None


def test_pause_of_all_leaves_the_package_s_own_locks(jobs: Jobs) -> None:
    """A beat, and a catch-up, go on, and find that no job may be started."""
    run("catch-up")
    take("shedlock.beat:web-1")
    take("job").release()
    told = run("pause", "--all", *REASON, *FOR_2H)
    assert "shedlock." not in told
    free = {name for name, state in states().items() if state != "paused"}
    assert free == {"shedlock.catch-up", "shedlock.beat:web-1"}
    assert {"job", "report", "tidy"} <= states().keys()
    run("resume", "--all")
    assert "paused" not in states().values()


@override_settings(SHEDLOCK_NAMESPACE="shop[1]")
def test_wildcard_in_the_namespace_stands_for_itself() -> None:
    """``--all`` leaves the jobs of a namespace alone that it would match."""
    for name in ("shop[1].own", "shop1.other"):
        take(name).release()
    run("pause", "--all", *REASON)
    assert states()["shop[1].own"] == "paused"
    assert states()["shop1.other"] == "free"


def test_pause_that_somebody_has_ended_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The operator has seen that pause, and not that the job may run again."""
    pause("job")
    replace = DatabaseLockProvider.replace

    def resume_first(*args: Any, **options: Any) -> bool:
        monkeypatch.setattr(DatabaseLockProvider, "replace", replace)
        run("resume", "job")
        return replace(*args, **options)

    monkeypatch.setattr(DatabaseLockProvider, "replace", resume_first)
    with pytest.raises(CommandError, match="is not paused: nobody holds it"):
        run("pause", "job", *REASON)
    assert state("job") is LockState.FREE


def test_pause_of_one_names_a_body_that_went_on_without_its_lock() -> None:
    """The pause of one job names the worker that may still run without its lock."""
    lock = take("job")
    force_release(get_provider())
    get_provider().account_for_loss(lock, has_ended=False)
    told = run("pause", "job", *REASON)
    assert f"Its last run, as {lock.locked_by}, may still go on." in told


def test_pause_of_all_waits_for_running_jobs_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While one of them is waited for, no idle job may start."""
    running = take("a.runs")
    take("z.idle").release()
    seen = []

    def end_the_run(pause: float) -> None:
        seen.append(states()["z.idle"])
        running.release()

    monkeypatch.setattr(actions.time, "sleep", end_the_run)
    told = run("pause", "[az].*", *REASON, *FOR_2H, "--wait", "10m")
    assert "Paused: 2 of 2 jobs." in told
    assert "may still run" not in told  # it has ended
    assert seen == ["paused"]
    assert set(states().values()) == {"paused"}


def test_pause_of_all_names_a_body_that_went_on_without_its_lock() -> None:
    """
    The pause of several jobs names the workers that may run without a lock.

    Such a lock is free, and nobody knows whether its body has ended.
    """
    lock = take("job")
    force_release(get_provider())
    get_provider().account_for_loss(lock, has_ended=False)
    told = run("pause", "j*", *REASON, *FOR_2H)
    assert f"so they may still run: job as {lock.locked_by}." in told


def test_resume_of_all_leaves_pauses_of_others_without_an_end() -> None:
    """Somebody may have good reasons; by its name each can be resumed."""
    take("own").release()
    pause("broken", lasting=FOREVER)
    pause("for an hour")
    run("pause", "own", *REASON)
    status, told, error = call("resume", "*")
    assert status == 0
    assert (
        "Left alone, since somebody else paused them without an end: broken." in error
    )
    assert "Resumed: 2 of 3 paused jobs." in told
    assert states() == {"broken": "paused", "for an hour": "free", "own": "free"}
    status, told, error = call("resume", "--all")
    assert (status, told) == (7, "")
    assert "Resumed: 0 of 1 paused jobs." in error
    run("resume", "broken")
    assert states()["broken"] == "free"


def test_own_lock_of_the_package_is_not_paused() -> None:
    """
    A lock of the package itself can't be paused.

    Such a lock has no job, and its record would say that catch-ups come.
    """
    run("catch-up")
    status, _, told = call("pause", "shedlock.catch-up", *REASON)
    assert (status, "it is a lock of the package itself" in told) == (5, True)
    assert states()["shedlock.catch-up"] == "free"


@pytest.mark.each_store
def test_pause_of_all_says_what_still_runs() -> None:
    """Jobs that run are not stopped; the others are paused, and the status is 3."""
    running, dead = take("a.runs"), take("b.died")
    expire("b.died")
    take("c.idle").release()
    status, printed, told = call("pause", "[abc].*", *REASON, *FOR_2H)
    assert status == 3
    assert (
        f"'a.runs' is not paused: its job is running as {running.locked_by}" in printed
    )
    assert told == (
        "Paused: 2 of 3 jobs. Not stopped, so they may still run: b.died as "
        f"{dead.locked_by}, a.runs as {running.locked_by}."
    )
    assert states() == {"a.runs": "running", "b.died": "paused", "c.idle": "paused"}
    refused = LockAction.objects.get(result="refused")
    assert refused.name == "a.runs"


def test_store_that_fails_for_one_lock_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A store that fails for one lock does not stop the pause of the others.

    The failed lock's line has the error, and the exit status is 1.
    """
    acquire = DatabaseLockProvider.acquire

    def fail_once(self: DatabaseLockProvider, lock: Lock) -> Any:
        if lock.name == "a":
            raise LockProviderError("the store is away")
        return acquire(self, lock)

    for name in "ab":
        take(name).release()
    monkeypatch.setattr(DatabaseLockProvider, "acquire", fail_once)
    status, printed, told = call("pause", "[ab]", *REASON, *FOR_2H)
    assert (status, told) == (1, "Paused: 1 of 2 jobs.")
    assert "the store is away\n" in printed
    assert states() == {"a": "free", "b": "paused"}


def test_pattern_keeps_a_longer_pause_of_somebody_else() -> None:
    """A pattern keeps somebody else's longer pause, and replaces a shorter one."""
    pause("job.a", lasting=FOREVER)
    pause("job.b", lasting=MINUTE)
    told = run("pause", "job.*", *REASON, *FOR_2H)
    assert "'job.a' is paused already: alice paused it" in told
    assert "Paused: 2 of 2 jobs." in told
    assert status_of(get_provider(), "job.a").is_endless
    assert status_of(get_provider(), "job.b").remaining > timedelta(hours=1)


def test_several_pauses_without_an_end_are_warned_of() -> None:
    """Nobody forgets that way to resume what a whole window has paused."""
    take("job").release()
    status, _, told = call("pause", "j*", *REASON)
    assert (status, told) == (
        0,
        "Without --for, these pauses have no end. Only `shedlock resume` ends them.\n",
    )
    assert call("pause", "--all", *REASON, *FOR_2H)[2] == ""


def test_one_wait_is_for_all_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one job is waited for the time passes for the others as well."""
    for name in "ab":
        take(name)
    waits: list[timedelta] = []
    perform = PauseJob.perform

    def note_wait(self: PauseJob, *args: Any) -> bool:
        waits.append(self.wait)
        return perform(replace(self, wait=timedelta(0)), *args)

    monkeypatch.setattr(PauseJob, "perform", note_wait)
    assert call("pause", "[ab]", *REASON, "--wait", "1h")[0] == 3
    first, second = waits
    assert timedelta(0) < second < first <= timedelta(hours=1)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("pause", "rtaes.*", *REASON), 4),
        (("resume", "rtaes.*"), 4),
        (("resume", "rates.*"), 5),
        (("pause", *REASON), 2),
        (("pause", "rates.*", "--all", *REASON), 2),
        (("pause", "rates.*", "--held-by", "web-1:7:ab", *REASON), 2),
        (("resume", "--all", "--held-by", "web-1:7:ab"), 2),
    ],
)
def test_pattern_that_makes_no_sense(words: tuple[str, ...], status: int) -> None:
    """Nothing matches, nothing is paused, or the arguments contradict each other."""
    take("rates.fetch").release()
    assert call(*words)[:2] == (status, "")
    assert states() == {"rates.fetch": "free"}


def test_lock_whose_name_looks_like_a_pattern() -> None:
    """A name that looks like a pattern means the lock of exactly that name."""
    for name in ("import[a]", "importa"):
        take(name).release()
    run("pause", "import[a]", *REASON)
    assert states() == {"import[a]": "paused", "importa": "free"}


@override_settings(SHEDLOCK_NAMESPACE="shop")
def test_all_are_those_of_the_namespace() -> None:
    """Another project that shares the table goes on."""
    take("other.job").release()
    run("pause", "--all", *REASON, *FOR_2H)
    assert states().pop("other.job") == "free"
    assert states()["shop.tidy"] == "paused"


@pytest.mark.parametrize(
    "words", [("resume",), ("pause", "--reason", "the disk is full")]
)
def test_bound_command_spares_another_pause(words: tuple[str, ...]) -> None:
    """A command with ``--held-by`` changes only the pause that the operator saw."""
    seen = pause("job")
    force_release(get_provider(), "job")
    other = pause("job")
    name, *rest = words
    status, _, told = call(name, "job", *rest, "--held-by", seen.locked_by)
    assert status == 7
    assert f"{seen.locked_by!r} does not hold it; alice paused it" in told
    assert status_of(get_provider(), "job").locked_by == other.locked_by
    assert call(name, "job", *rest, "--held-by", other.locked_by)[0] == 0


@pytest.mark.parametrize(
    ("end", "why"),
    [("released", "nobody holds it"), ("expired", "its lease is over, but its job")],
)
def test_wrong_identity_is_named(end: str, why: str) -> None:
    """What the operator gave is repeated, and who has the lock; nothing is invented."""
    lock = take("job")
    lock.release() if end == "released" else expire("job")
    told = call("release", "job", "--held-by", "foo", "--reason", "its host is gone")[2]
    known = f"Lock 'job' is not released: 'foo' does not hold it; {why}"
    assert told.startswith(known)


def test_extension_of_an_endless_pause_has_no_number_of_days() -> None:
    """
    The extension of an endless pause prints no number of days.

    The lease of a hundred years exists only in the store.
    """
    pause("job", lasting=FOREVER)
    assert run("extend", "job", "1h") == (
        "The job of lock 'job' is paused until it is resumed. Its lease was longer "
        "than that already.\n"
    )


@pytest.mark.parametrize("name", ["pause", "resume"])
def test_pattern_of_no_lock_is_named(name: str) -> None:
    """The error says that it is a pattern, as those of list and show do: 4."""
    status, _, told = call(name, "x*", "--reason", "it moves")
    assert (status, told) == (4, f"No lock matches the pattern 'x*'. {LISTS_ALL}")


@pytest.mark.parametrize(
    "words", [("release",), ("acknowledge", "--reason=r"), ("withdraw",), ("catch-up",)]
)
def test_pattern_where_one_name_is_needed(words: tuple[str, ...]) -> None:
    """A pattern where one name is needed is refused, and the error says why."""
    take("x1")
    name, *rest = words
    status, _, told = call(name, "x*", *rest)
    hint = "It looks like a pattern, but a name is needed here."
    assert (status, told) == (4, f"There is no lock 'x*'. {hint} {LISTS_ALL}")


def test_replaced_pause_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The line says whose pause the new one replaces."""
    pause("job")
    run("pause", "job", "--reason", "the disk is full")
    assert caplog.messages == [
        f"Lock 'job': its job is paused by {operator()}, because: 'the disk is full'. "
        "This replaces alice's pause."
    ]


def test_job_runs_though_its_tick_is_done(jobs: Jobs) -> None:
    """An operator need not wait for the next tick."""
    jobs.report()
    jobs.report()
    assert ran == ["report"]
    assert "The job of lock 'report' has run, for " in run("trigger", "report")
    assert ran == ["report", "report"]


def test_job_runs_though_its_lock_is_kept(jobs: Jobs) -> None:
    """``lock_at_least_for`` is not in the way when a job must run now."""
    jobs.tidy()
    jobs.tidy()
    assert ran == ["tidy"]
    run("trigger", "tidy")
    assert ran == ["tidy", "tidy"]


def test_next_tick_is_still_run() -> None:
    """A run by hand is not that of the tick to come."""
    run("trigger", "report")
    tick = LockRecord.objects.get().tick
    run("trigger", "report")
    assert LockRecord.objects.get().tick == tick


def test_tick_that_follows_is_not_kept_away() -> None:
    """``lock_at_least_for`` does not outlive a run by hand of a job with a schedule."""
    job = scheduler_lock("kept", lock_at_least_for="1m", **DAILY)(lambda: None)
    run("trigger", "kept")
    assert status_of(get_provider(), "kept").state is LockState.FREE
    assert job is not None


@pytest.mark.parametrize("name", ["digest now", "fetch"])
def test_command_and_coroutine(name: str) -> None:
    """Management commands and coroutine functions are started, too."""
    run("trigger", name)
    assert ran == [name]


def test_running_job_is_not_started_again() -> None:
    """A job never runs twice at a time: exit status 3."""
    with held_elsewhere("report"):
        with pytest.raises(CommandError, match="its job is running as") as refusal:
            run("trigger", "report")
    assert refusal.value.returncode == 3
    assert ran == []


@pytest.mark.parametrize("name", ["report", "digest now"])
def test_refusal_is_said_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without settings for the log, Python prints warnings on the same terminal."""
    with held_elsewhere(name):
        status, printed, complaint = call("trigger", name)
    warnings = "".join(r.getMessage() for r in caplog.records if r.levelno >= 30)
    assert (status, printed) == (3, "")
    assert f"{warnings}{complaint}".count("its job is running as") == 1
    assert complaint.startswith(f"The job of lock {name!r} was not started: ")


def test_force_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log says who ran a job out of turn, and why."""
    run("trigger", "report", "--reason", "the mail of 8:00 was lost")
    assert (
        "wants its job to run now, because: 'the mail of 8:00 was lost'." in caplog.text
    )
    assert "by force, whatever its tick and lock_at_least_for" in caplog.text
    assert {record.levelname for record in caplog.records} == {"WARNING"}


@pytest.mark.parametrize("subcommand", ["pause", "trigger", "extend", "acknowledge"])
def test_reason_is_kept_without_its_secrets(
    subcommand: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No row and no line of the log has what somebody pasted into it."""
    if subcommand == "extend":
        take("report")
    elif subcommand == "acknowledge":
        end_run("report", RunOutcome.FAILED)
    else:
        take("report").release()
    words = ["1h"] if subcommand == "extend" else []
    run(subcommand, "report", *words, "--reason", "as curl -H 'X-Token: s3cr3t' says")
    tables = (LockRecord, LockRun, LockAction)
    kept = [str(row) for table in tables for row in table.objects.values()]
    kept += [caplog.text, run("show", "report", "--json"), run("list", "--wide")]
    assert "s3cr3t" not in "".join(kept)
    assert "X-Token: ***" in "".join(kept)


def test_force_without_a_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log says that none was given."""
    run("trigger", "report")
    assert "wants its job to run now, without a reason." in caplog.text


def test_failure_is_raised() -> None:
    """What the job raises is what the operator sees."""
    with pytest.raises(ZeroDivisionError):
        run("trigger", "failing")


def test_unknown_job() -> None:
    """A name that no job has is refused, and those that there are are told."""
    with pytest.raises(CommandError, match="No job with a lock 'typo'") as refusal:
        run("trigger", "typo")
    with pytest.raises(CommandError, match="Did you mean 'report'?"):
        run("trigger", "reprot")
    assert refusal.value.returncode == 4
    assert "There are 'digest now', 'failing', 'fetch', 'remind', " in str(
        refusal.value
    )


def test_job_that_needs_arguments() -> None:
    """A job can't be started without the arguments that it needs."""
    with pytest.raises(CommandError, match="needs arguments") as refusal:
        run("trigger", "remind")
    assert refusal.value.returncode == 4
    assert ran == []


@override_settings(SHEDLOCK_NAMESPACE="shop")
def test_name_with_and_without_namespace() -> None:
    """A job is found by the name in its code, and by that in the table."""
    run("trigger", "report")
    run("trigger", "shop.report")
    assert ran == ["report", "report"]
    assert LockRecord.objects.get().name == "shop.report"


def run_until_told(parent: Parent) -> str:
    """Run a job until the parent says so; return by which acquisition."""
    with hold("media.cleanup") as lock:
        parent.say(lock.locked_by)
        assert parent.wait() == "end"
    return lock.locked_by


def test_pasted_command_releases_no_later_run() -> None:
    """A command of 03:00, pasted at 03:20, finds another run, and spares it."""
    with worker(run_until_told) as slow:
        assert slow.heard()
        LockRecord.objects.update(lock_until=DatabaseNow())
        [found] = json.loads(call("check", "--json")[1])
        assert found["command"] == "python manage.py shedlock show media.cleanup"
        assert call("show", "media.cleanup")[1].count(found["command_after_look"]) == 1
        mailed = shlex.split(found["command_after_look"])[3:]
        slow.send("end")
        slow.result()
    with worker(run_until_told) as healthy:
        identity = healthy.heard()
        status, printed, told = call(*mailed)
        assert (status, printed) == (3, "")
        assert f"does not hold it; its job is running as {identity}." in told
        assert not execute(lambda: None, "media.cleanup").was_executed
        healthy.send("end")
        assert healthy.result() == identity
