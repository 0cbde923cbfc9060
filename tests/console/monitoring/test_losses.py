"""Runs that lost their lock: what is told while their workers may live, and after."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_shedlock import LockLost, execute, hold
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.lock import process_of
from django_shedlock.locks.status import JobState, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.signals import lock_lost
from django_shedlock.sql.fields import DatabaseNow
from tests.support.bridges import bridge
from tests.support.commands import call
from tests.support.lateness import DAY, be_overdue
from tests.support.leases import beat_now, end_lease
from tests.support.locks import LEASE, end_run, expire, status_of, take
from tests.support.operators import LIST
from tests.support.private_connections import counted_statements
from tests.support.processes import Parent, use, worker
from tests.support.waiting import wait_for, wait_for_servers

pytestmark = pytest.mark.django_db(transaction=True)


def job() -> JobState:
    return status_of(get_provider(), "job").job


def live_on(parent: Parent) -> None:
    """Hold the lock, notice its loss when told to, and go on until told to end."""
    with hold("job", lock_at_most_for=LEASE) as lock:
        parent.say(lock.locked_by)
        parent.wait()
        with suppress(LockLost):
            lock.extend()
        parent.say(lock.lost.is_set())
        parent.wait()


def told() -> str:
    """Return what operators read: of check, of list, and of the admin's list."""
    if not User.objects.exists():
        User.objects.create_superuser("root", password="x")
    client = Client()
    client.force_login(User.objects.get())
    page = client.get(reverse(LIST))
    [row] = [each for each in page.context["shedlock_rows"] if each["lines"]]
    buttons = {each.name for each in row["cures"]}
    findings = [line.finding for line in row["lines"]]
    status, checked, _ = call("check")
    assert status == 1
    assert findings[-1].kind in call("list")[1]
    assert all(finding.sentence in checked for finding in findings)
    assert "--force" not in checked
    # Nothing that an operator reads leads to a second body.
    assert "run_selected" not in buttons
    assert "trigger" not in checked
    assert "shedlock catch-up" not in checked
    assert "died" not in checked.replace("may have died", "")
    return checked


def test_living_worker_of_a_released_lock() -> None:
    """
    The worker of a released lock is never reported as dead while it lives.

    The finding has the reason of the release, and says that the job may still run.
    """
    with worker(live_on) as living:
        locked_by = living.heard()
        process = locked_by.rpartition(":")[0]
        reason = ["--reason", "the pod is gone"]
        assert call("release", "job", "--force", *reason)[0] == 0
        be_overdue("job")
        first = told()
        assert "released its lock at" in first
        assert "because: 'the pod is gone'" in first
        assert (
            f"It may still run: make sure that its process {process} is gone" in first
        )
        assert f"Its last run may still go on in process {process}." in first
        assert job().outcome == RunOutcome.ABANDONED
        living.send()
        assert living.heard() is True
        wait_for(lambda: job().lost_at)
        assert (job().outcome, job().ended_at) == (RunOutcome.LOST, None)
        noticed = told()
        assert "Its last run lost its lock at" in noticed
        assert "because: 'the pod is gone'" in noticed
        assert f"make sure that its process {process} is gone" in noticed
        living.send()
        living.result()
    assert (job().outcome, job().ended_at is None) == (RunOutcome.LOST, False)
    status, ended, _ = call("check")
    assert status == 1
    assert "It may have run twice at the same time." in ended
    assert "may still" not in ended
    assert "shedlock catch-up job\n" in ended


def test_living_worker_whose_expired_lock_was_taken() -> None:
    """Nobody knows whether it is dead, and nobody says so."""
    with worker(live_on) as living:
        locked_by = living.heard()
        expire("job")
        be_overdue("job")
        expired = told()
        process = locked_by.rpartition(":")[0]
        assert f"Make sure that process {process} is gone" in expired
        taken = take("job")
        found = call("check")[1]
        assert "has not reported its end" in found
        assert process in found
        taken.release()
        living.send()
        assert living.heard() is True
        living.send()
        living.result()


