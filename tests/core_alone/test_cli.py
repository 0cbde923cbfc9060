"""The command ``shedlock`` in a project without the console and the beat."""

from __future__ import annotations

import io
import json
import sys
from datetime import timedelta

import pytest
from django.apps import apps
from django.core.management import CommandError
from django.utils.translation import override

from django_shedlock import execute, scheduler_lock
from django_shedlock.cli.base import operator
from django_shedlock.cli.command import subcommands
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.sql.fields import DatabaseNow
from django_shedlock.testing import is_held
from tests.support.commands import run
from tests.support.locks import expire, pause, take

pytestmark = pytest.mark.django_db(transaction=True)

OF_CORE = ["extend", "history", "list", "prune", "release", "run", "show", "trigger"]


def test_project_has_one_app_of_ours() -> None:
    """These tests run in a project that has neither the console nor the beat."""
    [ours] = [app for app in apps.get_app_configs() if "shedlock" in app.name]
    assert ours.name == "django_shedlock"
    tables = [model._meta.db_table for model in ours.get_models()]
    assert tables == ["shedlock", "shedlock_run"]


def test_subcommands_are_those_of_the_core() -> None:
    """Findings, pauses and starts come with the other apps."""
    assert sorted(subcommands()) == OF_CORE
    for name in ("check", "pause", "beat"):
        with pytest.raises(CommandError, match="invalid choice"):
            run(name)


def test_list_and_show() -> None:
    """``list`` and ``show`` print the state and the holder, as text and as JSON."""
    lock = take("nightly")
    assert "nightly" in run("list")
    assert lock.locked_by in run("show", "nightly")
    [shown] = json.loads(run("list", "--json"))
    assert (shown["name"], shown["state"]) == ("nightly", "running")
    assert "findings" not in shown
    [running] = json.loads(run("show", "nightly", "--json"))["runs"]
    assert (running["outcome"], running["locked_by"]) == ("running", lock.locked_by)
    with pytest.raises(CommandError, match="There is no lock 'nigthly'. Did you mean"):
        run("list", "nigthly")


def test_history() -> None:
    """``history`` shows the last runs of a lock."""
    execute(list, "nightly", lock_at_most_for="1m")
    assert "succeeded" in run("history", "nightly")


def test_release_of_a_running_job_names_its_acquisition() -> None:
    """Without that the error says what to do, and the status is 3."""
    lock = take("nightly")
    with pytest.raises(CommandError, match="its job is running as") as refused:
        run("release", "nightly")
    assert refused.value.returncode == 3
    words = f"release nightly --held-by {lock.locked_by} --reason"
    assert str(refused.value).endswith(f"python manage.py shedlock {words}")
    with pytest.raises(CommandError, match="also needs --reason") as refused:
        run("release", "nightly", "--held-by", lock.locked_by)
    assert refused.value.returncode == 3
    assert is_held("nightly")
    told = run(*words.split(), "its host is gone")
    assert f"is released. {lock.locked_by} held it" in told
    assert "If it still runs, the next start" in told
    assert not is_held("nightly")
    assert LockRun.objects.get().outcome == "abandoned"


def test_answers_are_in_english() -> None:
    """The rest of the command is, whatever the project's language."""
    lock = take("nightly")
    with override("de"):
        with pytest.raises(CommandError, match="its job is running as"):
            run("release", "nightly")
        told = run("extend", "nightly", "2h")
        assert "is held for 2h more at the most" in told
        words = ("--held-by", lock.locked_by, "--reason", "it is gone")
        assert "is released" in run("release", "nightly", *words)


def test_expired_lock_needs_no_reason() -> None:
    """An expired lock can be released by its acquisition, without a reason."""
    lock = take("nightly")
    expire("nightly")
    with pytest.raises(CommandError, match="its lease is over") as refused:
        run("release", "nightly")
    words = f"release nightly --held-by {lock.locked_by}"
    assert str(refused.value).endswith(f"python manage.py shedlock {words}")
    assert "is released" in run(*words.split())


@pytest.mark.parametrize(
    "words",
    [("release", "--reason", "its host is gone"), ("extend", "2h")],
    ids=["release", "extend"],
)
def test_bound_command_spares_the_next_acquisition(words: tuple[str, ...]) -> None:
    """The error says who holds the lock now; it hands out no other command."""
    seen = take("nightly")
    seen.release()
    now = take("nightly")
    name, *rest = words
    with pytest.raises(CommandError) as refused:
        run(name, "nightly", *rest, "--held-by", seen.locked_by)
    assert str(refused.value).endswith(
        f": '{seen.locked_by}' does not hold it; its job is running as {now.locked_by}."
    )
    assert refused.value.returncode == 3
    now.refresh()
    assert now.remaining() < timedelta(hours=1)


def test_force_needs_a_reason() -> None:
    """``release --force`` needs a reason, because it takes the lock from its holder."""
    lock = take("nightly")
    for words in (["--force"], ["--force", "--held-by", lock.locked_by]):
        with pytest.raises(CommandError) as wrong:
            run("release", "nightly", *words)
        assert wrong.value.returncode == 2
    assert is_held("nightly")
    assert "is released" in run("release", "nightly", "--force", "--reason", "gone")


@pytest.mark.parametrize("typed", ["nightly\n", "nigthly\n", "\n", ""])
def test_force_asks_for_the_name_at_a_terminal(
    typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another name, or the end of the input, leaves the lock alone."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    lock = take("nightly")
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    words = ("release", "nightly", "--force", "--reason", "gone")
    if typed.strip() == "nightly":
        assert "is released" in run(*words)
    else:
        with pytest.raises(CommandError, match="so nothing was done"):
            run(*words)
    assert is_held("nightly") is (typed.strip() != "nightly")
    assert f"its job is running as {lock.locked_by}" in capsys.readouterr().out


def test_log_of_a_released_pause_says_whose_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A pause is no holder, so nobody reads that it was held by one."""
    pause("nightly")
    told = run("release", "nightly", "--force", "--reason", "it has moved")
    assert told == (
        "Lock 'nightly' is released. This ends the pause by alice, because: the mail "
        "server moves.\n"
    )
    assert caplog.messages == [
        f"Lock 'nightly': alice's pause has ended, by {operator()}, because: 'it has "
        "moved'."
    ]


def test_log_of_an_extended_pause_says_whose_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The line about the lease ends with the person who paused the job."""
    pause("nightly")
    run("extend", "nightly", "2h")
    [line] = caplog.messages
    assert line.endswith(f"by {operator()}, without a reason, alice's pause.")


def test_release_of_a_kept_lock_needs_no_force() -> None:
    """A lock that lock_at_least_for keeps belongs to nobody."""
    execute(list, "kept", lock_at_most_for="5m", lock_at_least_for="5m")
    assert "is released" in run("release", "kept")
    with pytest.raises(CommandError, match="nobody holds it") as refused:
        run("release", "kept")
    assert refused.value.returncode == 5


def test_extend() -> None:
    """A held lock is extended from now, and a free one is refused."""
    lock = take("nightly")
    assert "is held for 2h more at the most" in run("extend", "nightly", "2h")
    assert "was longer than that already" in run("extend", "nightly", "1m")
    lock.refresh()
    assert lock.remaining() > timedelta(hours=1)
    lock.release()
    with pytest.raises(CommandError, match="nobody holds it") as refused:
        run("extend", "nightly", "2h")
    assert refused.value.returncode == 5


def test_trigger() -> None:
    """A job runs by the name of its lock; a running one is not started."""
    ran = []

    @scheduler_lock("report")
    def report() -> None:
        ran.append(1)

    assert "has run" in run("trigger", "report", "--reason", "the mail was lost")
    assert ran == [1]
    assert LockRun.objects.get().reason == "the mail was lost"
    take("report")
    with pytest.raises(CommandError, match="its job is running as") as refused:
        run("trigger", "report")
    assert refused.value.returncode == 3
    with pytest.raises(CommandError, match="No job with a lock 'nothing' is known"):
        run("trigger", "nothing")


def test_trigger_of_a_job_that_exits() -> None:
    """``trigger`` reports exit status 0 of a job as a success, and 3 as a failure."""
    statuses = iter([3, 0])

    @scheduler_lock("report")
    def report() -> None:
        raise SystemExit(next(statuses))

    with pytest.raises(CommandError, match="job of lock 'report' failed") as failed:
        run("trigger", "report")
    assert failed.value.returncode == 1
    assert "has run" in run("trigger", "report")


def test_trigger_of_a_job_that_raises_another_status() -> None:
    """A command's own exit status has another meaning here."""

    @scheduler_lock("report")
    def report() -> None:
        raise CommandError("no space is left", returncode=3)

    with pytest.raises(CommandError, match="CommandError: no space is left") as failed:
        run("trigger", "report")
    assert failed.value.returncode == 1


def test_trigger_starts_no_job_beside_an_expired_run() -> None:
    """``trigger`` refuses a job whose lease is over until its run is released."""
    ran = []

    @scheduler_lock("expiring")
    def expiring() -> None:
        ran.append(1)

    lock = take("expiring")
    LockRecord.objects.update(lock_until=DatabaseNow())
    with pytest.raises(CommandError, match="its lease is over, but its job") as refused:
        run("trigger", "expiring")
    assert refused.value.returncode == 3
    assert ran == []
    release = f"shedlock release expiring --held-by {lock.locked_by}"
    assert str(refused.value).endswith(f"is gone, then: python manage.py {release}")
    run("release", "expiring", "--held-by", lock.locked_by)
    assert "has run" in run("trigger", "expiring")
    assert ran == [1]


@pytest.mark.parametrize("subcommand", ["list", "history"])
def test_limit_of_too_many_digits_is_refused(subcommand: str) -> None:
    """Python itself refuses such a number, with a traceback."""
    with pytest.raises(CommandError, match="'99999999999999999999' is too large"):
        run(subcommand, "--limit", "9" * 20)


def test_prune() -> None:
    """Old runs and records of unused locks are deleted."""
    execute(list, "old", lock_at_most_for="1m")
    LockRun.objects.update(ended=DatabaseNow() - timedelta(days=40))
    LockRecord.objects.update(
        lock_until=DatabaseNow() - timedelta(days=40),
        released_at=DatabaseNow() - timedelta(days=40),
    )
    told = run("prune", "--unused-for", "30d")
    assert "Deleted runs: 1." in told
    assert "Deleted records of unused locks: 1." in told
    assert "actions" not in told