@pytest.mark.servers_only
def test_loss_is_told_though_the_database_hangs() -> None:
    """Nobody waits for the row of the run."""
    with bridge() as to_server, worker(lose_without_a_store) as living:
        living.send(to_server.address)
        assert living.heard() == "held"
        to_server.freeze()
        living.send()
        assert living.heard() == "told"
        to_server.close()
        living.kill()


def lose_without_a_store(parent: Parent) -> None:
    """Hold the lock, and say when the loss is told."""
    wait_for_servers()
    use({"default": parent.wait()})
    lost: list[Any] = []

    def note(*, lock: Any, **kwargs: Any) -> None:
        lost.append(lock)

    with hold("job", lock_at_most_for=LEASE) as lock:
        parent.say("held")
        parent.wait()
        lock_lost.connect(note)  # so it is called after the receiver of the history
        lock.declare_lost()
        assert lost == [lock]
        parent.say("told")
        parent.wait()


@pytest.mark.each_store
def test_heartbeat_writes_the_loss() -> None:
    """The heartbeat records a loss even if the body never asks about its lock."""
    with hold("job", lock_at_most_for=LEASE, keep_alive=True) as lock:
        end_lease(lock)
        beat_now(lock)
        wait_for(lambda: job().lost_at)
        assert (job().outcome, job().ended_at) == (RunOutcome.LOST, None)
    assert (job().outcome, job().ended_at is None) == (RunOutcome.LOST, False)


@pytest.mark.parametrize("outcome", [RunOutcome.LOST, RunOutcome.ABANDONED])
def test_finding_of_another_acquisition_names_no_operator(outcome: RunOutcome) -> None:
    """A release counts for the acquisition that it was about."""
    take("job")
    assert call("release", "job", "--force", "--reason", "the pod is gone")[0] == 0
    assert "the pod is gone" in call("check")[1]
    end_run("job", outcome)
    assert "the pod is gone" not in call("check")[1]


def overlap() -> None:
    """Let a run lose its lock to another one, which succeeds, and then end."""
    with hold("job", lock_at_most_for=LEASE):
        assert call("release", "job", "--force", "--reason", "by mistake")[0] == 0
        with worker(run_through) as other:
            other.result()


def run_through(parent: Parent) -> None:
    """Be the other worker."""
    execute(lambda: None, "job")


def test_overlap_is_told_though_the_other_run_succeeded() -> None:
    """
    An overlap is reported for a day, even if both runs have succeeded.

    A lock is there to prevent an overlap.
    """
    overlap()
    execute(lambda: None, "job")
    checked = told()
    assert "An earlier run lost its lock at " in checked
    assert "because: 'by mistake'" in checked
    lost, other = LockRun.objects.order_by("started")[:2]
    assert f"It ran in process {process_of(lost.locked_by)} from " in checked
    assert f"; process {process_of(other.locked_by)} ran the job from " in checked
    assert "It may have run twice at the same time." in checked
    assert call("list", "--attention")[1].startswith("NAME")
    LockRecord.objects.update(lost_at=DatabaseNow() - DAY)
    assert call("check")[:2] == (0, "No findings.\n")


def test_old_loss_is_told_until_a_run_succeeds() -> None:
    """An old loss of a lock is reported until a later run succeeds."""
    end_run("job", RunOutcome.LOST)
    long_ago = DatabaseNow() - 9 * DAY
    LockRecord.objects.update(ended_at=long_ago, lost_at=long_ago)
    assert "Its last run lost its lock" in told()
    end_run("job")
    assert call("check")[0] == 0


def test_losses_cost_as_many_statements_as_one_failure() -> None:
    """However many locks were lost, and whatever followed."""
    counts = []
    end_run("failed", RunOutcome.FAILED)
    for number in range(3):
        for loss in range(10 * number):
            name = f"job-{number}-{loss}"
            end_run(name, RunOutcome.LOST)
            end_run(name)
        with counted_statements() as queries:
            found = Search().attention(get_provider()).findings
        counts.append(len(queries))
        assert len(found) == 1 + sum(10 * each for each in range(number + 1))
    assert counts == [4, 5, 4]  # of more than twenty losses no other run is read
